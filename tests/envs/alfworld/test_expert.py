"""The scripted players: what they read from texts, and how often they win."""

import pytest
from games import expert_plays

from rl_agents.envs.alfworld.expert import Expert
from rl_agents.envs.alfworld.families import FAMILIES, Goal, read_goal
from rl_agents.envs.alfworld.tasks import generated_tasks
from rl_agents.errors import InputError

ROOM = "You are in the middle of a room. Looking quickly around you, you see a desk 1, a drawer 1, and a shelf 2."


@pytest.mark.parametrize(("size", "turns"), [("small", 20), ("full", 50)])
@pytest.mark.parametrize("split", ["test_seen", "test_unseen"])
def test_expert_wins_every_family(size: str, turns: int, split: str) -> None:
    for task in generated_tasks(size, split)[:12]:  # two of each family
        won, commands = expert_plays(task, turns)
        assert won, (task, commands)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.short)
@pytest.mark.parametrize("wording", [0, 1])
def test_both_wordings_of_a_task_are_read(family, wording: int) -> None:
    goal = Goal(family, "mug", "sidetable")
    assert read_goal(f"{ROOM}\n\nYour task is to: {goal.sentence(wording)}.") == goal


def test_a_text_without_a_task_is_refused() -> None:
    with pytest.raises(InputError, match="no task of the six families in 'juggle three eggs"):
        Expert(f"{ROOM}\n\nYour task is to: juggle three eggs.")
