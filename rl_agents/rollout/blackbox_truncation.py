"""T3 over black-box agents: the truncation rule looks at every answered call when the next one is asked.

Only then is known that the episode goes on, and whether the turn made progress: an agent that can tell says so in its
next request, as ``metadata: {"progress": "true"}`` (or ``"false"``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from typing import Any

from rl_agents.chat.template import ChatTemplate
from rl_agents.data.trajectory import Step
from rl_agents.gateway.calls import ModelAnswer, ModelCall, Piece, Sent
from rl_agents.gateway.gateway import Gateway, GatewayLimits, SessionTrace
from rl_agents.gateway.process_supervisor import AgentEnd
from rl_agents.inference.base import Engine
from rl_agents.rollout.truncation import Rule, Truncation, TurnFacts
from rl_agents.store.trajectory_store import PoolSink
from rl_agents.web.errors import ApiError

PROGRESS = {"true": True, "false": False}


@dataclass(eq=False)
class Steering:
    """The rule of one session.

    Attributes:
        after: what follows when it fires, see `rl_agents.rollout.agent_loop`.
        turn: after which it fired; 0: it has not.
        stopped: the agent was stopped when it fired.
    """

    rule: str = ""
    after: str = ""
    instruction: str = ""
    state: Rule | None = None
    turn: int = 0
    stopped: bool = False
    _answered: int = 0
    _last: Step | None = None
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def fired(self) -> bool:
        """Whether the episode has been cut."""
        return self.turn > 0

    def answered(self, step: Step) -> None:
        """Take note of a call's answer."""
        self._answered += 1
        self._last = step

    def fires(self, call: ModelCall) -> bool:
        """Look at the last answer, now that the agent goes on from it; once each."""
        step, self._last = self._last, None
        if step is None or self.state is None or self.fired:
            return False
        metadata = call.options.get("metadata") or {}
        progress = PROGRESS.get(str(metadata.get("progress")).lower()) if isinstance(metadata, dict) else None
        if self.state.fires(TurnFacts(self._answered, step.valid, progress, step.action)):
            self.turn = self._answered
        return self.fired

    def stop(self) -> None:
        """End the agent."""
        self.stopped = True
        self._stop.set()

    async def unless_stopped(self, work: Coroutine[Any, Any, AgentEnd]) -> AgentEnd:
        """Return how the agent's run ends; it is ended by `stop`."""
        running = asyncio.create_task(work)
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return running.result() if running.done() else AgentEnd()
        finally:
            stopping.cancel()
            if not running.done():
                running.cancel()
                await asyncio.wait({running})


class WatchedGateway(Gateway):
    """A gateway whose sessions may be cut by a truncation rule."""

    def __init__(
        self, engine: Engine, template: ChatTemplate, limits: GatewayLimits, pool: PoolSink | None = None
    ) -> None:
        super().__init__(engine, template, limits, pool)
        self._watched: dict[str, Steering] = {}
        self.on_call = self._answered

    def watch(self, session: str, truncation: Truncation | None, seed: int, instruction: str) -> Steering:
        """Begin to watch a session; ``truncation`` None: nothing cuts it.

        Args:
            instruction: what the agent's model is told when it must answer.
        """
        steering = Steering()
        if truncation is not None:
            steering = Steering(truncation.name, truncation.after, instruction, truncation.start(seed))
        self._watched[session] = steering
        return steering

    async def close(self, session: str, reason: str = "") -> SessionTrace:
        self._watched.pop(session, None)
        return await super().close(session, reason)

    async def answer(self, session: str, call: ModelCall, sent: Sent) -> list[ModelAnswer]:
        self._look(session, call)
        return await super().answer(session, call, sent)

    def stream(self, session: str, call: ModelCall, sent: Sent) -> AsyncIterator[Piece]:
        self._look(session, call)
        return super().stream(session, call, sent)

    def _answered(self, session: str, step: Step) -> None:
        if session in self._watched:
            self._watched[session].answered(step)

    def _look(self, session: str, call: ModelCall) -> None:
        steering = self._watched.get(session)
        if steering is None or session not in self.sessions or not steering.fires(call):
            return
        if steering.after == "force_answer":
            self.steer(session, steering.instruction)
            return
        steering.stop()
        raise ApiError(410, f"the session was cut by the rule {steering.rule}", "session_over")
