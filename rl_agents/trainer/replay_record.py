"""What a pool says about the updates of a run, for `rl_agents.trainer.replay`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.data.trajectory import Trajectory
from rl_agents.errors import InputError
from rl_agents.store.reader import PoolReader, Where
from rl_agents.store.records import Batch, Credit, Event
from rl_agents.store.schema import load_text
from rl_agents.trainer.checkpoint import load_state


@dataclass(frozen=True)
class Update:
    """What one update learned from.

    Attributes:
        number: within the iteration of a search; None: the iteration's only one.
        sessions: its own, in the order of its rows.
        again: those of earlier iterations that it learned from again, behind them.
    """

    iteration: int
    number: int | None
    sessions: tuple[str, ...]
    again: tuple[str, ...] = ()


@dataclass
class Record:
    """What a pool says about a range of iterations.

    Attributes:
        updates: in order.
        stream: groups were taken as they were finished.
    """

    reader: PoolReader
    updates: list[Update]
    stream: bool = False

    @classmethod
    def read(cls, reader: PoolReader, settings: Settings, start: int, end: int) -> Record:
        """Read what was learned in iterations ``start`` to ``end`` (without it).

        Raises:
            InputError: the pool holds nothing of one of them.
        """
        found: dict[tuple[int, int], list[Batch]] = defaultdict(list)
        for batch in reader.batches():
            if start <= batch.iteration < end:
                found[batch.iteration, batch.update].append(batch)
        search, stream = ALGORITHMS[settings.algo].source == "search", settings.stream
        played = {load_text(name): iteration for name, iteration in reader.rows("SELECT id, iteration FROM sessions")}
        updates = list[Update]()
        for (iteration, number), batches in sorted(found.items()):
            names = [batch.session for batch in sorted(batches, key=lambda batch: batch.position)]
            own = tuple(name for name in names if played.get(name, iteration) == iteration)
            again = tuple(name for name in names if played.get(name, iteration) != iteration)
            updates.append(Update(iteration, number if search else None, own, again))
        without = set(range(start, end)) - {update.iteration for update in updates}
        for iteration in sorted(without):
            if next(reader.stored(Where(iteration=iteration)), None) is None:
                raise InputError(f"{reader.name}: nothing is recorded of iteration {iteration}")
        return cls(reader, updates, stream)

    def trajectories(self, names: Sequence[str]) -> list[Trajectory]:
        """Whole sessions as they were recorded, in the order of ``names``."""
        found = {s.session.id: self.reader.trajectory(s, raw=True) for s in self.reader.stored(Where(ids=names))}
        if missing := [name for name in names if name not in found]:
            raise InputError(f"{self.reader.name}: session '{missing[0]}', which was learned from, is missing")
        return [found[name] for name in names]

    def credit(self, update: Update) -> dict[tuple[str, int], Credit]:
        """What the update's steps were worth, by session and step; of a step that was learned from again the last."""
        at = (update.iteration, update.number or 0)
        rows = [row for name in (*update.sessions, *update.again) for row in self.reader.credit(name)]
        return {(row.session, row.ordinal): row for row in rows if (row.iteration, row.update) == at}

    def by_version(self) -> dict[int, list[str]]:
        """Sessions of all updates by the versions that sampled their steps."""
        query = "SELECT DISTINCT c.policy_version FROM outcomes o JOIN calls c ON c.id = o.call WHERE o.session = ?"
        found: dict[int, list[str]] = defaultdict(list)
        for name in dict.fromkeys(name for update in self.updates for name in update.sessions):
            for (version,) in self.reader.rows(query, name):
                found[version].append(name)
        return found


def check_pool(reader: PoolReader, settings: Settings, checkpoints: Iterable[Path]) -> None:
    """Refuse the pool of another run.

    Raises:
        InputError: its run has another algorithm, environment or seed, or is not the one that a checkpoint names.
    """
    begun = next((event for event in reader.events() if event.kind == "run"), Event("run"))
    for name in ("algo", "env", "seed"):
        if (recorded := begun.facts.get(name)) != getattr(settings, name):
            raise InputError(f"{reader.name}: the pool of a run with {name}={recorded}, not {getattr(settings, name)}")
    for folder in checkpoints:
        pool = load_state(folder)[1].get("pool")
        if pool and pool != begun.facts.get("id"):
            raise InputError(f"{reader.name}: the pool of another run: {folder} was written beside another pool")


def refuse_unrecorded(settings: Settings, pool: Path) -> None:
    """Refuse runs whose learning is not in a pool of their own.

    Raises:
        InputError: why.
    """
    recipe = ALGORITHMS[settings.algo]
    if recipe.credit is None:
        raise InputError(f"{recipe.name} learns from demonstrations, which no pool holds: there is nothing to replay")
    if settings.pool:
        raise InputError(
            f"the run learned from pool={settings.pool} and wrote none of its own: with the same keys `run.py --pool` "
            "repeats it"
        )
    if not pool.is_file():
        raise InputError(f"{pool}: no such pool; a run with save_pool=false cannot be replayed")
