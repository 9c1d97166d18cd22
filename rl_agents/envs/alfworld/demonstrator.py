"""Episodes of a mediocre player, which teach the starter model."""

from __future__ import annotations

import random
from typing import Any

from rl_agents.envs.alfworld.env import AlfworldEnv
from rl_agents.envs.alfworld.expert import Habits, MediocrePlayer
from rl_agents.envs.alfworld.prompts import STYLES
from rl_agents.envs.stateful import Dialogue, play

#: How the teacher of the starter plays.
HABITS = Habits(random_command=0.25, forget=0.25)
MAX_TURNS = 25


def demonstrate(task_id: str, rng: random.Random, habits: Habits = HABITS, **options: Any) -> Dialogue:
    """Let the mediocre player play ``task_id``, at most 25 turns, and return the dialogue.

    Args:
        options: the environment's; observations and actions are in the style of ``prompt``.

    Raises:
        InputError: no such task, or its game cannot be used.
    """
    style = options.get("prompt", "compact")
    env = AlfworldEnv(**{**options, "prompt": style, "max_turns": MAX_TURNS})
    player: MediocrePlayer | None = None

    def act(observation: str) -> tuple[str, str]:
        nonlocal player
        view = env.view
        if player is None:
            player = MediocrePlayer(view.room, rng, habits)
        else:
            player.observe(view.history[-1][1], view.text)
        return observation, STYLES[style].response(player.choose(view.admissible))

    dialogue, _ = play(env, task_id, act)
    env.close()
    return dialogue
