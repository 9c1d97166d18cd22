"""Streamed tokens as text: text that a later token may change is not shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

#: Decoded form of bytes that are not a complete character.
UNFINISHED = "\ufffd"
#: More of these at the end are not the beginning of a character.
MAX_UNFINISHED = 8


class TextStream:
    """The text of one answer.

    Attributes:
        text: shown so far.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        """``decode``: ids to text, as the environment reads it (`ChatTemplate.decode`)."""
        self._decode = decode
        self._ids: list[int] = []
        # Decoding begins at ``_start``; tokens before ``_read`` provide context for the next ones. The first ``_taken``
        # characters of the decoded text are in ``text``.
        self._start = self._read = self._taken = 0
        self.text = ""

    def add(self, token_ids: Sequence[int], last: bool = False) -> str:
        """Add sampled tokens and return the text that can be shown now; ``last``: no more tokens follow."""
        self._ids += token_ids
        now = self._decode(self._ids[self._start :])
        whole = len(now.rstrip(UNFINISHED))
        if last or len(now) - whole > MAX_UNFINISHED:
            whole = len(now)
        new = now[self._taken : whole]
        self._taken = max(self._taken, whole)
        if whole == len(now):
            # Tokens without text are no context: some tokenizers drop the space before the first word.
            context = self._decode(self._ids[self._read :])
            if context:
                self._start, self._read, self._taken = self._read, len(self._ids), len(context)
        self.text += new
        return new


def beginning_of(text: str, tags: Sequence[str]) -> int:
    """Return the length of the longest suffix of the text that is a prefix of a tag."""
    longest = max((len(tag) - 1 for tag in tags), default=0)
    lengths = range(min(len(text), longest), 0, -1)
    return next((n for n in lengths if any(tag.startswith(text[-n:]) for tag in tags)), 0)
