"""Repeat the learner's work of a run from its trajectory store, and report differences (docs/reference/pool.md).

No environment runs. Every update gets its recorded episodes in order, with the weights of their groups and the random
numbers of the run. Two things are compared: the credit of every step (advantages, values) with the recorded one, and
the learner's state with the checkpoints.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.data.samples import FloatArray, Row
from rl_agents.data.selection import SelectionError
from rl_agents.data.trajectory import Trajectory
from rl_agents.errors import EpisodesFail, InputError
from rl_agents.learner.learner_group import AgentLearnerGroup
from rl_agents.learner.rl_modules import POLICY
from rl_agents.orchestrator.rollout_buffer import Sampled
from rl_agents.store.reader import PoolReader, Where
from rl_agents.store.records import Batch, Credit, Event
from rl_agents.store.schema import load_text
from rl_agents.store.token_scores import StepScores, TokenScores
from rl_agents.trainer.algorithm import AgentAlgorithm, AgentConfig
from rl_agents.trainer.checkpoint import MEMORY, flatten, load_part, load_state
from rl_agents.trainer.run_store import batch_records

# --- the recorded updates of a run ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Update:
    """Sessions of an update.

    Attributes:
        number: within the iteration of a search; None: the iteration's only one.
        sessions: its own sessions, in the order of its rows.
        again: replayed sessions of earlier iterations, which follow them.
    """

    iteration: int
    number: int | None
    sessions: tuple[str, ...]
    again: tuple[str, ...] = ()


@dataclass
class Record:
    """Recorded updates of a range of iterations.

    Attributes:
        stream: groups were taken as they finished.
    """

    reader: PoolReader
    updates: list[Update]
    stream: bool = False

    @classmethod
    def read(cls, reader: PoolReader, settings: Settings, start: int, end: int) -> Record:
        """Read the updates of iterations ``start`` to ``end`` (exclusive).

        Raises:
            InputError: an iteration is not in the store.
        """
        found: dict[tuple[int, int], list[Batch]] = defaultdict(list)
        for batch in reader.batches():
            if start <= batch.iteration < end:
                found[batch.iteration, batch.update].append(batch)
        search, stream = ALGORITHMS[settings.algo].source == "search", settings.stream
        sampled_in = {
            load_text(name): iteration for name, iteration in reader.rows("SELECT id, iteration FROM sessions")
        }
        updates = list[Update]()
        for (iteration, number), batches in sorted(found.items()):
            names = [batch.session for batch in sorted(batches, key=lambda batch: batch.position)]
            own = tuple(name for name in names if sampled_in.get(name, iteration) == iteration)
            again = tuple(name for name in names if sampled_in.get(name, iteration) != iteration)
            updates.append(Update(iteration, number if search else None, own, again))
        without = set(range(start, end)) - {update.iteration for update in updates}
        for iteration in sorted(without):
            if next(reader.stored(Where(iteration=iteration)), None) is None:
                raise InputError(f"{reader.name}: nothing is recorded of iteration {iteration + 1}")
        return cls(reader, updates, stream)

    def trajectories(self, names: Sequence[str]) -> list[Trajectory]:
        """Return whole recorded sessions, in the order of ``names``."""
        found = {s.session.id: self.reader.trajectory(s) for s in self.reader.stored(Where(ids=names))}
        if missing := [name for name in names if name not in found]:
            raise InputError(f"{self.reader.name}: session '{missing[0]}', which was trained on, is missing")
        return [found[name] for name in names]

    def credit(self, update: Update) -> dict[tuple[str, int], Credit]:
        at = (update.iteration, update.number or 0)
        rows = [row for name in (*update.sessions, *update.again) for row in self.reader.credit(name)]
        return {(row.session, row.ordinal): row for row in rows if (row.iteration, row.update) == at}


def check_pool(reader: PoolReader, settings: Settings, checkpoints: Iterable[Path]) -> None:
    """Reject the trajectory store of another run.

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
            raise InputError(f"{reader.name}: the pool of another run: {folder} was written with another pool")


def refuse_unrecorded(settings: Settings, pool: Path) -> None:
    """Reject runs whose updates are not in a store of their own.

    Raises:
        InputError: the reason.
    """
    recipe = ALGORITHMS[settings.algo]
    if recipe.credit is None:
        raise InputError(f"{recipe.name} trains on demonstrations, which no pool holds: there is nothing to replay")
    if settings.pool:
        raise InputError(
            f"the run trained on pool={settings.pool} and wrote none of its own: with the same keys `run.py --pool` "
            "repeats it"
        )
    if not pool.is_file():
        raise InputError(f"{pool}: no such pool; a run with save_pool=false cannot be replayed")


# --- the effect of each update on every sampled token (`rl_agents.store.token_scores`) --------------------------------


@dataclass
class TokenRecorder:
    """Scores an update's rows before it and after it, and writes the differences."""

    learners: AgentLearnerGroup
    file: TokenScores
    tokens: int = 0
    _rows: list[Row] = field(default_factory=list)
    _sessions: list[str] = field(default_factory=list)
    _before: list[FloatArray] = field(default_factory=list)
    _entropy: list[FloatArray] = field(default_factory=list)

    def before(self, rows: Sequence[Row], sessions: Sequence[str]) -> None:
        """Score rows with their credit before the update trains on them."""
        self._rows = [row for row in rows if row.advantages is not None and sessions[row.trajectory]]
        self._sessions = [sessions[row.trajectory] for row in self._rows]
        self._before = self._score("logprobs")
        self._entropy = self._score("entropy")

    def after(self, update: Update) -> None:
        if not self._rows:
            return
        after = self._score("logprobs")
        found = [step for index in range(len(self._rows)) for step in self._steps(update, index, after[index])]
        self.file.write(found)
        self.tokens += sum(step.numbers.shape[1] for step in found)
        self._rows.clear()

    def _score(self, part: str) -> list[FloatArray]:
        """Score all sampled tokens, also those that the loss omits."""
        whole = [replace(row, mask=(row.segments >= 0).astype(np.float32)) for row in self._rows]
        return self.learners.score(whole, POLICY, part) if whole else []

    def _steps(self, update: Update, index: int, after: FloatArray) -> Iterator[StepScores]:
        row, before = self._rows[index], self._before[index]
        assert row.advantages is not None
        old = row.logprobs if row.old_logprobs is None else row.old_logprobs
        correction = np.ones_like(before) if row.correction is None else row.correction
        layers = (
            row.advantages,
            np.exp(after - old),
            before - row.logprobs,
            self._entropy[index],
            correction,
            row.mask,
        )
        numbers = np.stack([np.asarray(layer, np.float32) for layer in layers])
        for step in np.unique(row.segments[row.segments >= 0]):
            part = numbers[:, row.segments == step]
            yield StepScores(self._sessions[index], int(step), update.iteration, update.number or 0, part)


# --- the replay -------------------------------------------------------------------------------------------------------


#: Number of differences to print.
SHOWN = 5


class Replayer(AgentAlgorithm):
    """A run's algorithm without engines and env runners; `on_batch` receives the credit of its updates."""

    on_batch: Callable[[Sequence[Row], Sequence[str]], None]
    #: The update's own sessions.
    names: tuple[str, ...]

    @classmethod
    def from_settings(cls, settings: Settings) -> Replayer:
        return cls(config=AgentConfig.from_settings(settings))

    def _start_workers(self) -> None:
        """Start none: a replay does not sample."""

    def _sessions(self, trajectories: Sequence[Trajectory], *update: int) -> list[str]:
        return list(self.names)

    def _keep_batch(
        self, rows: Sequence[Row], trajectories: Sequence[Trajectory], sessions: Sequence[str], *update: int
    ) -> None:
        self.on_batch(rows, sessions)

    def learn_again(
        self, update: Update, trajectories: Sequence[Trajectory], weights: Mapping[int, float]
    ) -> dict[str, float]:
        """Repeat a recorded update; the memory determines the replayed episodes."""
        self._iteration, self.names = update.iteration, update.sessions
        return self._learn(trajectories, weights, *(() if update.number is None else (update.number,)))


def replay_settings(settings: Settings) -> Settings:
    """Change a run's settings to those of its learner alone, in this process.

    Several learners and learners on GPUs stay: another number adds up gradients in another order.
    """
    settings.num_env_runners, settings.engine, settings.async_level, settings.stream = 0, "torch", 0, False
    settings.placement, settings.eval_episodes, settings.tasks_changed = "separate", 0, "accept"
    if settings.num_learners == 1 and not settings.gpus_per_learner:
        settings.num_learners = 0
    return settings


@dataclass
class Replay:
    """One replay.

    Attributes:
        say: prints a line.
        differences: all differences as text.
        equal: iterations whose checkpoints are equal.
        tokens: writes the effect of every update on every token; None: nothing is written.
    """

    algo: Replayer
    record: Record
    say: Callable[[str], None]
    differences: list[str] = field(default_factory=list)
    equal: list[int] = field(default_factory=list)
    tokens: TokenRecorder | None = None
    _update: Update | None = None
    _credit: list[str] = field(default_factory=list)

    def run(self, start: int, end: int, checkpoints: Mapping[int, Path]) -> bool:
        """Repeat iterations ``start`` to ``end`` (exclusive); return whether everything compared is equal.

        Args:
            checkpoints: to compare with, by completed iterations.
        """
        self.algo.on_batch = self._compare_credit
        for iteration in range(start, end):
            self._iteration(iteration)
            if iteration + 1 in checkpoints:
                self._compare_state(iteration + 1, checkpoints[iteration + 1])
        return not self.differences

    def _iteration(self, iteration: int) -> None:
        updates = [update for update in self.record.updates if update.iteration == iteration]
        before = len(self.differences)
        sessions = steps = again = 0
        for update in updates:
            trajectories = self.record.trajectories(update.sessions)
            sessions, steps = sessions + len(trajectories), steps + sum(len(t.steps) for t in trajectories)
            again += len(update.again)
            self._learn(update, trajectories)
        found = len(self.differences) - before
        if not updates:
            self.say(f"iteration {iteration + 1}: no update")
            return
        what = f"{sessions} episodes, {steps} steps" + (f", {again} replayed episodes" if again else "")
        if updates[0].number is not None:
            what = f"{len(updates)} updates, {sessions} samples"
        how = f"{found} differences" if found else "credit equal"
        self.say(f"iteration {iteration + 1}: {what}, to version {self.algo.policy_version}: {how}")

    def _learn(self, update: Update, trajectories: Sequence[Trajectory]) -> None:
        version = self.algo.policy_version
        for name, trajectory in zip(update.sessions, trajectories, strict=True):
            for number, step in enumerate(trajectory.steps):
                newest = max(step.policy_version, *(sampled for sampled, _ in step.version_spans), 0)
                if newest > version:
                    self._note(f"{name} step {number + 1}: sampled by version {newest}, the learner is at {version}")
        weights = self._group_weights(update)
        self._update, self._credit = update, []
        metrics = self.algo.learn_again(update, trajectories, weights)
        if self.tokens is not None:
            self.tokens.after(update)
        if metrics.get("actor/skipped_iterations"):
            self._note(f"iteration {update.iteration + 1}: nothing to train on here, but the run made an update")
        for line in self._credit:
            self._note(line)

    # --- credit ------------------------------------------------------------------------------------------------

    def _group_weights(self, update: Update) -> Mapping[int, float]:
        """Select groups round by round as the run did, from its episodes."""
        if self.algo.recipe.select is None:
            return {}
        names: dict[int, str] = {}
        groups: dict[int, list[Trajectory]] = {}
        for stored in self.record.reader.stored(Where(kind="episode", iteration=update.iteration)):
            trajectory = self.record.reader.trajectory(stored)
            names[id(trajectory)] = stored.session.id
            groups.setdefault(trajectory.group_id, []).append(trajectory)
        left = list(groups.values())

        def more(drawn: list[Trajectory], missing: int) -> int:
            """Add the missing groups in a stream, in other modes always ``tasks_per_iteration``."""
            count = missing if self.record.stream else self.algo.settings.tasks_per_iteration
            if not left:
                raise SelectionError("more groups are needed than were recorded")
            drawn.extend(trajectory for group in left[:count] for trajectory in group)
            del left[:count]
            return 0

        try:
            experience = cast(Sampled, self.algo.buffer.producer).episodes.choose(update.iteration, more)
        except (SelectionError, EpisodesFail) as error:
            self._note(f"iteration {update.iteration + 1}: {error}")
            return {}
        if others := set(update.sessions) - {names[id(trajectory)] for trajectory in experience.chosen}:
            self._note(f"iteration {update.iteration + 1}: {min(others)} was trained on, but would not be chosen")
        return experience.weights

    def _compare_credit(self, rows: Sequence[Row], sessions: Sequence[str]) -> None:
        """Note steps with different credit, the largest difference first; score tokens before they are trained on."""
        if self.tokens is not None:
            self.tokens.before(rows, sessions)
        update = self._update
        assert update is not None
        recorded = self.record.credit(update)
        records = batch_records(update.iteration, update.number or 0, rows, sessions)
        found = {(row.session, row.ordinal): row for row in records if isinstance(row, Credit)}
        unequal = [key for key in {**recorded, **found} if recorded.get(key) != found.get(key)]
        unequal.sort(key=lambda key: (-_distance(recorded.get(key), found.get(key)), key))
        self._credit = [
            f"{key[0]} step {key[1] + 1}: {_worth(recorded.get(key))} recorded, {_worth(found.get(key))} again"
            for key in unequal
        ]

    # --- weights -----------------------------------------------------------------------------------------------

    def _compare_state(self, iteration: int, folder: Path) -> None:
        saved, counters = load_state(folder)
        state = flatten(self.algo.learner_group.full_state())
        lines = list(differing(state, flatten(saved)))
        if (mine := self.algo.policy_version) != counters["policy_version"]:
            lines.append(f"policy_version: {counters['policy_version']} saved, {mine} again")
        if (memory := self.algo.memory) is not None:
            saved_memory = load_part(folder, MEMORY)
            if json.loads(json.dumps(memory.to_json())) != saved_memory:
                lines.append(f"{MEMORY}: the state of the credit function differs from the saved one")
        if not lines:
            self.equal.append(iteration)
            tensors = sum(torch.is_tensor(value) for value in state.values())
            self.say(f"checkpoint {iteration}: {tensors} tensors equal bit for bit")
            return
        self.say(f"checkpoint {iteration}: {len(lines)} of {len(state)} parts of the learner's state differ")
        for line in lines:
            self._note(f"checkpoint {iteration}: {line}")

    def _note(self, line: str) -> None:
        self.differences.append(line)
        if len(self.differences) <= SHOWN:
            self.say(f"  {line}")


def _worth(credit: Credit | None) -> str:
    if credit is None:
        return "nothing"
    value = "" if credit.value is None else f" and value {credit.value:.6g}"
    return f"advantage {credit.advantage:.6g}{value}"


def _distance(one: Credit | None, other: Credit | None) -> float:
    if one is None or other is None:
        return float("inf")
    return abs(one.advantage - other.advantage)


def differing(state: Mapping[str, Any], saved: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for every part of two flat states that differs in any bit."""
    for name in sorted({**state, **saved}):
        if name not in state or name not in saved:
            yield f"{name}: only in the {'replay' if name in state else 'checkpoint'}"
        elif not torch.is_tensor(mine := state[name]):
            if json.loads(json.dumps(mine)) != saved[name]:
                yield f"{name}: {saved[name]} saved, {mine} again"
        elif not torch.equal(mine := mine.cpu(), theirs := saved[name]):
            largest = (
                float((mine.double() - theirs.double()).abs().max()) if mine.shape == theirs.shape else float("nan")
            )
            yield f"{name}: largest difference {largest:.2g} of {float(theirs.double().abs().max()):.2g}"
