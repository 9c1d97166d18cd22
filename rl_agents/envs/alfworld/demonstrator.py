"""Episodes of a mediocre player, which teach the starter models."""

from __future__ import annotations

import random
from collections.abc import Iterator

from rl_agents.envs.alfworld.env import AlfworldEnv
from rl_agents.envs.alfworld.expert import Habits, MediocrePlayer
from rl_agents.envs.alfworld.prompts import STYLES, View
from rl_agents.envs.alfworld.spec import AlfworldOptions
from rl_agents.envs.alfworld.tasks import task_ids
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
    return [(shown, response) for _, shown, response in _episode(task_id, rng, options, max_turns, habits)]


def demonstrate_well(task_id: str, rng: random.Random, options: AlfworldOptions, max_turns: int = 0) -> Dialogue:
    """Let the scripted expert play ``task_id``."""
    return demonstrate(task_id, rng, options, max_turns, FLAWLESS)


def read_and_written(options: AlfworldOptions, steps: int, episodes: int) -> Iterator[str]:
    """Yield the prompts with ``steps`` steps, and the responses, of the mediocre player's episodes.

    Args:
        episodes: of as many training tasks; always the same ones.
    """
    rng, style = random.Random(f"heard/{options.size}"), STYLES[options.prompt]
    for task in rng.sample(task_ids("train", options), episodes):
        for view, _, response in _episode(task, rng, options, 0, HABITS):
            yield style.window(view, steps)
            yield response


def _episode(
    task_id: str, rng: random.Random, options: AlfworldOptions, max_turns: int, habits: Habits
) -> list[tuple[View, str, str]]:
    """Return an episode as (what the player knew, the observation that it was shown, its response)."""
    env = AlfworldEnv(options, min(max_turns or MAX_TURNS, MAX_TURNS))
    player: MediocrePlayer | None = None
    views: list[View] = []

    def act(observation: str) -> tuple[str, str]:
        nonlocal player
        view = env.view
        views.append(view)
        if player is None:
            player = MediocrePlayer(view.room, rng, habits)
        else:
            player.observe(view.history[-1][1], view.text)
        command = player.choose(view.admissible)
        return observation, STYLES[options.prompt].response(command, player.thought)

    dialogue, _ = play(env, task_id, act)
    env.close()
    return [(view, shown, response) for view, (shown, response) in zip(views, dialogue, strict=True)]
