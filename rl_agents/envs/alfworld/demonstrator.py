"""Episodes of a mediocre player, which teach the starter model."""

from __future__ import annotations

import random

from rl_agents.envs.alfworld.env import AlfworldEnv
from rl_agents.envs.alfworld.expert import Habits, MediocrePlayer
from rl_agents.envs.alfworld.prompts import STYLES
from rl_agents.envs.alfworld.spec import AlfworldOptions
from rl_agents.envs.stateful import Dialogue, play

#: How the teacher of the starter plays.
HABITS = Habits(random_command=0.25, forget=0.25)
FLAWLESS = Habits(random_command=0, forget=0)
MAX_TURNS = 25


def demonstrate(
    task_id: str, rng: random.Random, options: AlfworldOptions, max_turns: int = 0, habits: Habits = HABITS
) -> Dialogue:
    """Let the mediocre player play ``task_id``, at most `MAX_TURNS` turns, and return the dialogue.

    Raises:
        InputError: no such task, or its game cannot be used.
    """
    env = AlfworldEnv(options, min(max_turns or MAX_TURNS, MAX_TURNS))
    player: MediocrePlayer | None = None

    def act(observation: str) -> tuple[str, str]:
        nonlocal player
        view = env.view
        if player is None:
            player = MediocrePlayer(view.room, rng, habits)
        else:
            player.observe(view.history[-1][1], view.text)
        return observation, STYLES[options.prompt].response(player.choose(view.admissible))

    dialogue, _ = play(env, task_id, act)
    env.close()
    return dialogue


def demonstrate_well(task_id: str, rng: random.Random, options: AlfworldOptions, max_turns: int = 0) -> Dialogue:
    """Let the scripted expert play ``task_id``."""
    return demonstrate(task_id, rng, options, max_turns, FLAWLESS)
