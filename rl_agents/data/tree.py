"""Trees of calls: the order of steps if an agent has several conversations concurrently.

A step *follows* another if it is the first to read its result: the next turn of a conversation, the first turn after a
rewritten history, or the turn that receives a subagent's report (a join: it follows several steps). In a plain dialogue
every step follows the previous one in the list.
"""

from __future__ import annotations

from collections.abc import Sequence

from rl_agents.data.trajectory import ABANDONED, Step, Trajectory


def is_tree(trajectory: Trajectory) -> bool:
    """Whether the steps name their followers; otherwise the list is a plain dialogue."""
    return any(step.next_step is not None for step in trajectory.steps)


def followers(trajectory: Trajectory) -> list[int]:
    """Return the index of each step's follower; negative if it has none (`ABANDONED` as recorded).

    Raises:
        ValueError: a step is followed by one that does not exist, or by itself over any number of steps.
    """
    steps = trajectory.steps
    if not is_tree(trajectory):
        return [*range(1, len(steps)), -1] if steps else []
    last = len(steps) - 1
    found = [(-1 if t == last else t + 1) if s.next_step is None else s.next_step for t, s in enumerate(steps)]
    for t, following in enumerate(found):
        if not ABANDONED <= following <= last:
            raise ValueError(f"task {trajectory.task_id}: step {t} of {last + 1} is followed by step {following}")
    ends(found)
    return found


def ends(following: Sequence[int]) -> list[int]:
    """Return the last step of each step's chain of followers. Raises `ValueError`: a chain returns to its beginning."""
    end: dict[int, int] = {}
    for t in range(len(following)):
        way = [t]
        while way[-1] not in end and following[way[-1]] >= 0:
            way.append(following[way[-1]])
            if len(way) > len(following):
                raise ValueError(f"step {t} is followed by itself, {len(following)} steps later at most")
        end.update(dict.fromkeys(way, end.get(way[-1], way[-1])))
    return [end[t] for t in range(len(following))]


def credited(trajectory: Trajectory) -> list[bool]:
    """Return which steps are trained on: all except those that only lead to an abandoned call.

    If a step of such a lineage has a reward of its own, all of it counts: it was used after all.
    """
    if not is_tree(trajectory):
        return [True] * len(trajectory.steps)
    following = followers(trajectory)
    end = ends(following)
    rewarded = {e for e, step in zip(end, trajectory.steps, strict=True) if step.reward}
    return [following[e] != ABANDONED or e in rewarded for e in end]


def last_word(trajectory: Trajectory) -> int:
    """Return the index of the final step, which gets the session's reward; -1 without steps.

    It is the last in the list that has no follower and is not abandoned.
    """
    following = followers(trajectory)
    spoken = [t for t, other in enumerate(following) if other == -1]
    return spoken[-1] if spoken else len(following) - 1


def parents(trajectory: Trajectory) -> list[int]:
    """Return the step that each step continues, -1 for the first of a conversation.

    If a step follows several, it continues the one that shares the longest beginning with its prompt, the first of
    equals: a subagent's report joins a conversation and does not begin it.
    """
    if not is_tree(trajectory):
        return list(range(-1, len(trajectory.steps) - 1))
    steps, found, shared = trajectory.steps, [-1] * len(trajectory.steps), [-1] * len(trajectory.steps)
    for t, child in enumerate(followers(trajectory)):
        if child >= 0 and (length := common_prefix(steps[child], steps[t])) > shared[child]:
            found[child], shared[child] = t, length
    return found


def common_prefix(step: Step, before: Step) -> int:
    ids = before.prompt_ids + before.response_ids
    if step.prompt_ids[: len(ids)] == ids:
        return len(ids)
    pairs = enumerate(zip(step.prompt_ids, ids, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(step.prompt_ids), len(ids)))
