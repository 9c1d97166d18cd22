"""The groups of a stream, from their admission until they are learned from: one table that its threads share."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rl_agents.data.tasks import training_specs
from rl_agents.data.trajectory import EpisodeSpec, Trajectory
from rl_agents.orchestrator.rollout_batch import Episodes, Place
from rl_agents.orchestrator.staleness_control import Admission


@dataclass
class Group:
    """The episodes of one task.

    Attributes:
        version: of the engines' weights at the admission.
        attempt: how often some of the episodes had to be asked for again.
        fruitless: how often in a row that brought nothing.
        resampled: episodes that were asked for again.
        batch: of `rl_agents.orchestrator.remote_batches`, while an env runner plays the group; None: it waits for one.
        sure: all its calls are in the pool, or will be there.
    """

    number: int
    version: int
    specs: Sequence[EpisodeSpec]
    done: dict[EpisodeSpec, Trajectory] = field(default_factory=dict)
    attempt: int = 0
    fruitless: int = 0
    resampled: int = 0
    batch: int | None = None
    sure: bool = True

    def missing(self) -> list[EpisodeSpec]:
        """Return the episodes that are not there."""
        return [spec for spec in self.specs if spec not in self.done]

    def trajectories(self) -> list[Trajectory]:
        """Return all of them, in the order of their members."""
        return [self.done[spec] for spec in self.specs]


class Groups:
    """All that are admitted and not learned from.

    Attributes:
        changed: guards the table; notified when a group is ready.
        place: behind what was learned from.
    """

    def __init__(self, episodes: Episodes, changed: threading.Condition, iteration: int, place: Place) -> None:
        self.changed, self.place = changed, place
        self._episodes, settings = episodes, episodes.settings
        self.admission = Admission(settings.tasks_per_iteration, settings.staleness)
        self.admission.go_on(iteration, place.position, {})
        self._table: dict[int, Group] = {}

    def go_on(self, before: Sequence[int]) -> None:
        """Take up what `in_flight` said; it is played again."""
        waiting = list(zip(before[::3], before[1::3], before[2::3], strict=True))
        admission = self.admission
        admission.go_on(admission.iteration, self.place.position, {number: admitted for number, admitted, _ in waiting})
        self._table = {number: self.make(number, version) for number, _, version in waiting}

    def make(self, number: int, version: int) -> Group:
        """Return a group with the task and the seeds that its number stands for."""
        settings = self._episodes.settings
        iteration, first = divmod(number, settings.tasks_per_iteration)
        specs = training_specs(
            self._episodes.tasks, iteration, 1, settings.group_size, settings.seed, position=number, first_group=first,
            left_out=self.place.bad.left_out,
        )  # fmt: skip
        return Group(number, version, [replace(spec, group_id=number) for spec in specs])

    def admit(self, further: float, version: int) -> None:
        """Admit as many as there is room for.

        Args:
            further: groups that the run needs from now on.
            version: of the engines' weights.
        """
        with self.changed:
            while self.admission.room() and self.admission.useful() < further:
                number = self.admission.admit()
                self._table[number] = self.make(number, version)

    def all(self) -> list[Group]:
        """Return all, in the order of their admission where none was played again."""
        with self.changed:
            return list(self._table.values())

    def ready(self, group: Group) -> None:
        """A group is complete and has its rewards."""
        with self.changed:
            self.admission.finish(group.number)
            self.changed.notify_all()

    def take(self, count: int, iteration: int) -> list[Group]:
        """Return the next groups for ``iteration``, see `Admission.take`; ``changed`` is the caller's."""
        return [self._table[number] for number in self.admission.take(count, iteration)]

    def learned(self) -> None:
        """Forget those of the iteration that is over; ``changed`` is the caller's."""
        for number in self.admission.learned():
            del self._table[number]

    def recorded(self, complete: bool) -> bool:
        """Note whether the pool has all calls so far; return whether it has those of the iteration under way."""
        with self.changed:
            for group in self._table.values():
                group.sure = group.sure and complete
            return all(self._table[number].sure for number in self.admission.taken)

    def unsure(self) -> list[Trajectory]:
        """Return episodes that are finished and may lack calls in the pool."""
        with self.changed:
            return [
                trajectory for group in self._table.values() if not group.sure for trajectory in group.done.values()
            ]

    def in_flight(self) -> list[int]:
        """Number, iteration and version of the admission of all, one after the other."""
        with self.changed:
            waiting = sorted({**self.admission.taken, **self.admission.waiting}.items())
            return [part for number, admitted in waiting for part in (number, admitted, self._table[number].version)]

    def oldest(self, version: int) -> int:
        """The oldest version that sampled any, or ``version``."""
        with self.changed:
            return min([version, *(group.version for group in self._table.values())])

    def counts(self) -> dict[str, float]:
        """How many there are, and where."""
        with self.changed:
            playing = len(self.admission.waiting) - len(self.admission.finished)
            return {"stream/admitted": float(self.admission.admitted), "stream/playing": float(playing)}
