"""CircuitDecoding as a `gymnasium.Env` over text (T3, appendix C.1 and C.3).

An episode is at most ten turns of the agent (the released code allows 14). Reward is the exact match of the final
answer (0 or 1), given on the turn that answers; an episode without an answer earns 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rl_agents.envs.circuit_decoding import SPEC, CircuitDecodingOptions, prompts, rules
from rl_agents.envs.circuit_decoding.tasks import Task, chosen_settings, find_task, task_ids
from rl_agents.envs.stateful import StepResult, TaggedEnv, observations
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


class CircuitDecodingEnv(TaggedEnv[GameState, CircuitDecodingOptions]):
    """Identify hidden Boolean circuits from their outputs.

    ``info`` holds ``task_id``, ``success``, ``valid``, ``anchor`` (the candidates and who survives for which circuit:
    what can be known so far), ``progress`` (the sum of surviving candidates decreased; None before the first turn and
    when the response was malformed), ``query``, ``references`` (the answer), and ``metrics``: ``turns``, ``survivors``
    (their sum), ``wasted_queries``, ``circuits_right`` (a share).
    """

    observation_space = observations(16384)
    registered = SPEC
    task_ids = staticmethod(task_ids)
    answer_now = prompts.PAPER_ANSWER_NOW
    your_turn = "\nNow it is your turn:"

    def __init__(self, options: CircuitDecodingOptions | None = None, max_turns: int = 0) -> None:
        super().__init__(options, max_turns)
        chosen_settings(self.options)  # sizes that cannot be should say so at once

    def _begin(self, task_id: str) -> tuple[str, GameState]:
        task = find_task(task_id)
        return prompts.first_observation(task, self.options.prompt), GameState(
            task, rules.survivors(task.tables, len(task.hidden), [])
        )

    def _read(self, response: str, state: GameState) -> TaggedAction:
        return prompts.parse_action(response, state.task)

    def _reasons(self) -> dict[str, str]:
        circuits = ", ".join(self.state.task.labels)
        return {
            prompts.NOT_A_QUERY: f"a query must name one circuit and give {rules.NUM_INPUTS} binary inputs, "
            "such as A(1, 0, 1)",
            prompts.UNKNOWN_CIRCUIT: f"there is no such circuit; the circuits are {circuits}",
        }

    def _answer(self, state: GameState, content: str) -> StepResult:
        chosen = prompts.read_answer(content, state.task, self.options.prompt)
        right = sum(c == h for c, h in zip(chosen, state.task.hidden, strict=False))
        new = replace(state, right=right)
        possible = bool(chosen) and all(c in s for c, s in zip(chosen, state.survivors, strict=True))
        reward = float(new.success) if self.options.reward == "exact" else right / len(state.task.hidden)
        observation = "correct" if new.success else "wrong"
        return self._end_turn(new, observation, reward, valid=True, progress=possible, terminated=True)

    def _ask(self, state: GameState, query: str) -> StepResult:
        label, bits = query[0], query[1:]
        task, circuit = state.task, state.task.labels.index(label)
        value = rules.output(task.tables[task.hidden[circuit]], bits)
        kept = rules.consistent(task.tables, state.survivors[circuit], bits, value)
        after = (*state.survivors[:circuit], kept, *state.survivors[circuit + 1 :])
        progress = rules.progresses(state.survivors, after)
        new = replace(state, survivors=after, wasted_queries=state.wasted_queries + (not progress))
        observation = prompts.output_observation(label, bits, value, self.options.prompt)
        asked = prompts.query_text(label, bits, self.options.prompt)
        return self._end_turn(new, observation, valid=True, progress=progress, query=asked)

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
            "references": [prompts.answer_text(task, task.hidden, self.options.prompt)],
            "anchor": f"{' '.join(task.tables)} : {known}",
            "metrics": {
                "turns": float(state.turns),
                "survivors": float(rules.total(state.survivors)),
                "wasted_queries": float(state.wasted_queries),
                "circuits_right": state.right / len(task.hidden),
            },
        }


make = CircuitDecodingEnv
