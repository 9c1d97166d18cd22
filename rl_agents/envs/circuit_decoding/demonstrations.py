"""The warm-start model of CircuitDecoding, and the player that it imitates.

The player studies one circuit after another and lists the surviving candidates in ``<think>``. Each circuit and each
input is one token, so a turn only shortens the last list.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from rl_agents.envs.circuit_decoding.env import CircuitDecodingEnv, GameState, query_text
from rl_agents.envs.circuit_decoding.tasks import INPUTS, LABELS, best_input, functions
from rl_agents.envs.starters import INIT_STD, Act, ScriptedPlayer, Slips, word_starter

#: A random input instead of the most informative one; per turn, the first of several candidates. It wins about half.
SLIPS = {"any_input": 0.4, "settles_early": 0.15, "hurried": 0.03}


def _begin(env: CircuitDecodingEnv, slips: Slips) -> Act:
    settled = 0

    def act(observation: str, hurried: bool) -> str:
        nonlocal settled
        settled = _settled(env.state, len(env.state.survivors) if hurried else settled, slips)
        return _action(env.state, settled, slips)

    return act


def _settled(state: GameState, settled: int, slips: Slips) -> int:
    """Return the number of circuits, in the order of their labels, that need no further query."""
    while settled < len(state.survivors):
        asked = len(state.survivors[settled]) < len(state.task.tables)
        if len(state.survivors[settled]) > 1 and not (asked and slips("settles_early")):
            break
        settled += 1
    return settled


def _action(state: GameState, settled: int, slips: Slips) -> str:
    """List the survivors of the circuits up to the current one, and query that one, or answer."""
    task = state.task
    thought = " ".join(_survivors(state, circuit) for circuit in range(min(settled + 1, len(state.survivors))))
    if settled == len(state.survivors):
        choice = " ".join(min(task.tables[c] for c in candidates) for candidates in state.survivors)
        return f"<think> {thought} </think> <answer> {choice} </answer>"
    random_input = slips("any_input")
    bits = slips.rng.choice(INPUTS) if random_input else best_input(task.tables, state.survivors[settled])
    return f"<think> {thought} </think> <interact> {query_text(task.labels[settled], bits, 'compact')} </interact>"


def _survivors(state: GameState, circuit: int) -> str:
    """Return the circuit's label and its survivors, in the prompt's order; only the label if all survive."""
    tables = [state.task.tables[c] for c in state.survivors[circuit]]
    return " ".join([state.task.labels[circuit], *(sorted(tables) if len(tables) < len(state.task.tables) else [])])


def words() -> list[str]:
    prompts = [":", *LABELS, "0", "1", "invalid", "no-action", "several-actions", "not-a-query", "unknown-circuit"]
    return [*prompts, "correct", "wrong", *INPUTS, *functions()]


def compose_embeddings(weight: torch.Tensor, vocab: Mapping[str, int]) -> None:
    """Set the embeddings of truth tables to sums of one vector per (input, output).

    So the model's knowledge of an output for an input applies to every circuit.
    """
    parts = torch.randn(len(INPUTS), 2, weight.shape[1]) * INIT_STD
    for table in functions():
        outputs = torch.tensor([int(value) for value in table])
        weight[vocab[table]] = parts[torch.arange(len(INPUTS)), outputs].sum(0) / len(INPUTS) ** 0.5


STARTER = word_starter(
    ScriptedPlayer(CircuitDecodingEnv, _begin, SLIPS),
    words,
    max_tokens=1024,
    compose=compose_embeddings,
    # A quarter of the default batch with three times its steps, because the number of steps matters here.
    training={"iterations": 60, "tasks_per_iteration": 320, "demonstrations": 5000},
    defaults={"max_model_len": 320, "max_response_tokens": 32},
    version=2,
)
