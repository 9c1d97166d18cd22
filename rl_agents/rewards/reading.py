"""Reads an episode's text for PRS: which tool calls parse, what the answer is, and whether the tags are complete."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rl_agents.data.trajectory import Trajectory
from rl_agents.data.tree import last_word
from rl_agents.tools.thoughts import THOUGHT_TAGS, read_thoughts

ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Reading:
    """The content of an episode's text.

    Attributes:
        calls_parsed: for every step except the answer, whether the environment could parse and accept it
            (``Step.valid``).
        answer: the final answer; empty if there is none.
        tags_complete: see `tags_complete`.
        references: accepted answers.
        question: the first observation.
        evidence: findings of the tools, as the environment reports them, or else all later observations.
        points: sentences that the answer must state; empty for short answers.
    """

    calls_parsed: tuple[bool, ...]
    answer: str
    tags_complete: bool
    references: tuple[str, ...]
    question: str
    evidence: tuple[str, ...]
    points: tuple[str, ...] = ()


def read_episode(trajectory: Trajectory, tags: Sequence[str]) -> Reading:
    """Read an episode with at least one step.

    Only the last step can be the answer (in a tree of calls, the last step of the final conversation). It is one if it
    begins an answer after its thoughts, even an incomplete one. All other steps are tool calls, parsed or not.
    """
    steps, end = [s for s in trajectory.steps if not s.is_summary], trajectory.steps[last_word(trajectory)]
    last = "" if end.is_summary else read_thoughts(end.action).words
    answered = "<answer>" in last
    calls = [step for step in steps if step is not end] if answered else steps
    return Reading(
        calls_parsed=tuple(step.valid for step in calls),
        answer=final_answer(last) if end.valid else "",
        tags_complete=tags_complete([step.action for step in steps], tags),
        references=tuple(trajectory.facts.get("references", ())),
        question=steps[0].observation,
        evidence=tuple(trajectory.facts.get("evidence", [step.observation for step in steps[1:]])),
        points=tuple(trajectory.facts.get("points", ())),
    )


def final_answer(text: str) -> str:
    """Return the content of the last complete ``<answer>`` pair; empty if there is none.

    >>> final_answer("<answer>Rome</answer> no, <answer> Paris </answer>")
    'Paris'
    """
    found = ANSWER.findall(text)
    return found[-1].strip() if found else ""


def tags_complete(texts: Sequence[str], tags: Sequence[str]) -> bool:
    """Return whether every required tag occurs, and in each text all of them are closed, in order and not nested.

    A text may begin inside a thought whose tag the template has opened (`rl_agents.tools.thoughts`).

    >>> tags_complete(["<think>a</think>", "<answer>b</answer>"], ["think", "answer"])
    True
    """
    if not tags:
        return True
    pattern = re.compile(rf"<(/?)({'|'.join(map(re.escape, tags))})>")
    seen: set[str] = set()
    for text in texts:
        found = pattern.findall(text)
        opened = found[0][1] if found and found[0][0] and found[0][1] in THOUGHT_TAGS else ""
        for closing, tag in found:
            if opened != (tag if closing else ""):
                return False
            opened = "" if closing else tag
            seen.add(tag)
        if opened:
            return False
    return seen == set(tags)
