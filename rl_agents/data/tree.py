"""Trees of calls: which step follows which, where an agent holds several conversations concurrently.

A step *follows* another when it is the first to read its result: the next turn of a conversation, the first turn
after a rewritten history, or the turn that a subagent's report is handed to (a join, which several steps flow into).
A plain dialogue is the case where every step follows the one before it in the list.
"""

from __future__ import annotations

from collections.abc import Sequence

from rl_agents.data.trajectory import ABANDONED, Step, Trajectory


def is_tree(trajectory: Trajectory) -> bool:
    """Whether the steps say which follows which; otherwise the list is a plain dialogue."""
    return any(step.next_step is not None for step in trajectory.steps)


def followers(trajectory: Trajectory) -> list[int]:
    """Return the index of the step that follows each step; negative where none does (`ABANDONED` as recorded).

    Raises:
        ValueError: a step is followed by one that is not there, or by itself over any number of steps.
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
    """Return the step at which each step's way ends.

    Raises:
        ValueError: a way comes back to where it was.
    """
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
    """Return which steps are trained on: all but those that only lead to an abandoned call.

    A step of such a lineage that was rewarded by itself makes all of it count: it was used after all.
    """
    if not is_tree(trajectory):
        return [True] * len(trajectory.steps)
    following = followers(trajectory)
    end = ends(following)
    rewarded = {e for e, step in zip(end, trajectory.steps, strict=True) if step.reward}
    return [following[e] != ABANDONED or e in rewarded for e in end]


def last_word(trajectory: Trajectory) -> int:
    """Return the index of the step that had the last word, where the session's reward belongs; -1 without steps.

    The last in the list that no step reads and that is not abandoned.
    """
    following = followers(trajectory)
    spoken = [t for t, other in enumerate(following) if other == -1]
    return spoken[-1] if spoken else len(following) - 1


def parents(trajectory: Trajectory) -> list[int]:
    """Return the step that each step continues, -1 for the first of a conversation.

    Of several that flow into it the one that shares the longest beginning with its prompt, the first of equals: a
    subagent's report joins a conversation, it does not begin it.
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
