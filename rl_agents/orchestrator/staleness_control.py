"""Which groups a stream admits and which it trains on next, so that none is ever too old (pure, without threads).

Groups of ``n`` episodes are admitted and trained on as wholes, numbered in the order of admission; ``B`` of them make
an iteration. Two rules bound their age:

- *Paced admission.* Admitted and not yet trained on are at most ``(S + 1) B`` groups. A group is trained on when
  the engines have the weights that came of it.
- *Windowed FIFO.* The next group is the oldest finished one among those that are less than ``W`` behind the oldest
  that is left. A slow group lets ``W - 1`` others pass, then all wait for it: it does not hold up the others at once,
  and does not starve. None is dropped.

Group ``g = q B + r`` is admitted when at least ``q - S`` iterations are over, and is at most number ``g + W - 1`` to be
trained on, in iteration ``q + ceil((W - 1) / B)`` at the latest: no step is older than ``S + ceil((W - 1) / B)``
iterations (the bound of torchtitan's windowed FIFO, with the window of MiniMax, arXiv:2605.26494, 6.2.4). A bound ``K``
is used up so: ``S = K`` and ``W = 1``, a plain FIFO, for ``K <= 2``, where one more iteration ahead is worth more than
a window; above, ``S = K - 1`` and ``W = max(1, min(floor(0.3 (S + 1) B), B + 1))``.

Groups that a method passes over (dynamic sampling) make room at once. The bound stays: what is admitted in their place
comes behind all that were admitted before, and the iteration under way takes ``B`` others all the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

#: Share of all admitted groups that the window holds at most.
WINDOW = 0.3
#: Largest bound that is used up without a window.
FIFO = 2


def slack_and_window(batch: int, staleness: int) -> tuple[int, int]:
    """Return S, in iterations, and W, in groups; ``batch`` is B and ``max_staleness`` K, both at least 1."""
    if staleness <= FIFO:
        return staleness, 1
    return staleness - 1, max(1, min(math.floor(WINDOW * staleness * batch), batch + 1))


class TooOld(AssertionError):
    """A group is older than the bound: an error of this program."""


@dataclass
class Admission:
    """The groups of a stream.

    Attributes:
        batch: B; 1 where a unit is a whole batch.
        staleness: K, in iterations.
        fifo: no window: in the order of admission, ``S = K``.
        iteration: iterations whose weights the engines have.
        admitted: groups so far; the next one's number.
        gone: groups that were trained on, those passed over among them.
        waiting: admitted and not taken, oldest first, each with the iteration that it was admitted at.
        finished: those of them that are complete.
        taken: of the iteration under way, as in ``waiting``.
        passed: how many of them teach nothing.
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

    def go_on(self, iteration: int, position: int, waiting: dict[int, int]) -> None:
        """Continue after a checkpoint.

        Args:
            position: groups that were trained on before it.
            waiting: those that had been admitted and were not, as `waiting`; they have to be run again.
        """
        self.iteration, self.waiting = iteration, dict(sorted(waiting.items()))
        self.gone, self.admitted = position, position + len(waiting)
        assert not waiting or max(waiting) < self.admitted

    def room(self) -> bool:
        return self.admitted - self.gone < (self.slack + 1) * self.batch

    def useful(self) -> int:
        """Return how many groups there are to train on, in this iteration and later ones, as far as is known."""
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
        """Return the next groups for ``iteration``; none while there are less than ``count``.

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
                age = f"admitted at iteration {self.taken[number]}, trained on at {iteration}"
                raise TooOld(f"group {number} was {age}: the bound is {self.bound}")
        return found

    def pass_over(self, count: int) -> None:
        """So many of the taken groups teach nothing: as many others may be admitted."""
        self.gone, self.passed = self.gone + count, self.passed + count

    def put_back(self) -> None:
        """The iteration under way is given up: its groups wait again, finished."""
        self.waiting = dict(sorted({**self.taken, **self.waiting}.items()))
        self.finished |= self.taken.keys()
        self.gone -= self.passed
        self.taken, self.passed = {}, 0

    def learned(self) -> list[int]:
        """Return the groups of the iteration that is over; call `publish` when the engines have its weights."""
        groups, self.taken, self.passed = list(self.taken), {}, 0
        return groups

    def publish(self, iteration: int) -> None:
        """The engines have the weights of so many iterations."""
        self.gone += self.batch * (iteration - self.iteration)
        self.iteration = iteration
