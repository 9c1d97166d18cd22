"""A scripted player that asks what is sure to remove most candidates: what can be reached in CircuitDecoding."""

from __future__ import annotations

from functools import partial

from rl_agents.envs.circuit_decoding.env import CircuitDecodingEnv, GameState
from rl_agents.envs.circuit_decoding.prompts import answer_text, query_text
from rl_agents.envs.circuit_decoding.rules import best_query, total
from rl_agents.envs.circuit_decoding.spec import SPEC, CircuitDecodingOptions
from rl_agents.envs.stateful import Played
from rl_agents.envs.stateful import play as play_episode


def expert_action(state: GameState, style: str = "paper", max_turns: int = SPEC.max_turns) -> str:
    """Return the action: the best query while something is open and a turn is left to answer, else the answer."""
    decided = total(state.survivors) == len(state.survivors)
    if decided or state.turns + 1 >= max_turns:
        chosen = [candidates[0] for candidates in state.survivors]
        return f"<answer>{answer_text(state.task, chosen, style)}</answer>"
    circuit, bits = best_query(state.task.tables, state.survivors)
    return f"<interact>{query_text(state.task.labels[circuit], bits, style)}</interact>"


def play(task_id: str, options: CircuitDecodingOptions, max_turns: int = 0) -> Played:
    """Play ``task_id``; return the dialogue and the last ``info``.

    Raises:
        InputError: unknown task id.
    """
    env = CircuitDecodingEnv(options, max_turns)
    act = partial(expert_action, style=options.prompt, max_turns=env.max_turns)
    return play_episode(env, task_id, lambda shown: (shown, act(env.state)))
