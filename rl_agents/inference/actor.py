"""The Ray actor around an engine. One call carries many requests, and callers share the engine's batches."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_agents.inference.base import Completion, EngineError, EngineSettings, RequestRefused, Sampling
from rl_agents.inference.weight_update_gate import OverlapClock

#: A request on the wire: its id (unique within a client), prompt tokens, sampling.
Request = tuple[int, list[int], Sampling]
#: A reply on the wire: the request's id, and the completion or the error.
Reply = tuple[int, Completion | EngineError]
#: The result of an exchange: replies, and the seconds for which the engine has held back calls for new weights so far.
Answer = tuple[list[Reply], float]

#: Seconds that `EngineActor.serve_batch` waits for a first result before it returns nothing.
MAX_WAIT_S = 1.0
#: Results wait until they are this share of their client's outstanding requests, for at most `LINGER_S`. An exchange
#: costs 2 ms of CPU (as much as a dozen tokens of a tiny model), and requests that arrive together share a prefill.
READY_SHARE = 0.25
LINGER_S = 0.02
#: Seconds without an exchange after which a client counts as dead and its requests are dropped.
CLIENT_LIFETIME_S = 60.0

_NO_WEIGHTS = "restarted, and has not received the last weights yet"


@dataclass
class _Client:
    tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    ready: list[Reply] = field(default_factory=list)
    #: Of the present exchange; set when there is a reply, or when a newer exchange replaces it.
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    last_seen: float = field(default_factory=time.monotonic)

    def add(self, reply: Reply) -> None:
        """Store a reply, and wake the waiting exchange now or soon."""
        self.ready.append(reply)
        if self.enough_ready():
            self.wake.set()
        elif len(self.ready) == 1:
            asyncio.get_running_loop().call_later(LINGER_S, self._flush)

    def enough_ready(self) -> bool:
        """Whether enough replies are ready; ``tasks`` still contains theirs."""
        return len(self.ready) >= max(1.0, READY_SHARE * len(self.tasks))

    def _flush(self) -> None:
        if self.ready:
            self.wake.set()


class EngineActor:
    """Hosts one engine. `InferenceGroup` makes it a Ray actor; `RemoteEngine` talks to it."""

    def __init__(self, settings: EngineSettings, name: str = "engine 0") -> None:
        # Before torch is imported: with more threads than cores a tiny model's step waits in spin barriers.
        os.environ["OMP_NUM_THREADS"] = str(settings.threads)
        from rl_agents.inference.engines import build_engine

        self.name, self._settings = name, settings
        self._clients: dict[str, _Client] = {}
        self._engine: Any = build_engine(settings)
        self._version = 0
        self._busy = OverlapClock()
        self._needs_weights = _was_restarted()

    async def ping(self) -> str:
        """Return ``pong``.

        Raises:
            EngineError: the engine inside has died.
        """
        if dead := getattr(self._engine, "dead", None):
            raise EngineError(f"{self.name}: {dead}")
        return "pong"

    async def apply(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call ``func`` with this actor."""
        result = func(self, *args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    async def serve_batch(self, client_id: str, requests: Sequence[Request]) -> Answer:
        """Take new requests; return all finished ones of this client when there are enough (see `READY_SHARE`).

        Returns no replies after `MAX_WAIT_S`, or when a newer exchange of the same client replaces this one: a client
        may send new requests while it waits. Known requests are not started twice.

        Args:
            client_id: ``<caller>/<anything>``; a new id of the same caller drops the requests of the old one.
            requests: may be empty, to fetch only.
        """
        client = self._client(client_id)
        for request_id, prompt_ids, sampling in requests:
            if request_id not in client.tasks:
                work = self._generate(client, request_id, prompt_ids, sampling)
                client.tasks[request_id] = asyncio.create_task(work)
        client.wake.set()  # an older exchange of this client returns now
        wake = client.wake = asyncio.Event()
        if not client.enough_ready():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(wake.wait(), LINGER_S if client.ready else MAX_WAIT_S)
        if wake is not client.wake:
            return [], self._held_s()
        await asyncio.sleep(0)  # let all replies of the same step arrive
        replies, client.ready = client.ready, []
        for request_id, _ in replies:
            client.tasks.pop(request_id, None)
        client.last_seen = time.monotonic()
        return replies, self._held_s()

    async def load_weights(self, version: int, *packed: Any) -> int:
        """Replace the weights by ``packed`` (all `PackedWeights`, which Ray fetches first); return ``version``.

        Raises:
            EngineError: the weights do not fit the model.
        """
        from rl_agents.inference.weights import unpack

        await self._engine.load_weights(unpack(packed), version)
        self._version, self._needs_weights = version, False
        return version

    async def sleep(self, level: int) -> None:
        """Free the GPU until the next weights arrive; see `VLLMEngine.sleep`."""
        await self._engine.sleep(level)

    async def trust_checkpoint(self) -> None:
        """After a restart, sample from the checkpoint's weights, because no others were ever pushed."""
        self._needs_weights = False

    async def health(self) -> tuple[bool, int]:
        """Return whether the engine may sample, and its version.

        After a restart, and after an update that failed midway, it may not until the last weights are pushed again.

        Raises:
            EngineError: the engine inside has died.
        """
        await self.ping()
        return not (self._needs_weights or getattr(self._engine, "unsound", False)), self._version

    async def place(self) -> tuple[str, float]:
        """Return process and node for error messages, and the seconds that `serve_batch` also returns."""
        import ray

        return f"pid {os.getpid()}, node {ray.util.get_node_ip_address()}", self._held_s()

    async def busy_seconds(self) -> float:
        return self._busy.seconds()

    async def close(self) -> None:
        self._engine.close()

    async def _generate(self, client: _Client, request_id: int, prompt_ids: list[int], sampling: Sampling) -> None:
        reply: Completion | EngineError
        self._busy.begin()
        try:
            if self._needs_weights:
                raise EngineError(_NO_WEIGHTS)
            reply = await self._engine.generate(prompt_ids, sampling)
        except Exception as error:
            kind = RequestRefused if isinstance(error, RequestRefused) else EngineError
            reply = kind(f"{self.name}: {error}")
        finally:
            self._busy.end()
        client.add((request_id, reply))

    def _held_s(self) -> float:
        """Return the seconds for which the engine has held back calls for new weights so far."""
        held = getattr(self._engine, "held", None)
        return held.seconds() if held is not None else 0.0

    def _client(self, client_id: str) -> _Client:
        """Return the client's record; drop clients that it replaces and clients that are silent for long."""
        now = time.monotonic()
        if client_id not in self._clients:
            caller = client_id.rpartition("/")[0]
            for other, record in list(self._clients.items()):
                silent = now - record.last_seen > CLIENT_LIFETIME_S
                if silent or (caller and other.rpartition("/")[0] == caller):
                    for task in self._clients.pop(other).tasks.values():
                        task.cancel()
            self._clients[client_id] = _Client()
        client = self._clients[client_id]
        client.last_seen = now
        return client


def _was_restarted() -> bool:
    """Whether Ray restarted this actor, which then has the checkpoint's weights instead of the last ones."""
    import ray

    return ray.is_initialized() and bool(ray.get_runtime_context().was_current_actor_reconstructed)
