"""A scripted, deliberately mediocre player whose dialogues teach the starter model.

It studies one circuit after the other. It knows which candidates survive and lists them in ``<think>``, but it asks
useless questions and settles too early: reinforcement learning has something to improve.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from rl_agents.envs.circuit_decoding.env import CircuitDecodingEnv, GameState
from rl_agents.envs.circuit_decoding.prompts import query_text
from rl_agents.envs.circuit_decoding.rules import INPUTS, best_input
from rl_agents.envs.circuit_decoding.spec import CircuitDecodingOptions
from rl_agents.envs.stateful import Dialogue, play


@dataclass(frozen=True, slots=True)
class Habits:
    """Habits of the player; it wins about half of the games with these.

    Attributes:
        any_input: probability that a query's input is drawn at random instead of being the most informative.
        settles_early: probability per turn of being content with the first of several candidates.
        hurried: probability per turn, after the first, of being told to answer at once, in the words of T3's forced
            answers, which the starter would not understand otherwise.
    """

    any_input: float = 0.4
    settles_early: float = 0.15
    hurried: float = 0.03


HABITS = Habits()


def demonstrate(
    task_id: str, rng: random.Random, options: CircuitDecodingOptions, max_turns: int = 0, habits: Habits = HABITS
) -> Dialogue:
    """Play ``task_id`` in the compact style, whatever ``options`` say, and return the dialogue.

    Raises:
        InputError: unknown task id.
    """
    env = CircuitDecodingEnv(replace(options, prompt="compact"), max_turns)
    settled = 0

    def act(observation: str) -> tuple[str, str]:
        nonlocal settled
        if env.state.turns and rng.random() < habits.hurried:
            observation, settled = f"{observation}\n{env.answer_instruction}", len(env.state.survivors)
        settled = _settled(env.state, settled, rng, habits)
        return observation, _action(env.state, settled, rng, habits)

    return play(env, task_id, act)[0]


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
