"""CircuitDecoding as a `gymnasium.Env` over text (T3, appendix C.1 and C.3).

An episode is at most ten turns of the agent (the released code allows 14). Reward is the exact match of the final
answer (0 or 1), given on the turn that answers; an episode without an answer earns 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rl_agents.envs.circuit_decoding.prompts import (
    answer_instruction,
    answer_text,
    first_observation,
    malformed_observation,
    output_observation,
    parse_action,
    query_text,
    read_answer,
)
from rl_agents.envs.circuit_decoding.rules import consistent, output, progresses, survivors, total
from rl_agents.envs.circuit_decoding.spec import SPEC, CircuitDecodingOptions
from rl_agents.envs.circuit_decoding.tasks import Task, find_task, task_ids
from rl_agents.envs.stateful import StatefulEnv, StepResult, observations
from rl_agents.envs.tags import TaggedAction


@dataclass(frozen=True, slots=True)
class GameState:
    """All that changes in an episode; immutable, so a snapshot is a reference to it.

    Attributes:
        survivors: for every hidden circuit the candidates (positions) that agree with all outputs so far.
        wasted_queries: queries that removed no candidate.
        right: circuits that the answer named rightly.
    """

    task: Task
    survivors: tuple[tuple[int, ...], ...]
    turns: int = 0
    wasted_queries: int = 0
    right: int = 0
    done: bool = False

    @property
    def success(self) -> bool:
        """Every circuit was named rightly."""
        return self.right == len(self.task.hidden)


class CircuitDecodingEnv(StatefulEnv[GameState, CircuitDecodingOptions]):
    """Identify hidden Boolean circuits from their outputs.

    ``info`` holds ``task_id``, ``success``, ``valid``, ``anchor`` (the candidates and who survives for which circuit:
    what can be known so far), ``progress`` (the sum of surviving candidates decreased; None before the first turn and
    when the response was malformed), ``query``, ``references`` (the answer), and ``metrics``: ``turns``, ``survivors``
    (their sum), ``wasted_queries``, ``circuits_right`` (a share).
    """

    observation_space = observations(16384)
    registered = SPEC

    def __init__(self, options: CircuitDecodingOptions | None = None, max_turns: int = 0) -> None:
        super().__init__(options, max_turns)
        self._train_ids = task_ids("train", self.options)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start ``options["task_id"]``, or a train task drawn with ``seed``.

        Raises:
            InputError: unknown task id.
        """
        task = find_task(self._draw_task(seed, options, lambda: self._train_ids))
        self._state = GameState(task, survivors(task.tables, len(task.hidden), []))
        return first_observation(task, self.options.prompt), self._info(self._state, valid=True, progress=None)

    def step(self, action: str) -> StepResult:
        """Play one turn with the agent's whole response; see `parse_action` for how it is read.

        Raises:
            RuntimeError: before `reset`, or after the episode has ended.
        """
        state = self.state
        parsed = parse_action(action, state.task)
        if parsed.kind == "answer":
            return self._answer(state, parsed.content)
        if parsed.kind == "interact":
            return self._query(state, parsed.content[0], parsed.content[1:])
        return self._reject(state, parsed)

    @property
    def answer_instruction(self) -> str:
        """What the agent is told when its next turn must answer."""
        return answer_instruction(self.options.prompt)

    def _answer(self, state: GameState, content: str) -> StepResult:
        chosen = read_answer(content, state.task, self.options.prompt)
        right = sum(c == h for c, h in zip(chosen, state.task.hidden, strict=False))
        new = replace(state, right=right)
        possible = bool(chosen) and all(c in s for c, s in zip(chosen, state.survivors, strict=True))
        reward = float(new.success) if self.options.reward == "exact" else right / len(state.task.hidden)
        observation = "correct" if new.success else "wrong"
        return self._end_turn(new, observation, reward, valid=True, progress=possible, terminated=True)

    def _query(self, state: GameState, label: str, bits: str) -> StepResult:
        task, circuit = state.task, state.task.labels.index(label)
        value = output(task.tables[task.hidden[circuit]], bits)
        kept = consistent(task.tables, state.survivors[circuit], bits, value)
        after = (*state.survivors[:circuit], kept, *state.survivors[circuit + 1 :])
        progress = progresses(state.survivors, after)
        new = replace(state, survivors=after, wasted_queries=state.wasted_queries + (not progress))
        observation = output_observation(label, bits, value, self.options.prompt)
        query = query_text(label, bits, self.options.prompt)
        return self._end_turn(new, observation, valid=True, progress=progress, query=query)

    def _reject(self, state: GameState, parsed: TaggedAction) -> StepResult:
        return self._end_malformed(state, malformed_observation(parsed, state.task, self.options.prompt))

    def _info(self, state: GameState, *, valid: bool, progress: bool | None) -> dict[str, Any]:
        task = state.task
        known = " | ".join(
            f"{label} {' '.join(str(c + 1) for c in candidates)}"
            for label, candidates in zip(task.labels, state.survivors, strict=True)
        )
        return {
            "task_id": task.task_id,
            "success": state.success,
            "valid": valid,
            "progress": progress,
            "references": [answer_text(task, task.hidden, self.options.prompt)],
            "anchor": f"{' '.join(task.tables)} : {known}",
            "metrics": {
                "turns": float(state.turns),
                "survivors": float(total(state.survivors)),
                "wasted_queries": float(state.wasted_queries),
                "circuits_right": state.right / len(task.hidden),
            },
        }


make = CircuitDecodingEnv
