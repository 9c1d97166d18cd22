"""How a response with tags is read: ``<think>...</think> <interact>QUESTION</interact>`` or ``<answer>...</answer>``.

All active-reasoning tasks of T3 (appendix C) share this form.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rl_agents.tools.thoughts import read_thoughts

#: What asks for the answer at once in the compact style.
COMPACT_ANSWER_NOW = "<answer>"
NO_ACTION = "no-action"
SEVERAL_ACTIONS = "several-actions"

#: What the agent is told about a response that cannot be read.
MALFORMED_REASONS = {
    NO_ACTION: "found neither <interact>...</interact> nor <answer>...</answer> after your reasoning",
    SEVERAL_ACTIONS: "found more than one <interact> or <answer>; give exactly one per turn",
}

_TAG = re.compile(r"<(/?)(interact|answer)>")


@dataclass(frozen=True, slots=True)
class TaggedAction:
    """What a response asks for.

    Attributes:
        kind: ``interact``, ``answer`` or ``malformed``.
        content: the text inside the tag, without white space around it; empty when malformed.
        problem: for a malformed response, why: ``no-action``, ``several-actions``, or a word of the environment's own.
        detail: a sentence about the problem, where there is more to say.
    """

    kind: str
    content: str = ""
    problem: str = ""
    detail: str = ""


def read_tags(response: str) -> TaggedAction:
    """Read one action from ``response``.

    Thoughts do not count (`rl_agents.tools.thoughts`). The rest must hold exactly one complete
    ``<interact>...</interact>`` or ``<answer>...</answer>``; two tags, equal or not, are malformed, so nobody can act
    twice in a turn.
    """
    found = _pairs(read_thoughts(response).words)
    if not found:
        return TaggedAction("malformed", problem=NO_ACTION)
    if len(found) > 1:
        return TaggedAction("malformed", problem=SEVERAL_ACTIONS)
    kind, content = found[0]
    return TaggedAction(kind, content.strip())


def _pairs(text: str) -> list[tuple[str, str]]:
    """Return kind and content of every complete tag, each up to its first end; in linear time, as no regex does."""
    last_closing = {tag[2]: tag.start() for tag in _TAG.finditer(text) if tag[1]}
    found: list[tuple[str, str]] = []
    opening: re.Match[str] | None = None
    for tag in _TAG.finditer(text):
        if opening is None:
            if not tag[1] and tag.end() <= last_closing.get(tag[2], -1):
                opening = tag
        elif tag[1] and tag[2] == opening[2]:
            found.append((tag[2], text[opening.end() : tag.start()]))
            opening = None
    return found


def malformed(problem: str, detail: str = "") -> TaggedAction:
    """Return an action that cannot be played, for a reason of the environment's own."""
    return TaggedAction("malformed", problem=problem, detail=detail)
