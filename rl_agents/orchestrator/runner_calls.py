"""What the driver asks of env runners, as classes, so that it travels small."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import ray
from ray.exceptions import ObjectLostError

from rl_agents.inference.base import EngineSettings, NoEngine
from rl_agents.inference.client import brief
from rl_agents.inference.weight_sync import Outcome
from rl_agents.rollout.recording import Recorder
from rl_agents.rollout.request_queue import Batch
from rl_agents.store.trajectory_store import PoolSink


class Exchange:
    """Hands a runner batches and fetches answers; see `rl_agents.rollout.request_queue.RequestQueue.exchange`."""

    def __init__(
        self, batches: Sequence[Batch], wait_s: float | None = None, enough: int | None = None,
        drop: Collection[int] = (),
    ) -> None:  # fmt: skip
        self.batches, self.wait_s, self.enough, self.drop = batches, wait_s, enough, drop

    def __call__(self, runner: Any) -> tuple[dict[int, Any], dict[int, int]]:
        """Return the answers by the batches' numbers, and how many jobs are done of those still in progress."""
        return runner.exchange(self.batches, self.wait_s, self.enough, self.drop), runner.in_progress


def lost_task(runner: Any) -> str:
    """Ask a runner; see `TextEnvRunner.lost_task`."""
    task: str = runner.lost_task()
    return task


class SetRecorder:
    """Has a runner record what it samples; one that does so already stays as it is.

    Args:
        sink: makes what it writes to, in the runner's process, once for each pool.
        recorded: what had been sampled before a crash, by seed, or a reference to it.
        resumes: how often the run was resumed.
        pool: a name for what ``sink`` writes to, different for every opening of a pool.
    """

    def __init__(self, sink: Callable[[], PoolSink], recorded: Any, resumes: int, pool: str) -> None:
        self.sink, self.recorded, self.resumes, self.pool = sink, recorded, resumes, pool

    def __call__(self, runner: Any) -> None:
        before: Recorder | None = runner.recorder
        if before is not None and (before.pool, before.resumes) == (self.pool, self.resumes):
            return
        recorded = ray.get(self.recorded) if isinstance(self.recorded, ray.ObjectRef) else self.recorded
        sink = before.sink if before is not None and before.pool == self.pool else self.sink()
        runner.set_recorder(Recorder(sink, recorded, self.pool, self.resumes))


class FlushRecorder:
    """Has a runner wait until what it recorded is on disk."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s

    def __call__(self, runner: Any) -> bool:
        on_disk: bool = runner.flush_recorder(self.timeout_s)
        return on_disk


class SetEngines:
    """Hands engine handles to a runner."""

    def __init__(self, handles: list[Any]) -> None:
        self.handles = handles

    def __call__(self, runner: Any) -> None:
        runner.set_engines(self.handles)


class HostEngine:
    """Has a runner have an engine in its own process (``placement=together``), with these weights.

    Args:
        settings: of the engine; it is built where there is none.
        weights: packed, or a reference to them; None: the checkpoint's.
        version: of the weights.
        number: of the push that brings them; an engine that has had it keeps what it has.
    """

    def __init__(self, settings: EngineSettings, weights: Any, version: int, number: int) -> None:
        self.settings, self.weights, self.version, self.number = settings, weights, version, number

    def __call__(self, runner: Any) -> Outcome:
        """Return what came of it: an exception would end the runner."""
        dead = getattr(runner.engine, "dead", None)
        if dead is not None:
            return Outcome("dead", dead)
        try:
            packed = None
            if self.weights is not None and runner.pushes != self.number:
                packed = ray.get(self.weights)
            if runner.engine is None or isinstance(runner.engine, NoEngine):
                runner.host_engine(self.settings)
            if packed is not None:
                runner.sync_engine(packed, self.version)
                runner.pushes = self.number
        except Exception as error:
            if not runner.pushes and self.weights is not None:  # it would sample from the checkpoint
                runner.set_engine(NoEngine(brief(error)))
            return Outcome("gone" if isinstance(error, ObjectLostError) else "failed", brief(error))
        return Outcome("ok")
