"""Where a model's thoughts end and its words begin: the one reader for responses, judges' replies and traces."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: ``<reasoning>`` is the tag of the PRS paper's prompt.
THOUGHT_TAGS = ("think", "reasoning")
_OPENING = re.compile(f"<(?:{'|'.join(THOUGHT_TAGS)})>")
_CLOSING = re.compile(f"</(?:{'|'.join(THOUGHT_TAGS)})>")
_CALL = re.compile(r"<tool_call>.*?</tool_call>", re.DOTALL)
_CALL_END = "</tool_call>"


@dataclass(frozen=True, slots=True)
class Spoken:
    """A text taken apart.

    Attributes:
        thoughts: all that stands before ``words``, without the first opening tag.
        words: what follows the last closing tag, up to a thought that begins there and does not end.
        ends: the last thought ends, or there is none.
    """

    thoughts: str
    words: str
    ends: bool = True


def read_thoughts(text: str) -> Spoken:
    """Take thoughts and words apart.

    A text may begin inside a thought, since many chat templates open the tag in the prompt: then the closing tag alone
    is seen. Of several thoughts the last one counts. What stands inside a thought that does not end was not said.

    >>> read_thoughts("Yes, I should check.</think> no").words
    ' no'
    >>> read_thoughts("<think>so <answer>7</answer>")
    Spoken(thoughts='so <answer>7</answer>', words='', ends=False)
    """
    *_, (start, end) = [(0, 0), *(closing.span() for closing in _CLOSING.finditer(text))]
    thoughts, words = _without_opening(text[:start]), text[end:]
    opening = _unclosed(words)
    if opening is None:
        return Spoken(thoughts, words)
    return Spoken(thoughts + words[opening.end() :], words[: opening.start()], ends=False)


def _unclosed(words: str) -> re.Match[str] | None:
    """Return the first opening tag; inside a tool call it is an argument's text."""
    # Up to the last end of a call every beginning finds one: without it the search would take quadratic time.
    end = words.rfind(_CALL_END) + len(_CALL_END) if _CALL_END in words else 0
    blanked = _CALL.sub(lambda call: " " * len(call[0]), words[:end])
    return _OPENING.search(blanked + words[end:])


def _without_opening(thoughts: str) -> str:
    opening = _OPENING.match(thoughts.lstrip())
    return thoughts.lstrip()[opening.end() :] if opening else thoughts
