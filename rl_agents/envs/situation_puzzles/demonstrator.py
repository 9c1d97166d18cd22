"""A scripted, deliberately mediocre player whose dialogues teach the starter model.

It asks for one value after the other, but it answers before it can know, asks again what it knows, and at times falls
into a rut: questions that have nothing to do with the scene, one after the other, all answered by "unknown".
Reinforcement learning has something to improve, and T3 something to cut.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import cache

from rl_agents.envs.situation_puzzles.env import PuzzleState, SituationPuzzlesEnv
from rl_agents.envs.situation_puzzles.expert import answer, belief, next_value, question, slots_of, theme_of
from rl_agents.envs.situation_puzzles.rules import UNKNOWN
from rl_agents.envs.situation_puzzles.spec import SituationPuzzlesOptions
from rl_agents.envs.situation_puzzles.tasks import SMALL_SLOTS, SMALL_THEMES
from rl_agents.envs.situation_puzzles.themes import themes
from rl_agents.envs.stateful import Dialogue, play


@dataclass(frozen=True, slots=True)
class Habits:
    """Habits of the player, as probabilities per turn.

    Attributes:
        premature_answer: of answering while something is open.
        repeat: of asking for a value of the scene at random, known or not.
        enter_rut: of asking for something that belongs to another scene.
        stay_in_rut: of the same after a question that was answered by "unknown".
        hurried: of being told to answer at once, in the words that T3's forced answers use.
    """

    premature_answer: float = 0.06
    repeat: float = 0.06
    enter_rut: float = 0.05
    stay_in_rut: float = 0.8
    hurried: float = 0.02


HABITS = Habits()


def demonstrate(
    task_id: str, rng: random.Random, options: SituationPuzzlesOptions, max_turns: int = 0, habits: Habits = HABITS
) -> Dialogue:
    """Play ``task_id`` in the compact style, whatever ``options`` say, and return the dialogue.

    Raises:
        InputError: unknown task id.
        ValueError: not a generated puzzle.
    """
    env = SituationPuzzlesEnv(replace(options, prompt="compact"), max_turns)

    def act(observation: str) -> tuple[str, str]:
        if env.state.turns and rng.random() < habits.hurried:
            return f"{observation}\n{env.answer_instruction}", answer(env.state, belief(env.state), "compact")
        return observation, _choose(env.state, rng, habits)

    return play(env, task_id, act)[0]


def _choose(state: PuzzleState, rng: random.Random, habits: Habits) -> str:
    values = belief(state)
    value = next_value(values)
    stuck = bool(state.asked) and state.asked[-1][1].text == UNKNOWN
    if rng.random() < (habits.stay_in_rut if stuck else habits.enter_rut):
        return question(rng.choice(foreign_values(theme_of(state.puzzle).name)), "compact")
    if value is None or rng.random() < habits.premature_answer:
        return answer(state, values, "compact")
    if rng.random() < habits.repeat:
        return question(rng.choice([v for slot in slots_of(state.puzzle) for v in slot.values]), "compact")
    return question(value, "compact")


@cache
def foreign_values(theme: str) -> tuple[str, ...]:
    """Return the values of the other scenes in the small set."""
    others = [other for other in list(themes().values())[:SMALL_THEMES] if other.name != theme]
    own = {value for slot in themes()[theme].slots for value in slot.values}
    found = [value for other in others for slot in other.slots[:SMALL_SLOTS] for value in slot.values]
    return tuple(value for value in found if value not in own)
