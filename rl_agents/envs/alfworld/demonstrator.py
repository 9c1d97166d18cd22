"""Episodes of a mediocre player, which teach the starter model."""

from __future__ import annotations

import random
from typing import Any

from rl_agents.envs.alfworld.env import AlfworldEnv
from rl_agents.envs.alfworld.expert import Habits, MediocrePlayer
from rl_agents.envs.alfworld.prompts import STYLES

Dialogue = list[tuple[str, str]]
"""(observation, action) turns of one episode."""

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
    observation, info = env.reset(options={"task_id": task_id})
    player = MediocrePlayer(env.view.room, rng, habits)
    dialogue: Dialogue = []
    over = False
    while not over:
        command = player.choose(info["admissible_actions"])
        action = STYLES[style].response(command)
        dialogue.append((observation, action))
        observation, _, terminated, truncated, info = env.step(action)
        player.observe(command, env.view.text)
        over = terminated or truncated
    env.close()
    return dialogue
