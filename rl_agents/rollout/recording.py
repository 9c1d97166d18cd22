"""Records of the agent loop in the pool, which are served again after a crash.

Every sampled response is sent to the pool before the environment acts on it. If a run continues after a crash, the
episodes of the lost iteration begin again with their seeds. A recorded call with the same prompt and seed replaces
sampling, so that the agent's own actions bring the environment back. If the environment answers differently this time,
prompts differ, and responses are sampled as usual.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from copy import copy
from dataclasses import replace

from rl_agents.data.tasks import step_seed
from rl_agents.data.trajectory import Step, continued
from rl_agents.inference.base import Completion
from rl_agents.store.records import Call, Record
from rl_agents.store.trajectory_store import PoolSink

#: Maximum attempts at one collection of experience; those of a resumed run are counted after them.
MAX_ATTEMPTS = 64


class Recorder:
    """Writes to one pool, for one env runner.

    Attributes:
        attempt: number of earlier attempts at the present work. A call that is repeated because its answer was lost
            gets a new name, so that no two answers share a name.
    """

    def __init__(
        self, sink: PoolSink, recorded: Mapping[int, Call] | None = None, pool: str = "", resumes: int = 0
    ) -> None:
        """Use a sink.

        Args:
            recorded: calls to serve again, by the seed that they were sampled with.
            pool: name of the sink's pool, for `rl_agents.orchestrator.env_runner_handles.SetRecorder`.
            resumes: how often the run has been resumed.
        """
        self.sink, self.pool, self.resumes = sink, pool, resumes
        self._recorded = recorded or {}
        self._names_of_old = {call.id for call in self._recorded.values()}
        self._waiting: list[Call] = []
        self.attempt = 0

    def at(self, attempt: int) -> Recorder:
        """Return a recorder for work with ``attempt`` earlier attempts; several may be used at once."""
        recorder = copy(self)  # they share the list of waiting calls, so that a flush of one sends all
        recorder.attempt = attempt
        return recorder

    def recall(self, prompt_ids: list[int], seed: int) -> Completion | None:
        """Return the call that was sampled for this prompt and seed before the crash, or None."""
        call = self._recorded.get(seed)
        if call is None or call.prompt_ids != prompt_ids:
            return None
        return Completion(
            call.response_ids, call.logprobs, call.policy_version, call.finish_reason, call.id, call.version_spans
        )

    def record(
        self, prompt_ids: list[int], completion: Completion, seed: int, parent: int, before: Step | None = None
    ) -> Completion:
        """Send a response to the pool, and return it with its name there.

        A prompt that continues ``before``, the parent's step, is sent without that beginning, which the pool has.

        Called on an event loop. Calls of one pass of the loop are sent together in the next.
        """
        name = step_seed(seed, self.attempt) if self.attempt else seed
        shared = continued(before, prompt_ids) if parent else 0
        call = Call(
            name, parent, prompt_ids[shared:], completion.token_ids, completion.logprobs, completion.policy_version,
            completion.finish_reason, seed if name != seed else 0, completion.version_spans, shared,
        )  # fmt: skip
        if not self._waiting:  # an engine answers many requests at once, which are sent together
            asyncio.get_running_loop().call_soon(self.send)
        self._waiting.append(call)
        return replace(completion, call=name)

    def flush(self, timeout_s: float) -> None:
        """Wait until all records are on disk; raises `PoolError` or TimeoutError."""
        self.send()
        self.sink.flush(timeout_s)

    def send(self) -> None:
        """Send the waiting calls now, because the event loop may not run again."""
        calls = list(self._waiting)
        self._waiting.clear()
        if calls:
            self.sink.add(*calls)

    def again(self, seeds: Iterable[int]) -> list[Call]:
        if not self._recorded:
            return []
        return [self._recorded[seed] for seed in seeds if seed in self._recorded]

    def name(self, call: int) -> int:
        """Return the name in the pool of a gateway's call, whose id is its seed or an earlier name."""
        if not self.attempt or not call or call in self._names_of_old:
            return call
        return step_seed(call, self.attempt)

    def keep(self, calls: Iterable[Call]) -> Future[None]:
        """Send a gateway's calls to the pool; the future is done when they are on disk."""
        return self.sink.add(*map(self._named, calls))

    def _named(self, call: Call) -> Call:
        name, parent = self.name(call.id), self.name(call.parent)
        return replace(call, id=name, parent=parent, seed=call.id if name != call.id else call.seed)


class CallsOnly:
    """A gateway's sink within a run, which records calls like the built-in loop.

    Other records are for a standalone gateway: a run names its sessions itself, and restores the episode of a lost
    runner from its calls.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def add(self, *records: Record) -> Future[None]:
        return self._recorder.keep(record for record in records if isinstance(record, Call))

    def flush(self, timeout_s: float) -> None:
        self._recorder.flush(timeout_s)
