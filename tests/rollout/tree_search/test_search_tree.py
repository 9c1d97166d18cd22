"""Nodes and finished paths of one search, on hand-made steps."""

import pytest

from rl_agents.chat.template import Dialogue
from rl_agents.data.trajectory import Step
from rl_agents.rollout.branching import BranchPoint
from rl_agents.rollout.env_calls import EnvReply
from rl_agents.rollout.tree_search.tree import Node, Search


def step(action: str, reward: float) -> Step:
    return Step([1], [2], [-1.0], 0, "stop", "seen", "anchor", action, reward)


def search() -> Search:
    return Search(7, "house", 11)


def path(last: EnvReply) -> Node:
    """hall -left-> attic -door-> the last answer, with rewards of 0.25 and 2."""
    start = Node.start(EnvReply("hall", anchor="h"), "key of hall")
    attic = start.after(step("left", 0.25), EnvReply("attic", anchor="a"), "key of attic")
    return attic.after(step("door", 2.0), last, "key of the last", snapshot="copy")


def test_a_path_adds_up_rewards_and_is_reached_by_its_actions() -> None:
    node = path(EnvReply("won", anchor="w"))
    assert (node.depth, node.episode_return) == (3, 2.25)
    assert node.path_keys() == ["key of hall", "key of attic", "key of the last"]
    expected = BranchPoint("house", 11, ("left", "door"), node.dialogue, "w", 2.25, "copy")
    assert search().point(node) == expected
    assert path(EnvReply("won", new_dialogue=True)).dialogue == Dialogue.start("won", "")
    assert path(EnvReply("won")).dialogue != Dialogue.start("won", "")


@pytest.mark.parametrize(
    ("cause", "failed", "terminated", "truncated"),
    [("terminated", False, True, False), ("max_turns", False, False, True), ("context_length", False, False, True),
     ("env_error: OSError", True, False, False)],
)  # fmt: skip
def test_a_finished_path_is_an_episode(cause: str, failed: bool, terminated: bool, truncated: bool) -> None:
    last = path(EnvReply("won", metrics={"score": 0.5}, references=["Paris"]))
    ended = search()
    ended.finished = 3
    trajectory = ended.trajectory(last, cause, failed=failed)
    assert (trajectory.task_id, trajectory.group_id, trajectory.member, trajectory.seed) == ("house", 7, 3, 11)
    assert [s.action for s in trajectory.steps] == ["left", "door"] and trajectory.episode_return == 2.25
    assert (trajectory.end_cause, trajectory.failed) == (cause, failed)
    assert (trajectory.terminated, trajectory.truncated, trajectory.success) == (terminated, truncated, False)
    assert trajectory.metrics == {"score": 0.5} and trajectory.facts["references"] == ["Paris"]
