"""What the agent loop writes to the pool as it samples, and what it finds there again after a crash.

Every sampled response is on its way to the pool before the environment acts on it. When a run continues after a crash,
the episodes of the iteration that was lost begin again with their old seeds. Where prompt and seed are those of a
recorded call, its tokens are taken and nothing is sampled: the environment is brought back by the agent's own words,
and an environment that answers differently this time asks for other prompts, which are sampled as usual.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from copy import copy
from dataclasses import replace

from rl_agents.data.tasks import step_seed
from rl_agents.inference.base import Completion
from rl_agents.store.records import Call, Record
from rl_agents.store.trajectory_store import PoolSink

#: Attempts at one collection of experience at most; those of a resumed run follow.
MAX_ATTEMPTS = 64


class Recorder:
    """Writes to one pool, for one env runner.

    Attributes:
        attempt: how often the present work was asked for before. A call that is made again because its first answer
            was lost gets a name of its own, so that no two answers have one name.
    """

    def __init__(
        self, sink: PoolSink, recorded: Mapping[int, Call] | None = None, pool: str = "", resumes: int = 0
    ) -> None:
        """Begin.

        Args:
            recorded: calls to serve again, by the seed that they were sampled with.
            pool: which pool the sink belongs to, a name for `rl_agents.orchestrator.env_runner_handles.SetRecorder`.
            resumes: how often the run had been resumed.
        """
        self.sink, self.pool, self.resumes = sink, pool, resumes
        self._recorded = recorded or {}
        self._names_of_old = {call.id for call in self._recorded.values()}
        self._waiting: list[Call] = []
        self.attempt = 0

    def at(self, attempt: int) -> Recorder:
        """Return a recorder for work that was asked for ``attempt`` times before; several may be at work at once."""
        recorder = copy(self)  # what waits to be sent is in one list, so that a flush of any sends it
        recorder.attempt = attempt
        return recorder

    def recall(self, prompt_ids: list[int], seed: int) -> Completion | None:
        """Return the call sampled for this prompt and seed before the crash; None: there is none."""
        call = self._recorded.get(seed)
        if call is None or call.prompt_ids != prompt_ids:
            return None
        return Completion(
            call.response_ids, call.logprobs, call.policy_version, call.finish_reason, call.id, call.version_spans
        )

    def record(self, prompt_ids: list[int], completion: Completion, seed: int, parent: int) -> Completion:
        """Send a response on its way to the pool, and return it with the name that it has there.

        Called on an event loop; what comes in one of its rounds is sent with its next.
        """
        name = step_seed(seed, self.attempt) if self.attempt else seed
        call = Call(
            name, parent, prompt_ids, completion.token_ids, completion.logprobs, completion.policy_version,
            completion.finish_reason, seed if name != seed else 0, completion.version_spans,
        )  # fmt: skip
        if not self._waiting:  # an engine answers many requests at once: they go together
            asyncio.get_running_loop().call_soon(self.send)
        self._waiting.append(call)
        return replace(completion, call=name)

    def flush(self, timeout_s: float) -> None:
        """Wait until all that was recorded is on disk; raises `PoolError` or TimeoutError."""
        self.send()
        self.sink.flush(timeout_s)

    def send(self) -> None:
        """Send what waits for the event loop's next round, which there may not be."""
        calls = list(self._waiting)
        self._waiting.clear()
        if calls:
            self.sink.add(*calls)

    def again(self, seeds: Iterable[int]) -> list[Call]:
        if not self._recorded:
            return []
        return [self._recorded[seed] for seed in seeds if seed in self._recorded]

    def name(self, call: int) -> int:
        """Return the name that a gateway's call has in the pool, from its id there: its seed, or a name of old."""
        if not self.attempt or not call or call in self._names_of_old:
            return call
        return step_seed(call, self.attempt)

    def keep(self, calls: Iterable[Call]) -> Future[None]:
        """Send a gateway's calls on their way to the pool; the future is done when they are on disk."""
        return self.sink.add(*map(self._named, calls))

    def _named(self, call: Call) -> Call:
        name, parent = self.name(call.id), self.name(call.parent)
        return replace(call, id=name, parent=parent, seed=call.id if name != call.id else call.seed)


class CallsOnly:
    """A gateway's sink within a run: calls go where the built-in loop's go.

    What else a gateway writes down is for a standalone gateway: a run names its sessions itself, and runs an episode
    whose runner died from its calls.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def add(self, *records: Record) -> Future[None]:
        return self._recorder.keep(record for record in records if isinstance(record, Call))

    def flush(self, timeout_s: float) -> None:
        self._recorder.flush(timeout_s)
