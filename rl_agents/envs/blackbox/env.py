"""A black-box agent as a `gymnasium.Env` over text: its requests are the observations.

`reset` starts the agent and waits for its first request. `step` answers a request and waits for the next one or for the
agent's end. So all code for text environments can act as the model of an agent: a search that returns to a state by
giving the recorded answers to a new agent, the measurement of lengths. Plain rollouts use
`rl_agents.rollout.blackbox` instead.
"""

from __future__ import annotations

import queue
from dataclasses import replace
from typing import Any

from rl_agents.envs.base import part
from rl_agents.envs.blackbox import SPEC
from rl_agents.envs.blackbox.agent_server import AgentRequest, Run, agent_server
from rl_agents.envs.blackbox.histories import History
from rl_agents.envs.gymnasium_adapter import LibraryEnv
from rl_agents.envs.options import AgentKeys
from rl_agents.envs.stateful import StepResult
from rl_agents.errors import AgentFailed, InputError
from rl_agents.gateway.process_supervisor import AgentEnd
from rl_agents.gateway.results import NO_REWARD, AgentResult
from rl_agents.web.errors import ApiError

#: Seconds of waiting beyond the agent's own time limit.
PATIENCE_S = 30.0


class BlackboxEnv(LibraryEnv):
    """One agent's run per episode.

    ``info`` has ``anchor`` (equal for equal histories), the parts of the request (`histories.Turn`) and, at the end,
    those of the agent's result: ``success``, ``metrics``, ``references``, ``points``, ``evidence``. Rewards are those
    that the agent sent over HTTP since the last request and, at the end, its result's.

    Raises:
        AgentFailed, InputError: from `reset` and `step`.
    """

    entry = SPEC

    def __init__(self, options: AgentKeys | None = None, max_turns: int = 0) -> None:
        self.options: AgentKeys = options or self.entry.options()
        self.max_turns = max_turns or self.entry.max_turns
        self.agent = part(self.entry, "agents", "load_agent")(self.options)
        self._run: Run | None = None
        self._request: AgentRequest | None = None
        self._history = History()
        self._rewarded = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start the agent on ``options["task_id"]``, or on a training task drawn with ``seed``."""
        self.close()
        task_id = self.draw(seed, options, lambda: part(self.entry, "tasks", "task_ids")("train", self.options))
        task = part(self.entry, "tasks", "task_payload")(task_id, self.options, self.max_turns)
        self._history, self._rewarded = History(self.options.reasoning == "as_sent"), False
        self._run = agent_server().start(self.agent, task, seed or 0, self.options.agent_timeout_s)
        event = self._next(self._run)
        if isinstance(event, AgentEnd):
            raise AgentFailed(event.error or "the agent ended without a request to the model")
        turn = self._history.turn(event.call)
        return turn.observation, {**turn.info(), "task_id": task_id}

    def step(self, action: str) -> StepResult:
        """Answer the request with the policy's whole response.

        Raises:
            RuntimeError: before `reset`, or after the agent's end.
        """
        run, request = self._run, self._request
        if run is None or request is None:
            raise RuntimeError("blackbox: step() without a request that waits; call reset() first")
        agent_server().reply(request, self._history.answer(request.call, action))
        event, cut = self._next(run), False
        while isinstance(event, AgentRequest) and self._history.answered >= self.max_turns:
            cut = True
            refusal = f"the session is over: an episode has {self.max_turns} calls (max_turns)"
            agent_server().reply(event, ApiError(403, refusal, "max_turns"))
            event = self._next(run)
        reward = self._reported(run)
        if isinstance(event, AgentEnd):
            return self._ended(event, reward, cut)
        turn = self._history.turn(event.call)
        return turn.observation, reward, False, False, turn.info()

    def close(self) -> None:
        """End the agent, if one is running."""
        run, self._run, self._request = self._run, None, None
        if run is not None:
            agent_server().stop(run)

    def _next(self, run: Run) -> AgentRequest | AgentEnd:
        try:
            event = run.events.get(timeout=self.options.agent_timeout_s + PATIENCE_S)
        except queue.Empty:  # it does not end when it is canceled, or blocks the event loop
            limit = self.options.agent_timeout_s
            late = f"within env.agent_timeout_s={limit:g} and {PATIENCE_S:g} s more"
            raise AgentFailed(f"env={self.entry.name}: its agent neither asked nor ended {late}") from None
        if isinstance(event, InputError):
            raise event
        self._request = event if isinstance(event, AgentRequest) else None
        return event

    def _reported(self, run: Run) -> float:
        """Return the sum of new rewards that the agent sent over HTTP."""
        total = 0.0
        while not run.rewards.empty():
            total, self._rewarded = total + run.rewards.get(), True
        return total

    def _ended(self, end: AgentEnd, reward: float, cut: bool) -> StepResult:
        self.close()
        result, cut = end.result or AgentResult(), cut or end.timed_out
        if not cut and (end.error or not (self._rewarded or result.reward is not None)):
            if self.options.error_reward is None:
                raise AgentFailed(end.error or NO_REWARD)
            result = replace(result, reward=self.options.error_reward, success=False)
        info: dict[str, Any] = {"metrics": dict(result.metrics), "references": result.references}
        info |= {"points": result.points} | ({} if result.success is None else {"success": result.success})
        info |= {} if result.evidence is None else {"evidence": result.evidence}
        truncated = cut or result.truncated
        return "the agent has ended", reward + (result.reward or 0.0), not truncated, truncated, info


make = BlackboxEnv
