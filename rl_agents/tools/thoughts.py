"""The reader that separates a model's thoughts from its words, for responses, judges' replies and traces."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rl_agents.tools.shapes import CANONICAL, Shape, find_calls, without

#: ``<reasoning>`` is the tag of the PRS paper's prompt.
THOUGHT_TAGS = ("think", "reasoning")
_OPENING = re.compile(f"<(?:{'|'.join(THOUGHT_TAGS)})>")
_CLOSING = re.compile(f"</(?:{'|'.join(THOUGHT_TAGS)})>")


@dataclass(frozen=True, slots=True)
class Spoken:
    """The two parts of a text.

    Attributes:
        thoughts: everything before ``words``, without the first opening tag.
        words: the text after the last closing tag, up to a thought that begins there and does not end.
        ends: whether the last thought ends; also True without thoughts.
    """

    thoughts: str
    words: str
    ends: bool = True


def read_thoughts(text: str, shapes: Sequence[Shape] = CANONICAL) -> Spoken:
    """Separate thoughts and words.

    A text may begin inside a thought and have only the closing tag, because many chat templates open the tag in the
    prompt. Words begin after the last thought. A thought that does not end is not part of the words. Tags inside a tool
    call are an argument's text.

    >>> read_thoughts("Yes, I should check.</think> no").words
    ' no'
    >>> read_thoughts("<think>so <answer>7</answer>")
    Spoken(thoughts='so <answer>7</answer>', words='', ends=False)
    """
    # Tags inside a call do not open or close a thought. A thought may contain whole calls, which are not made.
    bare = without(text, find_calls(text, shapes)[0], " ") if _CLOSING.search(text) or _OPENING.search(text) else text
    *_, (start, end) = [(0, 0), *(closing.span() for closing in _CLOSING.finditer(bare))]
    thoughts, opening = _without_opening(text[:start]), _OPENING.search(bare, end)
    if opening is None:
        return Spoken(thoughts, text[end:])
    return Spoken(thoughts + text[opening.end() :], text[end : opening.start()], ends=False)


def _without_opening(thoughts: str) -> str:
    opening = _OPENING.match(thoughts.lstrip())
    return thoughts.lstrip()[opening.end() :] if opening else thoughts
