"""Tokens to text while they come: nothing is shown that a later token may change, and stop strings end it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

#: How a decoder writes bytes that are no character yet.
UNFINISHED = "\ufffd"
#: So many of them at the end are no beginning of a character any more.
MAX_UNFINISHED = 8


class TextStream:
    """The text of one answer.

    Attributes:
        text: what may be shown so far; stop strings and what follows them are cut off.
        stopped: a stop string has occurred.
        stopped_by: which one; empty: none.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: Sequence[str] = ()) -> None:
        """Begin an answer.

        Args:
            decode: ids to text, as the environment reads it (`ChatTemplate.decode`).
            stop: strings that end the answer.
        """
        self._decode, self._stop = decode, tuple(stop)
        self._ids: list[int] = []
        # Decoding begins at ``_start``; tokens before ``_read`` are there to give the next ones their context. The
        # first ``_taken`` characters of what is decoded are in ``_decoded``.
        self._start = self._read = self._taken = 0
        self._decoded = ""
        self.text, self.stopped, self.stopped_by = "", False, ""

    def add(self, token_ids: Sequence[int], last: bool = False) -> str:
        """Take further tokens; return the text that may be shown now and could not before.

        Args:
            token_ids: the tokens sampled since.
            last: no more will come.
        """
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
            self._start, self._read = self._read, len(self._ids)
            self._taken = len(self._decode(self._ids[self._start :]))
        return self._show(last)

    def _show(self, last: bool) -> str:
        """Extend ``text`` by what no stop string can reach any more."""
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
    """Return the length of the longest end of the text that one of the tags may begin with."""
    longest = max((len(tag) - 1 for tag in tags), default=0)
    lengths = range(min(len(text), longest), 0, -1)
    return next((n for n in lengths if any(tag.startswith(text[-n:]) for tag in tags)), 0)
