"""What a training run writes to its pool, and how it continues from it (docs/reference/pool.md).

Env runners write every call as it is sampled (`rl_agents.rollout.recording`). The driver adds the rest: the episodes
as they come back, what each update trains on, the credit of its steps, and checkpoints. A resumed run is noted in
the pool; what had been done after its checkpoint no longer counts, and the calls that were sampled there are handed to
the runners, which serve them again.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray
from ray.exceptions import RayError

from rl_agents.config import Settings
from rl_agents.config.options import keys_of
from rl_agents.config.sections import EngineKeys, ReportKeys
from rl_agents.data.samples import Row
from rl_agents.data.step_table import step_spans
from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.learner.training_data import TokenLosses
from rl_agents.orchestrator.env_runner_handles import SetRecorder
from rl_agents.store.actor import UNREACHABLE_S, RemotePool, start_pool_actor
from rl_agents.store.files import PREDECESSOR_S
from rl_agents.store.reader import PoolReader
from rl_agents.store.records import (
    SETTINGS,
    BatchRow,
    Call,
    Credit,
    Event,
    SessionKind,
    TokenLoss,
    call_record,
    outcome_record,
    session_record,
    session_records,
)
from rl_agents.store.schema import load_text
from rl_agents.store.trajectory_store import PoolError, PoolWriter

#: Seconds that a checkpoint waits until the store is on disk, once the store's writer runs.
FLUSH_S = 60.0
#: Keys that do not change the policy: a run that is resumed with others reuses recorded calls.
NEUTRAL = {
    *keys_of(ReportKeys), *keys_of(EngineKeys), "model", "iterations", "num_env_runners", "sample_timeout_s",
    "env_timeout_s", "env_start_timeout_s", "env_concurrency", "max_failed_share", "num_learners", "gpus_per_learner",
    "learner_sharding", "learner_nodes", "learner_timeout_s", "tokens_per_microbatch", "prefix_sharing",
    "sequence_packing", "activation_checkpointing", "judge_url", "judge_key_env", "judge_timeout_s",
}  # fmt: skip


class RunPool:
    """The pool of one run, as its driver writes it.

    Attributes:
        actor: that writes where there are env runner actors; None: this process writes.
        resumes: how often the run was resumed.
        id: of the run, which its checkpoints name; empty before it has begun.
    """

    def __init__(self, path: Path, settings: Settings) -> None:
        """Open the pool, or begin one.

        Raises:
            InputError: another process writes to it, or it is no pool.
            PoolError: its writer's process does not start.
        """
        self.path, self._settings, self._opening = path, settings, uuid.uuid4().hex
        self.actor = start_pool_actor(path) if settings.num_env_runners else None
        self._writer = (
            PoolWriter(path, commit_s=0.05, commit_rows=4096, wait_s=PREDECESSOR_S)
            if self.actor is None
            else RemotePool(self.actor)
        )
        self._unconfirmed: list[Step] = []
        with PoolReader(path) as reader:
            events = reader.events()
        self.resumes = sum(event.kind == "resumed" for event in events)
        self.id: str = next((event.facts.get("id", "") for event in events if event.kind == "run"), "")

    def begin(self) -> None:
        self.id = uuid.uuid4().hex
        run = {name: getattr(self._settings, name) for name in ("algo", "env", "seed", "model")}
        self._writer.add(Event("run", 0, {"id": self.id, **run, SETTINGS: self._settings.to_dict()}))
        self.flush()

    def resumed(self, iteration: int) -> None:
        """The run continues after ``iteration`` completed ones; nothing that was done later counts."""
        self.resumes += 1
        self._writer.add(Event("resumed", iteration, {SETTINGS: self._settings.to_dict()}))
        self.flush()

    def calls_since(self, policy_version: int) -> dict[int, Call]:
        """Return the calls that these or later weights sampled under the present keys, by their sampling seed."""
        with PoolReader(self.path) as reader:
            found = reader.calls(None, "policy_version >= ? AND number > ?", policy_version, last_change(reader))
            return {call.sampling_seed: call for call in found}

    def recording(self, recorded: Mapping[int, Call]) -> SetRecorder:
        """Return what has env runners write to the pool, and serve ``recorded`` again."""
        if self.actor is None:
            return SetRecorder(lambda: self._writer, recorded, self.resumes, self._opening)
        return SetRecorder(partial(RemotePool, self.actor), ray.put(recorded), self.resumes, self._opening)

    def add_sessions(self, iteration: int, trajectories: Sequence[Trajectory], update: int | None = None) -> None:
        """Write episodes, or the siblings that the ``update``-th update of a search trains on.

        Episodes of a group begin with one chat, which is written once (see `rl_agents.traces.files.pool_records`).
        """
        kind: SessionKind = "episode" if update is None else "sample"
        chats: dict[int, Any] = {}
        for name, t in zip(self.names(iteration, trajectories, update), trajectories, strict=True):
            outcomes = (outcome_record(step, name, ordinal, step.call) for ordinal, step in enumerate(t.steps))
            session = session_record(t, name, kind=kind, iteration=iteration, env=self._settings.of(t.task_id).env)
            chat = t.facts.get("chat")
            if chat and chats.get(t.group_id) == chat:
                session = replace(session, facts={key: fact for key, fact in t.facts.items() if key != "chat"})
            chats.setdefault(t.group_id, chat)
            self._writer.add(*outcomes, session)  # one by one: a record that cannot be stored costs its session only
        if self.actor is not None:
            self._unconfirmed += [step for trajectory in trajectories for step in trajectory.steps]

    def add_experts(self, iteration: int, dialogues: Sequence[Trajectory], update: int = 0) -> list[str]:
        """Write the demonstrated dialogues of an update; return the names of their sessions."""
        names = [f"i{iteration + 1}.u{update}.e{number}.r{self.resumes}" for number in range(len(dialogues))]
        where: Any = {"kind": "expert", "iteration": iteration, "env": self._settings.env}
        for name, dialogue in zip(names, dialogues, strict=True):
            self._writer.add(*session_records(dialogue, name, **where))
        return names

    def add_calls(self, trajectories: Sequence[Trajectory]) -> None:
        """Write the calls of episodes that were run ahead, those that an env runner may not have written."""
        self._writer.add(*(call_record(step, step.call) for t in trajectories for step in t.steps if step.call))

    def confirm(self, on_disk: bool) -> None:
        """Env runners have written their calls; those of one that died on the way are written from here.

        Args:
            on_disk: all of them have.
        """
        if not on_disk:
            self._writer.add(*(call_record(step, step.call) for step in self._unconfirmed if step.call))
        self._unconfirmed.clear()

    def names(self, iteration: int, trajectories: Sequence[Trajectory], update: int | None = None) -> list[str]:
        """Name sessions: iteration from 1, in a search's samples the update, group, member; and the resumption."""
        place = f"i{iteration + 1}." if update is None else f"i{iteration + 1}.u{update}."
        again = f".r{self.resumes}" if self.resumes else ""
        return [f"{place}g{trajectory.group_id}.m{trajectory.member}{again}" for trajectory in trajectories]

    def add_batch(self, iteration: int, rows: Sequence[Row], names: Sequence[str], update: int | None = None) -> None:
        """Write `batch_records` of an update, the ``update``-th of an iteration of a search."""
        self._writer.add(*batch_records(iteration, update or 0, rows, names))

    def add_token_losses(self, iteration: int, losses: TokenLosses, names: Sequence[str], update: int = 0) -> None:
        """Write what each loss component added at the tokens of an update; ``names`` are as in `batch_records`."""
        for (trajectory, step), parts in losses.items():
            places = (iteration, update, names[trajectory], step)
            self._writer.add(*(TokenLoss(*places, *part) for part in parts.items() if names[trajectory]))

    def checkpoint(self, iteration: int) -> None:
        """A checkpoint of ``iteration`` completed ones is complete; return when the pool is on disk as well."""
        self._writer.add(Event("checkpoint", iteration))
        self.flush()

    def flush(self) -> None:
        """Return when all that was written is on disk; raises `PoolError`."""
        patience = UNREACHABLE_S + FLUSH_S  # a writer that does not come back is reported before
        try:
            self._writer.flush(patience)
        except TimeoutError:
            raise PoolError(f"{self.path}: the pool's writer did not answer within {patience:g} s") from None

    def close(self) -> None:
        self._writer.close()
        if self.actor is not None:
            with contextlib.suppress(RayError):  # it is dead, and the file whole without it
                ray.get(self.actor.close.remote(), timeout=FLUSH_S)
            ray.kill(self.actor)


def last_change(reader: PoolReader) -> int:
    """Return the row number of the last resume with keys that lead to another policy; 0: none."""
    query = "SELECT number, facts FROM events WHERE kind IN ('run', 'resumed') ORDER BY number"
    keys = [(number, json.loads(load_text(facts)).get(SETTINGS, {})) for number, facts in reader.rows(query)]
    return max((number for (_, old), (number, new) in pairwise(keys) if _leads_elsewhere(old, new)), default=0)


def _leads_elsewhere(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    changed = {name for name in {*old, *new} if old.get(name) != new.get(name)}
    other_lr = "iterations" in changed and new.get("lr_decay")
    return bool(changed - NEUTRAL or other_lr or new.get("tasks_changed") == "accept")


def batch_records(iteration: int, update: int, rows: Sequence[Row], names: Sequence[str]) -> list[BatchRow | Credit]:
    """Return what an update trains on, and the credit of its steps.

    Args:
        rows: with their credit.
        names: of the sessions that ``Row.trajectory`` counts; what has an empty one is in no pool, and excluded.
    """
    rows = [row for row in rows if names[row.trajectory]]
    learned = dict.fromkeys(row.trajectory for row in rows)
    return [
        *(BatchRow(iteration, update, position, names[index]) for position, index in enumerate(learned)),
        *(
            Credit(iteration, update, names[row.trajectory], step, advantage, value)
            for row in rows if row.advantages is not None
            for step, advantage, value in _worth(row)
        ),
    ]  # fmt: skip


def _worth(row: Row) -> Iterator[tuple[int, float, float | None]]:
    """(step, mean advantage, mean value where the critic is read) of every step of a row."""
    assert row.advantages is not None
    for step, *_ in step_spans(row):
        tokens = (row.segments == step) & (row.mask > 0)
        yield step, float(row.advantages[tokens].mean(dtype=np.float64)), _value(row, tokens)


def _value(row: Row, tokens: NDArray[np.bool_]) -> float | None:
    if row.values is None:
        return None
    read = tokens if row.value_mask is None else tokens & (row.value_mask > 0)
    return float(row.values[read if read.any() else tokens].mean(dtype=np.float64))
