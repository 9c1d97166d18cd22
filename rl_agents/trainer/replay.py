"""The learner's work of a run again, from its pool alone, and where it differs (docs/reference/pool.md).

Nobody plays. Every update gets the episodes that it had, in their order, with the weights of their groups and the
random numbers of the run. Three things are compared: what every step was worth (advantages, values), what the engine
said about every token with what the weights of that version say, and the learner's state with the checkpoints.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from rl_agents.algorithms import Settings
from rl_agents.data.samples import Row, build_samples
from rl_agents.data.selection import SelectionError
from rl_agents.data.step_table import step_spans
from rl_agents.data.trajectory import Trajectory
from rl_agents.errors import EpisodesFail
from rl_agents.learner.rl_modules import POLICY
from rl_agents.orchestrator.rollout_buffer import Sampled
from rl_agents.store.reader import Where
from rl_agents.store.records import Credit
from rl_agents.trainer.algorithm import AgentAlgorithm, AgentConfig
from rl_agents.trainer.checkpoint import MEMORY, flatten, load_part, load_state
from rl_agents.trainer.replay_record import Record, Update
from rl_agents.trainer.replay_tokens import TokenRecorder
from rl_agents.trainer.run_store import batch_records

#: Beyond which an engine's log-probability of a token is not that of the weights that sampled it: rounding is below.
GAP = {"float32": 0.01}
LOW_PRECISION_GAP = 1.0
#: Differences that are printed in full.
SHOWN = 5


class Replayer(AgentAlgorithm):
    """A run's algorithm without engines and env runners; what its updates are worth is handed to `on_batch`."""

    on_batch: Callable[[Sequence[Row], Sequence[str]], None]
    #: The update's own sessions.
    names: tuple[str, ...]

    @classmethod
    def from_settings(cls, settings: Settings) -> Replayer:
        return cls(config=AgentConfig.from_settings(settings))

    def _start_workers(self) -> None:
        """There are none, and nothing asks for them."""

    def _sessions(self, trajectories: Sequence[Trajectory], *update: int) -> list[str]:
        return list(self.names)

    def _keep_batch(
        self, rows: Sequence[Row], trajectories: Sequence[Trajectory], sessions: Sequence[str], *update: int
    ) -> None:
        self.on_batch(rows, sessions)

    def learn_again(
        self, update: Update, trajectories: Sequence[Trajectory], weights: Mapping[int, float]
    ) -> dict[str, float]:
        """Do one update of the record; what it learns from again is what the memory says."""
        self._iteration, self.names = update.iteration, update.sessions
        return self._learn(trajectories, weights, *(() if update.number is None else (update.number,)))


def replay_settings(settings: Settings) -> Settings:
    """Turn a run's settings into those of its learner alone, in this process.

    Several learners stay, and learners on GPUs: another number of them adds up gradients in another order.
    """
    settings.num_env_runners, settings.engine, settings.lag, settings.stream = 0, "torch", 0, False
    if settings.num_learners == 1 and not settings.gpus_per_learner:
        settings.num_learners = 0
    return settings


@dataclass
class Replay:
    """One replay.

    Attributes:
        say: prints a line.
        differences: found so far, in order.
        foreign: how many of them are tokens whose recorded log-probability is not that of the weights that sampled
            them. Where an engine rounds to 16 bits they are of no account if the weights that come out are right.
        equal: iterations whose checkpoints are equal.
        tokens: writes what every update makes of every token; None: nothing is written.
    """

    algo: Replayer
    record: Record
    say: Callable[[str], None]
    differences: list[str] = field(default_factory=list)
    foreign: int = 0
    equal: list[int] = field(default_factory=list)
    tokens: TokenRecorder | None = None
    _versions: dict[int, list[str]] = field(default_factory=dict)
    _gap: float = 0.0
    _update: Update | None = None
    _credit: list[str] = field(default_factory=list)

    def run(self, start: int, end: int, checkpoints: Mapping[int, Path]) -> bool:
        """Learn again, iteration by iteration; return whether all that was compared is equal.

        Args:
            checkpoints: to compare with, by their completed iterations.
        """
        self._versions = self.record.by_version()
        self.algo.on_batch = self._on_batch
        for iteration in range(start, end):
            self._iteration(iteration)
            if iteration + 1 in checkpoints:
                self._compare_state(iteration + 1, checkpoints[iteration + 1])
        rounded = self.algo.settings.dtype not in GAP and end in self.equal
        return len(self.differences) == (self.foreign if rounded else 0)

    def _iteration(self, iteration: int) -> None:
        updates = [update for update in self.record.updates if update.iteration == iteration]
        self._gap, before = 0.0, len(self.differences)
        sessions = steps = again = 0
        for update in updates:
            trajectories = self.record.trajectories(update.sessions)
            sessions, steps = sessions + len(trajectories), steps + sum(len(t.steps) for t in trajectories)
            again += len(update.again)
            self._learn(update, trajectories)
        found = len(self.differences) - before
        if not updates:
            self.say(f"iteration {iteration}: nothing was learned")
            return
        what = f"{sessions} episodes, {steps} steps" + (f", {again} episodes again" if again else "")
        if updates[0].number is not None:
            what = f"{len(updates)} updates, {sessions} samples"
        how = f"{found} differences" if found else "credit equal"
        gap = f", engine's logprobs within {self._gap:.1g}" if self._gap else ""
        self.say(f"iteration {iteration}: {what}, to version {self.algo.policy_version}: {how}{gap}")

    def _learn(self, update: Update, trajectories: Sequence[Trajectory]) -> None:
        version = self.algo.policy_version
        for name, trajectory in zip(update.sessions, trajectories, strict=True):
            for number, step in enumerate(trajectory.steps):
                newest = max(step.policy_version, *(sampled for sampled, _ in step.version_spans), 0)
                if newest > version:
                    self._note(f"{name} step {number}: sampled by version {newest}, the learner is at {version}")
        self._compare_logprobs(version)
        weights = self._group_weights(update)
        self._update, self._credit = update, []
        metrics = self.algo.learn_again(update, trajectories, weights)
        if self.tokens is not None:
            self.tokens.after(update)
        if metrics.get("actor/skipped_iterations"):
            self._note(f"iteration {update.iteration}: nothing to learn from, and the run learned")
        for line in self._credit:
            self._note(line)

    # --- credit ------------------------------------------------------------------------------------------------

    def _group_weights(self, update: Update) -> Mapping[int, float]:
        """Choose groups again, round by round, as the run did, from what it played."""
        if self.algo.recipe.select is None:
            return {}
        names: dict[int, str] = {}
        groups: dict[int, list[Trajectory]] = {}
        for stored in self.record.reader.stored(Where(kind="episode", iteration=update.iteration)):
            trajectory = self.record.reader.trajectory(stored, raw=True)
            names[id(trajectory)] = stored.session.id
            groups.setdefault(trajectory.group_id, []).append(trajectory)
        left = list(groups.values())

        def more(played: list[Trajectory], missing: int) -> dict[str, float]:
            """A stream hands out as many groups as are missing, other modes always as many as an iteration has."""
            count = missing if self.record.stream else self.algo.settings.tasks_per_iteration
            if not left:
                raise SelectionError("more groups would be needed than were played")
            played.extend(trajectory for group in left[:count] for trajectory in group)
            del left[:count]
            return {"rollout/resampled_episodes": 0.0}

        try:
            experience = cast(Sampled, self.algo.pipeline.producer).episodes.choose(update.iteration, more)
        except (SelectionError, EpisodesFail) as error:
            self._note(f"iteration {update.iteration}: {error}")
            return {}
        if others := set(update.sessions) - {names[id(trajectory)] for trajectory in experience.chosen}:
            self._note(f"iteration {update.iteration}: {min(others)} was learned from, and would not be chosen")
        return experience.weights

    def _on_batch(self, rows: Sequence[Row], sessions: Sequence[str]) -> None:
        if self.tokens is not None:
            self.tokens.before(rows, sessions)
        self._compare_credit(rows, sessions)

    def _compare_credit(self, rows: Sequence[Row], sessions: Sequence[str]) -> None:
        """Note steps that are worth something else, those of the largest difference first."""
        update = self._update
        assert update is not None
        recorded = self.record.credit(update)
        records = batch_records(update.iteration, update.number or 0, rows, sessions)
        found = {(row.session, row.ordinal): row for row in records if isinstance(row, Credit)}
        unequal = [key for key in {**recorded, **found} if recorded.get(key) != found.get(key)]
        unequal.sort(key=lambda key: (-_distance(recorded.get(key), found.get(key)), key))
        self._credit = [
            f"{key[0]} step {key[1]}: {_worth(recorded.get(key))} recorded, {_worth(found.get(key))} again"
            for key in unequal
        ]

    # --- tokens ------------------------------------------------------------------------------------------------

    def _compare_logprobs(self, version: int) -> None:
        """Score what these weights sampled, whenever it is learned from; note a session's first foreign token."""
        names = self._versions.pop(version, [])
        settings = self.algo.settings
        if not names or settings.top_p < 1:  # the engine's are those of the nucleus
            return
        limit = GAP.get(settings.dtype, LOW_PRECISION_GAP)
        trajectories = self.record.trajectories(names)
        rows = [row for row in build_samples(trajectories, settings.rows) if row.mask.any()]
        reported: set[int] = set()
        for row, own in zip(rows, self.algo.learner_group.score(rows, POLICY), strict=True):
            for step, start, length in _sampled_by(row, trajectories[row.trajectory], version):
                gap = np.abs(own[start : start + length] - row.logprobs[start : start + length])
                self._gap = max(self._gap, float(gap.max()))
                if gap.max() > limit and row.trajectory not in reported:
                    reported.add(row.trajectory)
                    at = int(np.argmax(gap > limit))
                    self.foreign += 1
                    self._note(
                        f"{names[row.trajectory]} step {step} token {at}: log-probability "
                        f"{row.logprobs[start + at]:.3f} recorded, {own[start + at]:.3f} by version {version}"
                    )

    # --- weights -----------------------------------------------------------------------------------------------

    def _compare_state(self, iteration: int, folder: Path) -> None:
        saved, counters = load_state(folder)
        state = flatten(self.algo.learner_group.full_state())
        lines = list(differing(state, flatten(saved)))
        if (mine := self.algo.policy_version) != counters["policy_version"]:
            lines.append(f"policy_version: {counters['policy_version']} saved, {mine} again")
        if (memory := self.algo.memory) is not None:
            saved_memory = load_part(folder, MEMORY, self.algo.settings.algo)
            if json.loads(json.dumps(memory.to_json())) != saved_memory:
                lines.append(f"{MEMORY}: what credit remembers is not what was saved")
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


def _sampled_by(row: Row, trajectory: Trajectory, version: int) -> Iterator[tuple[int, int, int]]:
    """Yield (step, first token, tokens) of the row's steps that one version sampled, or began to sample."""
    for number, start, length in step_spans(row):
        step = trajectory.steps[number]
        if step.policy_version == version:
            yield number, start, step.version_spans[0][1] if step.version_spans else length


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
    """Yield a line for every part of two flat states that is not equal bit for bit."""
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
