"""Tasks of an iteration and their random streams."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rl_agents.config.settings import SEPARATOR
from rl_agents.data.difficulty import Difficulty
from rl_agents.data.trajectory import EpisodeSpec, Trajectory

Item = TypeVar("Item")
Played = TypeVar("Played", EpisodeSpec, Trajectory)

TRAINING, EVALUATION, DEMONSTRATION, MINIBATCHES, SELECTION, SEARCH, SUBSTITUTE, RECORDED, MONITOR = range(9)
EXPERT, DRAW, MIX = 9, 10, 11
#: The number whose multiples, modulo 1, are spread most evenly.
GOLDEN = (5**0.5 - 1) / 2


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


class TaskMix(list[str]):
    """The tasks of several environments, each with a stream of its own.

    Draw n of a run is of the environment e for which frac(s + n·φ) lies between the sums of the shares before and up to
    e, with the golden ratio φ and a start s in [0, 1) that the seed fixes. So n draws in a row have nearly n·share of
    each, without a state that a checkpoint would have to keep. Its task is the next one of the environment's stream.

    Attributes:
        sets: the tasks of each environment by its name, which begins their ids.
        weights: in the same order; a share is a weight over their sum.
    """

    def __init__(self, sets: Mapping[str, Sequence[str]], weights: tuple[float, ...]) -> None:
        super().__init__(task for own in sets.values() for task in own)
        self.sets, self.weights = sets, weights

    def at(self, number: int, seed: int, left_out: Collection[str]) -> tuple[Sequence[str], int]:
        """Return the tasks of the environment of a draw, and its place in their stream.

        Args:
            left_out: names of environments that lose their share; another one, by weight, has the draw instead.
        """
        names, (chosen, places) = list(self.sets), _draws(self.weights, seed, 1 << max(10, number.bit_length()))
        own, place = int(chosen[number]), int(places[number])
        shares = np.array([weight * (name not in left_out) for name, weight in zip(names, self.weights, strict=True)])
        if not shares[own] and shares.any():
            random = np.random.default_rng(stream_seed(seed, SUBSTITUTE, number))
            own, place = int(random.choice(len(names), p=shares / shares.sum())), number
        return self.sets[names[own]], place


@lru_cache(maxsize=4)
def _draws(weights: tuple[float, ...], seed: int, length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the environment of each of the first draws, and how many earlier ones it had."""
    points = (np.random.default_rng(stream_seed(seed, MIX)).random() + np.arange(length) * GOLDEN) % 1.0
    chosen = np.searchsorted(np.cumsum(weights[:-1]) / sum(weights), points, side="right")
    counts = np.cumsum(chosen[:, None] == np.arange(len(weights)), axis=0)
    return chosen, counts[np.arange(length), chosen] - 1


def by_environment(names: Iterable[str], episodes: Iterable[Played]) -> dict[str, list[Played]]:
    """Return the episodes of each of several environments; empty without names, for a run over one."""
    found: dict[str, list[Played]] = {name: [] for name in names}
    for episode in episodes if found else ():
        found[episode.task_id.partition(SEPARATOR)[0]].append(episode)
    return found


def measured(
    measure: Callable[[Sequence[Trajectory]], Mapping[str, float]], names: Iterable[str], episodes: Sequence[Trajectory]
) -> dict[str, float]:
    """Return the metrics of episodes in all, and of each of several environments under ``TAG/NAME``."""
    found = dict(measure(episodes))
    for name, own in by_environment(names, episodes).items():
        found |= {f"{tag}/{name}": value for tag, value in (measure(own) if own else {}).items()}
    return found


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
    if isinstance(tasks, TaskMix):
        drawn = list[str]()
        for number in range(position, position + count):
            own, place = tasks.at(number, seed, left_out)
            drawn += draw_tasks(own, place, 1, seed, left_out, difficulty, {*busy, *drawn})
        return drawn
    if difficulty is None or count < 1:
        return [task_at(tasks, position + number, seed, left_out) for number in range(count)]
    weights, index = difficulty.weights(tasks), {task: number for number, task in enumerate(tasks)}
    weights[[index[task] for task in {*left_out, *busy} if task in index]] = 0.0
    drawn = []
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
    """Return evaluation episodes: tasks in a fixed shuffled order, repeated if there are too few.

    Several environments have equally many, in turn.
    """
    sets = list(tasks.sets.values()) if isinstance(tasks, TaskMix) else [tasks]
    orders = [np.random.default_rng(stream_seed(EVALUATION)).permutation(len(own)) for own in sets]
    chosen = [(i // len(sets), sets[i % len(sets)], orders[i % len(sets)]) for i in range(episodes)]
    return [
        EpisodeSpec(own[int(order[place % len(own)])], i, 0, stream_seed(seed, EVALUATION, i))
        for i, (place, own, order) in enumerate(chosen)
    ]
