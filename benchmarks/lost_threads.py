"""GuessNumbers from a starter whose belief is trapped sooner or later: what T3 is for, where it can be seen.

    python run.py sft --import benchmarks.lost_threads --env lost_threads --output models/lost_threads

Tasks, rules and rewards are those of guess_numbers; the demonstrator is another one. It lists what the feedback leaves
and guesses that, but in each turn it may lose the thread (`LOSES`): it thinks of a code that contradicts what it has
read, and guesses the same one until the turns are used up. It never answers too early. So an episode is won within few
turns, or goes on to the limit without learning anything: the region that a belief does not leave (T3, section 2).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from rl_agents.envs import base
from rl_agents.envs.demonstrations import Act, ScriptedPlayer
from rl_agents.envs.guess_numbers import SPEC as NUMBERS
from rl_agents.envs.guess_numbers.demonstrations import STARTER as NUMBERS_STARTER
from rl_agents.envs.guess_numbers.demonstrations import reading_order
from rl_agents.envs.guess_numbers.env import GuessNumbersEnv
from rl_agents.envs.guess_numbers.tasks import codes, task_ids

__all__ = ["SPEC", "STARTER", "demonstrate", "make", "task_ids"]

#: Probability per turn of losing the thread. Chosen among 0.3, 0.35, 0.4 and 0.5 for a low start and long tails.
LOSES = 0.35
#: Share of the turns in which the demonstrator is asked for its answer, as T3 asks: else the starter never read that.
HURRIED = 0.03

make = GuessNumbersEnv


@dataclass(frozen=True)
class Habits:
    """Probabilities per turn."""

    loses: float = LOSES
    hurried: float = HURRIED


def begin(env: GuessNumbersEnv, rng: random.Random, habits: Habits) -> Act:
    task = env.state.task
    wrong = ""

    def act(observation: str, hurried: bool) -> str:
        nonlocal wrong
        remaining = sorted(env.state.remaining, key=lambda code: reading_order(code, task.first_guess))
        if not wrong and rng.random() < habits.loses:
            group = task.subgroup
            wrong = rng.choice([code for code in codes(group.a, group.b) if code not in remaining])
        believed = [wrong] if wrong else remaining
        kind = "answer" if hurried or (len(remaining) == 1 and not wrong) else "interact"
        return f"<think> {' '.join(believed)} </think> <{kind}> {believed[0]} </{kind}>"

    return act


demonstrate = ScriptedPlayer(GuessNumbersEnv, begin, Habits())
STARTER = replace(NUMBERS_STARTER, demonstrate=demonstrate, defaults={**NUMBERS_STARTER.defaults, "max_model_len": 320})
SPEC = replace(
    NUMBERS,
    name="lost_threads",
    summary="guess_numbers from a starter that loses the thread",
    reference="benchmarks/lost_threads.py",
    module="benchmarks.lost_threads",
    gym_id="rl_agents/LostThreads-v0",
)
base.register(SPEC)
