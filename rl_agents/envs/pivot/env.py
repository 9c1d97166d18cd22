"""Pivot as a `gymnasium.Env` over text: an expert's state, one action, and the verifier's score as reward.

No action is executed. The verifier decides if it is acceptable where the expert acted (PivotRL, equation 6). So an
episode has one turn, and only the trace is needed.
"""

from __future__ import annotations

import string
from collections.abc import Awaitable
from typing import Any

import gymnasium
from gymnasium.spaces import Text

from rl_agents.envs.pivot import PivotOptions
from rl_agents.envs.pivot.tasks import PivotSet, load_pivots
from rl_agents.envs.stateful import StepResult, observations
from rl_agents.errors import unknown
from rl_agents.rewards.verifiers import Verdict, assessed, exact_match
from rl_agents.traces.turns import Turn


class PivotEnv(gymnasium.Env[str, str]):
    """One turn from a state of an expert trace."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  (gymnasium's own declaration)
    observation_space = observations(1 << 20)
    action_space = Text(max_length=1 << 18, min_length=0, charset=string.printable)
    awaited = True  # if the verifier has a judge

    def __init__(self, options: PivotOptions | None = None, max_turns: int = 0) -> None:
        self._pivots: PivotSet = load_pivots(options or PivotOptions())
        self._turn: Turn | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin at the turn ``options["task_id"]``, or at a train turn drawn with ``seed``."""
        super().reset(seed=seed)
        task_id = (options or {}).get("task_id")
        if task_id is None:
            task_id = self._pivots.train[int(self.np_random.integers(len(self._pivots.train)))]
        if task_id not in self._pivots.turns:
            raise unknown("pivot task", task_id, [next(iter(self._pivots.turns))])
        turn = self._turn = self._pivots.turns[task_id]
        info = {
            "task_id": task_id,
            "anchor": task_id,
            "messages": list(turn.messages),
            "tools": [tool.to_openai() for tool in turn.tools],
        }
        last = turn.messages[-1]  # for people; the agent reads all messages
        return f"[{last['role']}] {last['content']}", info

    def step(self, action: str) -> Any:
        """Score the agent's whole response.

        Returns:
            The turn's result, or a coroutine that returns it if a served judge has to be asked.
        """
        turn, self._turn = self._turn, None
        if turn is None:
            raise RuntimeError("Pivot: step() without a state; call reset() first")
        scored = assessed(self._pivots.verifier, turn, action)
        return self._result(turn, action, scored) if isinstance(scored, Verdict) else self._judged(turn, action, scored)

    async def _judged(self, turn: Turn, action: str, scored: Awaitable[Verdict]) -> StepResult:
        return self._result(turn, action, await scored)

    def _result(self, turn: Turn, action: str, verdict: Verdict) -> StepResult:
        info = {
            "task_id": turn.turn_id,
            "success": verdict.score >= 1.0,
            "valid": not verdict.reason.startswith("malformed"),
            "references": [turn.text],
            "metrics": {
                "score": verdict.score,
                "exact": float(exact_match(turn, action)),
                "judge_failed": float(verdict.judge_failed),
            },
        }
        return verdict.reason, verdict.score, True, False, info


make = PivotEnv
