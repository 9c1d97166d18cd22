"""The gateway's server with queues instead of an engine, for agents whose model is the caller.

The caller is a search, or any code that runs blackbox as a `TextEnv`. A process has one server, in a thread with its
own event loop. Each episode runs an agent. The caller receives the agent's requests in order, then its end. A
request waits until the caller answers it.
"""

from __future__ import annotations

import asyncio
import math
import queue
import secrets
import threading
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from rl_agents.errors import InputError
from rl_agents.gateway.answers import DeltaLog, PendingRequest
from rl_agents.gateway.calls import GatewayLimits, ModelAnswer, ModelCall, RequestIdentity
from rl_agents.gateway.gateway import Gateway
from rl_agents.gateway.process_supervisor import Agent, AgentClient, AgentEnd
from rl_agents.gateway.server import serving
from rl_agents.web.errors import ApiError, bad_request

T = TypeVar("T")
#: Seconds until the server must listen, and until a stopped agent must have ended.
START_S, STOP_S = 30.0, 20.0


@dataclass(eq=False, kw_only=True)
class AgentRequest(PendingRequest):
    """A request that waits for the caller. ``task`` belongs to the server's event loop."""

    number: int = 0
    prompt_tokens: int = 0
    deltas: DeltaLog = field(default_factory=lambda: DeltaLog(ended=True))  # whole answers only


@dataclass(eq=False)
class Run:
    """One agent's run.

    Attributes:
        events: its requests and, last, its end, or why it cannot be started.
        rewards: received over HTTP and not read yet.
        recent: requests by digest, to recognize retries.
        closed: why no further request is served; empty while requests are served.
    """

    session: str
    key: str
    events: queue.SimpleQueue[AgentRequest | AgentEnd | InputError] = field(default_factory=queue.SimpleQueue)
    rewards: queue.SimpleQueue[float] = field(default_factory=queue.SimpleQueue)
    recent: dict[str, AgentRequest] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None
    closed: str = ""

    def ask(self, call: ModelCall, identity: RequestIdentity) -> AgentRequest:
        """Return the request, or the earlier one if this is its retry.

        Raises:
            ApiError: 403 after the end, 400 for several answers at once.
        """
        earlier = self.recent.get(identity.digest)
        if earlier is not None and (identity.retry > 0 or not earlier.task.done()):
            return earlier
        if self.closed:
            raise ApiError(403, self.closed, "session_closed")
        if call.count != 1:
            raise bad_request(f"n={call.count}: a search gives one answer at a time", "n")
        request = self.recent[identity.digest] = AgentRequest(call=call)
        self.events.put(request)
        return request


class AgentSessionServer:
    """The server and the runs of this process. To the gateway's routes it is a `Gateway`."""

    def __init__(self) -> None:
        self.limits, self.created = GatewayLimits(1 << 30, 1 << 30, logprobs="none"), 0
        self._runs: dict[str, Run] = {}
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="blackbox-agents", daemon=True).start()
        self._server = serving(cast(Gateway, self))
        self.url = self._do(self._server.__aenter__(), START_S)

    def start(self, agent: Agent, task: Mapping[str, Any], seed: int, timeout_s: float) -> Run:
        """Run an agent; its first event follows."""
        run = Run(f"search-{secrets.token_hex(8)}", secrets.token_urlsafe(24))
        given = AgentClient(run.session, run.key, self.url, task, seed)
        self._do(self._begin(run, agent, given, timeout_s), STOP_S)
        return run

    def reply(self, request: AgentRequest, answer: ModelAnswer | ApiError) -> None:
        """Answer or refuse a request."""
        self._loop.call_soon_threadsafe(_settle, request, answer)

    def stop(self, run: Run) -> None:
        """End an agent that may still be running, and all processes that it has started."""
        self._do(self._end(run), STOP_S)

    def session_of(self, key: str) -> str:
        return next(
            (run.session for run in self._runs.values() if secrets.compare_digest(run.key.encode(), key.encode())), ""
        )

    def begin(self, session: str, call: ModelCall, identity: RequestIdentity) -> PendingRequest:
        return self._run(session).ask(call, identity)

    def reward(self, session: str, value: float, *, call: int = 0, why: str = "") -> None:
        if not math.isfinite(value):
            raise bad_request("value: must be a finite number", "value")
        self._run(session).rewards.put(value)

    def finish(self, session: str, reason: str = "") -> None:
        self._run(session).closed = "the agent has ended its session"

    def count_tokens(self, session: str, call: ModelCall) -> int:
        raise ApiError(404, "a search has no tokenizer: tokens are not counted", "not_found")

    def _run(self, session: str) -> Run:
        if session not in self._runs:
            raise ApiError(404, f"there is no session {session!r}", "session_not_found")
        return self._runs[session]

    async def _begin(self, run: Run, agent: Agent, given: AgentClient, timeout_s: float) -> None:
        self._runs[run.session] = run
        run.task = asyncio.create_task(_play(run, agent, given, timeout_s))

    async def _end(self, run: Run) -> None:
        run.closed = "the session is over"
        self._runs.pop(run.session, None)
        if run.task is not None:
            run.task.cancel()
            await asyncio.wait({run.task})
        for request in run.recent.values():
            _settle(request, ApiError(403, run.closed, "session_closed"))

    def _do(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)


async def _play(run: Run, agent: Agent, given: AgentClient, timeout_s: float) -> None:
    end: AgentEnd | InputError = AgentEnd(error="it was stopped")
    try:
        end = await agent.run(given, timeout_s)
    except InputError as error:
        end = error
    except Exception as error:
        end = AgentEnd(error=f"{type(error).__name__}: {error}")
    finally:
        run.closed = run.closed or "the agent has ended"
        run.events.put(end)


def _settle(request: AgentRequest, answer: ModelAnswer | ApiError) -> None:
    if request.task.done():
        return
    if isinstance(answer, ApiError):
        request.task.set_exception(answer)
        request.task.exception()  # the client may be gone
    else:
        request.task.set_result([answer])


_server: list[AgentSessionServer] = []
_lock = threading.Lock()


def agent_server() -> AgentSessionServer:
    """Return the server of this process."""
    with _lock:
        if not _server:
            _server.append(AgentSessionServer())
        return _server[0]
