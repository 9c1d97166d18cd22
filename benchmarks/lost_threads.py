"""GuessNumbers from a warm-start model whose belief becomes trapped, which is the case that T3 addresses.

    python run.py sft --import benchmarks.lost_threads --env lost_threads --output models/lost_threads

The demonstrator lists the codes that agree with the feedback and guesses one, but in each turn it may lose the
thread with probability `LOSES`: it chooses a code that contradicts the feedback, and repeats it until the turn
limit. So an episode is either solved within a few turns or continues without progress (T3, section 2).
"""

from __future__ import annotations

from dataclasses import replace

from rl_agents.envs import base
from rl_agents.envs.guess_numbers import SPEC as NUMBERS
from rl_agents.envs.guess_numbers.demonstrations import STARTER as NUMBERS_STARTER
from rl_agents.envs.guess_numbers.demonstrations import reading_order
from rl_agents.envs.guess_numbers.env import GuessNumbersEnv
from rl_agents.envs.guess_numbers.tasks import codes, task_ids
from rl_agents.envs.starters import Act, ScriptedPlayer, Slips

__all__ = ["SPEC", "STARTER", "demonstrate", "make", "task_ids"]

#: Probability per turn of losing the thread. Chosen among 0.3, 0.35, 0.4 and 0.5 for a low start and long tails.
LOSES = 0.35
#: Share of turns that request an answer as T3 does, so that the warm-start model has seen the request.
HURRIED = 0.03

make = GuessNumbersEnv


def begin(env: GuessNumbersEnv, slips: Slips) -> Act:
    task = env.state.task
    wrong = ""

    def act(observation: str, hurried: bool) -> str:
        nonlocal wrong
        remaining = sorted(env.state.remaining, key=lambda code: reading_order(code, task.first_guess))
        if not wrong and slips("loses"):
            group = task.subgroup
            wrong = slips.rng.choice([code for code in codes(group.a, group.b) if code not in remaining])
        believed = [wrong] if wrong else remaining
        kind = "answer" if hurried or (len(remaining) == 1 and not wrong) else "interact"
        return f"<think> {' '.join(believed)} </think> <{kind}> {believed[0]} </{kind}>"

    return act


demonstrate = ScriptedPlayer(GuessNumbersEnv, begin, {"loses": LOSES, "hurried": HURRIED})
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
