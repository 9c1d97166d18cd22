"""The writer of a store as a Ray actor: env runners on any machine write to one file on the driver's node."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rl_agents.errors import InputError
from rl_agents.store.files import PREDECESSOR_S
from rl_agents.store.records import Record
from rl_agents.store.trajectory_store import PoolError, PoolWriter

logger = logging.getLogger(__name__)

#: Seconds between two attempts to reach a writer that is restarting.
RETRY_S = 0.5
#: Seconds after which an unreachable writer is an error.
UNREACHABLE_S = 120.0
#: Seconds for the writer's process to start and open the file, including `PREDECESSOR_S`.
START_S = 60.0
#: Most records in one call.
MOST = 2048


class PoolActor:
    """Owns the `PoolWriter`. Ray restarts it if it dies, and unconfirmed records are sent again."""

    def __init__(self, path: str) -> None:
        self._problem = ""
        try:
            # Ray may still be ending a predecessor.
            self._writer = PoolWriter(Path(path), commit_rows=MOST, wait_s=PREDECESSOR_S)
        except InputError as error:  # raising would kill the actor and lose the error's type
            self._problem = str(error)

    def problem(self) -> str:
        """Return the problem with the file; empty: none."""
        return self._problem

    def add(self, parts: Sequence[Sequence[Record]]) -> list[str]:
        """Write the parts that were added together.

        Returns:
            When they are on disk, for every part why it cannot be stored; empty: it is stored.

        Raises:
            PoolError: nothing can be stored any more.
        """
        if self._problem:
            raise PoolError(self._problem)
        problems = [future.exception() for future in [self._writer.add(*part) for part in parts]]
        for problem in problems:
            if isinstance(problem, PoolError):
                raise problem
        return [str(problem or "") for problem in problems]

    def pid(self) -> int:
        return os.getpid()

    def close(self) -> None:
        if not self._problem:
            self._writer.close()


def start_pool_actor(path: Path, timeout_s: float = START_S) -> Any:
    """Start the writer on this machine and wait until it has the file.

    Args:
        timeout_s: for the whole start, with the seconds that another writer has to release the file.

    Raises:
        InputError: another process writes to the file, it is not a store, or it cannot be created.
        PoolError: the writer died, or did not answer within ``timeout_s``.
    """
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor = ray.remote(PoolActor).options(
        num_cpus=0, max_restarts=-1, max_concurrency=64, scheduling_strategy=here
    ).remote(str(path))  # fmt: skip
    try:
        problem = ray.get(actor.problem.remote(), timeout=timeout_s)
    except RayError as error:
        ray.kill(actor)
        late = isinstance(error, GetTimeoutError)
        reason = f"did not start within {timeout_s:g} s" if late else f"died: {str(error).strip().splitlines()[0]}"
        raise PoolError(f"{path}: the pool's writer (actor {actor._actor_id.hex()}) {reason}") from None
    if problem:
        ray.kill(actor)
        raise InputError(problem)
    return actor


class RemotePool:
    """A `rl_agents.store.trajectory_store.PoolSink` that sends its records in order until a `PoolActor` confirms them.

    Writing twice leaves one row, so records can be sent again if the writer dies before it answers.
    """

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._waiting: queue.SimpleQueue[tuple[tuple[Record, ...], Future[None]] | None] = queue.SimpleQueue()
        self._error: PoolError | None = None
        self._refused = 0
        self._thread = threading.Thread(target=self._send_all, name="pool", daemon=True)
        self._thread.start()

    def add(self, *records: Record) -> Future[None]:
        """Send records; the future is done when they are on disk, or has the error of `PoolWriter.add`."""
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()  # sent records cannot be canceled
        self._waiting.put((records, future))
        return future

    def flush(self, timeout_s: float) -> None:
        """See `PoolSink.flush`."""
        self.add().result(timeout_s)

    def close(self) -> None:
        """Send the remaining records; the actor stays alive."""
        self._waiting.put(None)
        self._thread.join(UNREACHABLE_S)

    def _send_all(self) -> None:
        over = False
        while not over:
            parts = [self._waiting.get()]
            while not self._waiting.empty() and sum(len(part[0]) for part in parts if part) < MOST:
                parts.append(self._waiting.get())
            over = None in parts
            work = [part for part in parts if part is not None]
            problems = self._send([records for records, _ in work])
            for (_, future), problem in zip(work, problems, strict=True):
                future.set_result(None) if problem is None else future.set_exception(problem)

    def _send(self, parts: list[tuple[Record, ...]]) -> Sequence[Exception | None]:
        """Send until the writer answers; return the error of every part."""
        deadline = time.monotonic() + UNREACHABLE_S
        while self._error is None:
            try:
                reasons = ray.get(self._actor.add.remote(parts), timeout=UNREACHABLE_S)
                for reason in filter(None, reasons):  # the actor's log is not shown
                    self._refused += 1
                    logger.error("%s (%d so far)", reason, self._refused)
                return [InputError(reason) if reason else None for reason in reasons]
            except ray.exceptions.RayTaskError as error:
                self._error = PoolError(str(error.cause))
            except RayError as error:  # the writer is restarting
                if time.monotonic() > deadline:
                    reason = str(error).strip().splitlines()[0]
                    self._error = PoolError(f"the pool's writer did not answer within {UNREACHABLE_S:g} s: {reason}")
            time.sleep(RETRY_S)
        logger.error("%s", self._error)
        return [self._error] * len(parts)
