"""The warm-start model of CircuitDecoding: its words, its weights before training, and what it is taught.

The player is deliberately mediocre. It studies one circuit after the other and lists the surviving candidates in
``<think>``, but asks useless questions and settles too early: reinforcement learning has something to improve. Each
circuit and each input is one token, so each turn only has to thin out the last list.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from rl_agents.envs.circuit_decoding.env import CircuitDecodingEnv, GameState, query_text
from rl_agents.envs.circuit_decoding.tasks import INPUTS, LABELS, best_input, functions
from rl_agents.envs.demonstrations import TAGS, Act, ScriptedPlayer, word_starter
from rl_agents.envs.small_model import INIT_STD


@dataclass(frozen=True, slots=True)
class Habits:
    """Habits of the player; it wins about half of the games with these.

    Attributes:
        any_input: probability that a query's input is drawn at random instead of being the most informative.
        settles_early: probability per turn of being content with the first of several candidates.
        hurried: probability per turn, after the first, of being told to answer at once, in the words of T3's forced
            answers, which the warm-start model would not understand otherwise.
    """

    any_input: float = 0.4
    settles_early: float = 0.15
    hurried: float = 0.03


def _begin(env: CircuitDecodingEnv, rng: random.Random, habits: Habits) -> Act:
    settled = 0

    def act(observation: str, hurried: bool) -> str:
        nonlocal settled
        settled = _settled(env.state, len(env.state.survivors) if hurried else settled, rng, habits)
        return _action(env.state, settled, rng, habits)

    return act


def _settled(state: GameState, settled: int, rng: random.Random, habits: Habits) -> int:
    """Return how many circuits, in the order of their labels, need no further query."""
    while settled < len(state.survivors):
        asked = len(state.survivors[settled]) < len(state.task.tables)
        if len(state.survivors[settled]) > 1 and not (asked and rng.random() < habits.settles_early):
            break
        settled += 1
    return settled


def _action(state: GameState, settled: int, rng: random.Random, habits: Habits) -> str:
    """List the survivors of the circuits up to the one under study; ask about that one, or answer."""
    task = state.task
    thought = " ".join(_survivors(state, circuit) for circuit in range(min(settled + 1, len(state.survivors))))
    if settled == len(state.survivors):
        choice = " ".join(min(task.tables[c] for c in candidates) for candidates in state.survivors)
        return f"<think> {thought} </think> <answer> {choice} </answer>"
    random_input = rng.random() < habits.any_input
    bits = rng.choice(INPUTS) if random_input else best_input(task.tables, state.survivors[settled])
    return f"<think> {thought} </think> <interact> {query_text(task.labels[settled], bits, 'compact')} </interact>"


def _survivors(state: GameState, circuit: int) -> str:
    """Return the circuit's label and its survivors, in the prompt's order; only the label while all survive."""
    tables = [state.task.tables[c] for c in state.survivors[circuit]]
    return " ".join([state.task.labels[circuit], *(sorted(tables) if len(tables) < len(state.task.tables) else [])])


def words() -> list[str]:
    """Return every word but special tokens and tags: those of the compact prompts, inputs, and truth tables."""
    prompts = [":", *LABELS, "0", "1", "invalid", "no-action", "several-actions", "not-a-query", "unknown-circuit"]
    return [*prompts, "correct", "wrong", *INPUTS, *functions()]


def compose_embeddings(weight: torch.Tensor, vocab: Mapping[str, int]) -> None:
    """Overwrite the rows of truth tables by sums of one vector per (input, output).

    What the model learns about an input's output then holds for every circuit.
    """
    parts = torch.randn(len(INPUTS), 2, weight.shape[1]) * INIT_STD
    for table in functions():
        outputs = torch.tensor([int(value) for value in table])
        weight[vocab[table]] = parts[torch.arange(len(INPUTS)), outputs].sum(0) / len(INPUTS) ** 0.5


STARTER = word_starter(
    ScriptedPlayer(CircuitDecodingEnv, _begin, Habits()),
    words,
    tags=TAGS,
    max_tokens=1024,
    compose=compose_embeddings,
    # A quarter of the default's batch and three times its steps: here the number of steps is what counts.
    training={"iterations": 60, "tasks_per_iteration": 320, "demonstrations": 5000},
    defaults={"max_model_len": 320, "max_response_tokens": 32},
    version=2,
)
