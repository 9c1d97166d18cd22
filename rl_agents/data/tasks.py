"""Tasks of an iteration and their random streams."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rl_agents.data.difficulty import Difficulty
from rl_agents.data.trajectory import EpisodeSpec

Item = TypeVar("Item")

TRAINING, EVALUATION, DEMONSTRATION, MINIBATCHES, SELECTION, SEARCH, SUBSTITUTE, RECORDED, MONITOR = range(9)
EXPERT, DRAW = 9, 10


def stream_seed(*key: int) -> int:
    """Return a 63-bit seed from integers: independent for different keys, the same on every machine."""
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1)


def step_seed(episode_seed: int, step: int) -> int:
    """Return the 63-bit sampling seed of a step, which depends only on the two numbers."""
    state = np.random.SeedSequence(episode_seed, spawn_key=(step,)).generate_state(1, np.uint64)
    return int(state[0]) >> 1


def item_at(items: Sequence[Item], position: int, seed: int, stream: int) -> Item:
    """Return an item of an endless stream: every pass is a new permutation, fixed by ``seed`` and ``stream``."""
    epoch, offset = divmod(position, len(items))
    return items[int(_permutation(len(items), stream_seed(seed, stream, epoch))[offset])]


def task_at(
    tasks: Sequence[str], position: int, seed: int, left_out: Collection[str] = (), stream: int = TRAINING
) -> str:
    """Return task number ``position`` of a stream; an excluded one is replaced by another, fixed by the position."""
    task = item_at(tasks, position, seed, stream)
    if task not in left_out:
        return task
    good = [name for name in tasks if name not in left_out]
    return good[stream_seed(seed, SUBSTITUTE, position) % len(good)] if good else task


def draw_tasks(
    tasks: Sequence[str],
    position: int,
    count: int,
    seed: int,
    left_out: Collection[str] = (),
    difficulty: Difficulty | None = None,
    busy: Collection[str] = (),
) -> list[str]:
    """Return tasks number ``position`` and following of a run: the next ones of the stream, or a curriculum's draws.

    A curriculum's draws depend on its state, the position and the seed. They are without replacement; if no task has a
    weight, they are the stream's.

    Args:
        busy: tasks that are being rolled out, which a curriculum does not draw by weight.
    """
    if difficulty is None or count < 1:
        return [task_at(tasks, position + number, seed, left_out) for number in range(count)]
    weights, index = difficulty.weights(tasks), {task: number for number, task in enumerate(tasks)}
    weights[[index[task] for task in {*left_out, *busy} if task in index]] = 0.0
    drawn: list[str] = []
    for here in range(position, position + count):
        turn = int(here * difficulty.uniform)
        if int((here + 1) * difficulty.uniform) > turn:
            drawn.append(task_at(tasks, turn, seed, left_out))
        elif weights.any():
            random = np.random.default_rng(stream_seed(seed, DRAW, here))
            drawn.append(tasks[int(random.choice(len(tasks), p=weights / weights.sum()))])
        else:
            drawn.append(task_at(tasks, here, seed, left_out))
        weights[index[drawn[-1]]] = 0.0
    return drawn


@lru_cache(maxsize=8)
def _permutation(length: int, seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).permutation(length)


def training_specs(
    tasks: Sequence[str],
    iteration: int,
    num_groups: int,
    group_size: int,
    seed: int,
    *,
    position: int | None = None,
    first_group: int = 0,
    left_out: Collection[str] = (),
    difficulty: Difficulty | None = None,
    busy: Collection[str] = (),
    seats: int = 1,
    opponent: tuple[int, str] | None = None,
) -> list[EpisodeSpec]:
    """Return the episodes of a training iteration: the next ``num_groups`` tasks, ``group_size`` members each.

    A pure function: results do not depend on the number of runners, and a resumed run samples the same tasks.

    Args:
        position: index of the first task in the endless stream; default: every iteration took ``num_groups``.
        first_group: number of the first group, above 0 if the iteration asks for further tasks.
        left_out: tasks that are no longer sampled.
        difficulty, busy: see `draw_tasks`.
        seats, opponent: see `EpisodeSpec`; a task has a group for each seat.
    """
    start = iteration * num_groups if position is None else position
    drawn = draw_tasks(tasks, start // seats, num_groups // seats, seed, left_out, difficulty, busy)
    places = [(task, seat) for task in drawn for seat in range(seats)]
    return [
        EpisodeSpec(task, group, member, stream_seed(seed, TRAINING, iteration, group, member), seats, seat, opponent)
        for group, (task, seat) in enumerate(places, first_group)
        for member in range(group_size)
    ]


def monitor_specs(
    tasks: Sequence[str], iteration: int, episodes: int, seed: int, left_out: Collection[str] = ()
) -> list[EpisodeSpec]:
    """Return episodes that measure the plain policy's success during a search, on a stream of their own."""
    first = iteration * episodes
    return [
        EpisodeSpec(task_at(tasks, first + i, seed, left_out, MONITOR), i, 0, stream_seed(seed, MONITOR, iteration, i))
        for i in range(episodes)
    ]


def evaluation_specs(tasks: Sequence[str], episodes: int, seed: int) -> list[EpisodeSpec]:
    """Return evaluation episodes: tasks in a fixed shuffled order, repeated if there are too few."""
    order = np.random.default_rng(stream_seed(EVALUATION)).permutation(len(tasks))
    return [
        EpisodeSpec(tasks[int(order[i % len(tasks)])], i, 0, stream_seed(seed, EVALUATION, i)) for i in range(episodes)
    ]
