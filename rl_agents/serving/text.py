"""Tokens to text while they come: nothing is shown that a later token may change, and stop strings end it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

#: How a decoder writes bytes that are no character yet.
UNFINISHED = "\ufffd"
#: Tokens that may wait for the rest of a character: four bytes, and a margin.
MAX_WAITING = 16


class TextStream:
    """The text of one answer.

    Attributes:
        text: what may be shown so far; stop strings and what follows them are cut off.
        stopped: a stop string has occurred.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: Sequence[str] = ()) -> None:
        """Begin an answer.

        Args:
            decode: ids to text, as the environment reads it (`ChatTemplate.decode`).
            stop: strings that end the answer.
        """
        self._decode, self._stop = decode, tuple(stop)
        self._ids: list[int] = []
        # Tokens before ``_read`` are in ``_decoded``; those from ``_start`` on give the next ones their context.
        self._start = self._read = 0
        self._decoded = ""
        self.text, self.stopped = "", False

    def add(self, token_ids: Sequence[int], last: bool = False) -> str:
        """Take further tokens; return the text that may be shown now and could not before.

        Args:
            token_ids: what was sampled since.
            last: no more will come.
        """
        if self.stopped:
            return ""
        self._ids += token_ids
        known = self._decode(self._ids[self._start : self._read])
        now = self._decode(self._ids[self._start :])
        waiting = len(self._ids) - self._read
        if now.endswith(UNFINISHED) and waiting <= MAX_WAITING and not last:
            return ""
        self._decoded += now[len(known) :]
        self._start, self._read = self._read, len(self._ids)
        return self._show(last)

    def _show(self, last: bool) -> str:
        """Extend ``text`` by what no stop string can reach any more."""
        places = [place for stop in self._stop if (place := self._decoded.find(stop)) >= 0]
        if places:
            self.stopped, end = True, min(places)
        else:
            end = len(self._decoded) - (0 if last else self._held_back())
        new = self._decoded[len(self.text) : end]
        self.text += new
        return new

    def _held_back(self) -> int:
        """Return the length of the longest end that may be the beginning of a stop string."""
        longest = max((len(stop) - 1 for stop in self._stop), default=0)
        for length in range(min(longest, len(self._decoded)), 0, -1):
            if any(stop.startswith(self._decoded[-length:]) for stop in self._stop):
                return length
        return 0
