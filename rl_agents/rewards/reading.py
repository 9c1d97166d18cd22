"""Reading an episode's text for PRS: which tool calls and which answer parse, which tags are complete."""

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
    """What an episode's text says.

    Attributes:
        calls_parsed: one entry per step that is not the answer: the environment could parse it and it fitted its
            rules (``Step.valid``).
        answer: the final answer; empty when there is none.
        tags_complete: see `tags_complete`.
        references: accepted answers.
        question: what the agent was asked.
        evidence: what its tools found: as the environment says, else all that it answered.
        points: what the answer has to state, sentence by sentence; none where answers are short.
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

    The answer is looked for in the last step only (in a tree of calls: the one that had the last word), after its
    thoughts. A last step that begins an answer is an answer
    however it continues; any other step is a tool call, parsed or not.
    """
    steps, end = trajectory.steps, trajectory.steps[last_word(trajectory)]
    last = read_thoughts(end.action).words
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
    """Return the content of the last complete ``<answer>`` pair; empty when there is none.

    >>> final_answer("<answer>Rome</answer> no, <answer> Paris </answer>")
    'Paris'
    """
    found = ANSWER.findall(text)
    return found[-1].strip() if found else ""


def tags_complete(texts: Sequence[str], tags: Sequence[str]) -> bool:
    """Whether every required tag occurs, and in each text all of them are closed, in order and not nested.

    A text may begin inside a thought, as in `rl_agents.tools.thoughts`: its template has opened the tag.

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
