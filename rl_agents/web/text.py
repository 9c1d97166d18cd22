"""Streamed tokens as text: text that a later token may change is not shown, and stop strings end it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

#: Decoded form of bytes that are not a complete character.
UNFINISHED = "\ufffd"
#: More of these at the end are not the beginning of a character.
MAX_UNFINISHED = 8


class TextStream:
    """The text of one answer.

    Attributes:
        text: shown so far; ends before a stop string.
        stopped: a stop string has occurred.
        stopped_by: the stop string; empty: none.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: Sequence[str] = ()) -> None:
        """
        Args:
            decode: ids to text, as the environment reads it (`ChatTemplate.decode`).
            stop: strings that end the answer.
        """
        self._decode, self._stop = decode, tuple(stop)
        self._ids: list[int] = []
        # Decoding begins at ``_start``; tokens before ``_read`` provide context for the next ones. The first ``_taken``
        # characters of the decoded text are in ``_decoded``.
        self._start = self._read = self._taken = 0
        self._decoded = ""
        self.text, self.stopped, self.stopped_by = "", False, ""

    def add(self, token_ids: Sequence[int], last: bool = False) -> str:
        """Add sampled tokens and return the text that can be shown now; ``last``: no more tokens follow."""
        if self.stopped:
            return ""
        self._ids += token_ids
        now = self._decode(self._ids[self._start :])
        whole = len(now.rstrip(UNFINISHED))
        if last or len(now) - whole > MAX_UNFINISHED:
            whole = len(now)
        self._decoded += now[self._taken : whole]
        self._taken = max(self._taken, whole)
        if whole == len(now):
            # Tokens without text are no context: some tokenizers drop the space before the first word.
            context = self._decode(self._ids[self._read :])
            if context:
                self._start, self._read, self._taken = self._read, len(self._ids), len(context)
        return self._show(last)

    def _show(self, last: bool) -> str:
        """Extend ``text`` up to the first place where a stop string may begin."""
        places = [(place, stop) for stop in self._stop if (place := self._decoded.find(stop)) >= 0]
        if places:
            end, self.stopped_by = min(places)
            self.stopped = True
        else:
            end = len(self._decoded) - (0 if last else beginning_of(self._decoded, self._stop))
        new = self._decoded[len(self.text) : end]
        self.text += new
        return new


def beginning_of(text: str, tags: Sequence[str]) -> int:
    """Return the length of the longest suffix of the text that is a prefix of a tag."""
    longest = max((len(tag) - 1 for tag in tags), default=0)
    lengths = range(min(len(text), longest), 0, -1)
    return next((n for n in lengths if any(tag.startswith(text[-n:]) for tag in tags)), 0)
