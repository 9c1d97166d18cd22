"""The scripted players: what they read from texts, and how often they win."""

import random
from collections.abc import Callable

import pytest

from rl_agents.envs.alfworld.demonstrations import MediocrePlayer
from rl_agents.envs.alfworld.expert import Expert
from rl_agents.envs.alfworld.families import FAMILIES, Goal, read_goal
from rl_agents.envs.alfworld.generator import generated_file
from rl_agents.envs.alfworld.native import NativeGame
from rl_agents.envs.alfworld.tasks import generated_tasks
from rl_agents.envs.starters import Slips
from rl_agents.errors import InputError

ROOM = "You are in the middle of a room. Looking quickly around you, you see a desk 1, a drawer 1, and a shelf 2."


def play(task: str, player_of: Callable[[str], Expert | MediocrePlayer], turns: int = 50) -> tuple[bool, list[str]]:
    game = NativeGame.compile(generated_file(task))
    state = game.start()
    player = player_of(game.intro(state))
    commands: list[str] = []
    while not game.won(state) and len(commands) < turns:
        command = player.choose() if isinstance(player, Expert) else player.choose(game.admissible(state))
        result = game.step(state, command)
        player.observe(command, result.feedback)
        state = result.state
        commands.append(command)
    return game.won(state), commands


@pytest.mark.parametrize(("size", "turns"), [("small", 20), ("full", 50)])
@pytest.mark.parametrize("split", ["test_seen", "test_unseen"])
def test_expert_wins_every_family(size: str, turns: int, split: str) -> None:
    for task in generated_tasks(size, split)[:36]:  # six of each family
        won, commands = play(task, Expert, turns)
        assert won, (task, commands)


def test_mediocre_player_wins_some_and_is_reproducible() -> None:
    tasks = generated_tasks("small", "train")[:30]
    half = {"random_command": 0.5, "forget": 0.5}
    games = [
        [play(t, lambda text, t=t: MediocrePlayer(text, Slips(half, random.Random(t))), 20) for t in tasks]
        for _ in "ab"
    ]
    assert games[0] == games[1]
    wins = sum(won for won, _ in games[0])
    assert 0.2 * len(tasks) < wins < 0.8 * len(tasks)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.short)
@pytest.mark.parametrize("wording", [0, 1])
def test_both_wordings_of_a_task_are_read(family, wording: int) -> None:
    goal = Goal(family, "mug", "sidetable")
    assert read_goal(f"{ROOM}\n\nYour task is to: {goal.sentence(wording)}.") == goal


def test_a_text_without_a_task_is_refused() -> None:
    with pytest.raises(InputError, match="no task of the six families in 'juggle three eggs"):
        Expert(f"{ROOM}\n\nYour task is to: juggle three eggs.")
