"""Bounds on the staleness of a stream: which groups it admits, and which it trains on next (pure, without threads).

Groups of ``n`` episodes are admitted and trained on as wholes, and numbered in the order of admission. ``B`` of them
make an iteration. Two rules bound their age:

- *Paced admission.* At most ``(S + 1) B`` groups are admitted and not yet trained on. A group counts as trained on when
  the engines have the resulting weights.
- *Windowed FIFO.* The next group is the oldest finished one among those that are less than ``W`` behind the oldest
  remaining one. ``W - 1`` others may pass a slow group, then all wait for it, so that it neither blocks the others
  immediately nor starves. No group is dropped.

Group ``g = q B + r`` is admitted when at least ``q - S`` iterations are over, and is at most number ``g + W - 1`` to be
trained on, in iteration ``q + ceil((W - 1) / B)`` at the latest: no step is older than ``S + ceil((W - 1) / B)``
iterations (the bound of torchtitan's windowed FIFO, with the window of MiniMax, arXiv:2605.26494, 6.2.4). For a bound
``K <= 2``, ``S = K`` and ``W = 1``, a plain FIFO, because one more iteration ahead is worth more than a window. Above,
``S = K - 1`` and ``W = max(1, min(floor(0.3 (S + 1) B), B + 1))``.

Groups that a method skips (dynamic sampling) make room at once. The bound still holds, because their replacements come
after all groups that were admitted before, and the present iteration takes ``B`` other groups in any case.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

#: Maximum share of all admitted groups in the window.
WINDOW = 0.3
#: Largest bound for which there is no window.
FIFO = 2


def slack_and_window(batch: int, staleness: int) -> tuple[int, int]:
    """Return S, in iterations, and W, in groups; ``batch`` is B and ``max_staleness`` K, both at least 1."""
    if staleness <= FIFO:
        return staleness, 1
    return staleness - 1, max(1, min(math.floor(WINDOW * staleness * batch), batch + 1))


class TooOld(AssertionError):
    """A group is older than the bound, which is a bug."""


@dataclass
class Admission:
    """The groups of a stream.

    Attributes:
        batch: B; 1 if a unit is a whole batch.
        staleness: K, in iterations.
        fifo: no window: in the order of admission, ``S = K``.
        iteration: number of iterations whose weights the engines have.
        admitted: number of groups so far, which is the next one's number.
        gone: number of groups that were trained on, including skipped ones.
        waiting: admitted and not taken, oldest first, with the iteration of their admission.
        finished: completed groups of ``waiting``.
        taken: groups of the present iteration, as in ``waiting``.
        passed: number of skipped groups of ``taken``.
    """

    batch: int
    staleness: int
    fifo: bool = False
    iteration: int = 0
    admitted: int = 0
    gone: int = 0
    waiting: dict[int, int] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    taken: dict[int, int] = field(default_factory=dict)
    passed: int = 0

    def __post_init__(self) -> None:
        self.slack, self.window = (self.staleness, 1) if self.fifo else slack_and_window(self.batch, self.staleness)
        self.bound = self.slack + math.ceil((self.window - 1) / self.batch)
        assert self.bound <= self.staleness

    def resume(self, iteration: int, position: int, waiting: dict[int, int]) -> None:
        """Continue after a checkpoint.

        Args:
            position: number of groups that were trained on before it.
            waiting: groups that were admitted but not trained on, which run again; as the attribute.
        """
        self.iteration, self.waiting = iteration, dict(sorted(waiting.items()))
        self.gone, self.admitted = position, position + len(waiting)
        assert not waiting or max(waiting) < self.admitted

    def room(self) -> bool:
        return self.admitted - self.gone < (self.slack + 1) * self.batch

    def useful(self) -> int:
        """Return the number of groups that this and later iterations can train on, as far as is known."""
        return len(self.waiting) + len(self.taken) - self.passed

    def admit(self) -> int:
        assert self.room()
        number, self.admitted = self.admitted, self.admitted + 1
        self.waiting[number] = self.iteration
        return number

    def withdraw(self) -> None:
        """Undo the last `admit`."""
        self.admitted -= 1
        del self.waiting[self.admitted]

    def finish(self, number: int) -> None:
        assert number in self.waiting
        self.finished.add(number)

    def take(self, count: int, iteration: int) -> list[int]:
        """Return the next groups for ``iteration``; none while fewer than ``count`` are ready.

        Raises:
            TooOld: the bound does not hold.
        """
        left, found = list(self.waiting), list[int]()
        while len(found) < count:
            window = (number for number in left if number < left[0] + self.window)
            ready = next((number for number in window if number in self.finished), None)
            if ready is None:
                return []
            left.remove(ready)
            found.append(ready)
        for number in found:
            self.finished.remove(number)
            self.taken[number] = self.waiting.pop(number)
            if iteration - self.taken[number] > self.bound:
                age = f"admitted at iteration {self.taken[number] + 1}, trained on at {iteration + 1}"
                raise TooOld(f"group {number} was {age}: the bound is {self.bound}")
        return found

    def pass_over(self, count: int) -> None:
        """Note that ``count`` of the taken groups are skipped, so that as many others may be admitted."""
        self.gone, self.passed = self.gone + count, self.passed + count

    def put_back(self) -> None:
        """Cancel the present iteration: its groups wait again, finished."""
        self.waiting = dict(sorted({**self.taken, **self.waiting}.items()))
        self.finished |= self.taken.keys()
        self.gone -= self.passed
        self.taken, self.passed = {}, 0

    def learned(self) -> list[int]:
        """Return the groups of the completed iteration; call `publish` when the engines have its weights."""
        groups, self.taken, self.passed = list(self.taken), {}, 0
        return groups

    def publish(self, iteration: int) -> None:
        """Note that the engines have the weights of ``iteration`` iterations."""
        self.gone += self.batch * (iteration - self.iteration)
        self.iteration = iteration
