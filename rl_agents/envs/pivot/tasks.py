"""The tasks of pivot: the turns of a file with their verifier, split into train and test by trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rl_agents.envs.pivot import PivotOptions
from rl_agents.envs.task_sets import uniform_draw
from rl_agents.errors import InputError
from rl_agents.rewards.verifiers import Verifier, make_verifier, self_check
from rl_agents.traces.desk import desk_turns
from rl_agents.traces.formats import task_of
from rl_agents.traces.turns import Turn

SPLIT_SEED = "pivot-2026"


@dataclass(frozen=True)
class PivotSet:
    """Turns by id, the two task sets, and the verifier, which accepts every demonstration."""

    turns: Mapping[str, Turn]
    train: tuple[str, ...]
    test: tuple[str, ...]
    verifier: Verifier


def task_ids(split: str, options: PivotOptions) -> list[str]:
    found = load_pivots(options)
    return list(found.train if split == "train" else found.test)


def load_pivots(options: PivotOptions) -> PivotSet:
    """Load turns and check that the verifier accepts the experts' actions, once per process and file."""
    pivots = options.pivots
    stamp = Path(pivots).stat().st_mtime_ns if pivots and Path(pivots).is_file() else 0
    return _loaded(stamp, options)


@lru_cache(maxsize=4)  # every environment asks
def _loaded(stamp: int, options: PivotOptions) -> PivotSet:
    from rl_agents.traces.store import read_turns

    turns = read_turns(Path(options.pivots)) if options.pivots else desk_turns()
    if not turns:
        raise InputError(f"env.pivots={options.pivots}: no turns in it")
    verifier = make_verifier(options)
    check = self_check(verifier, turns)
    if check.failures:
        raise InputError(f"env.verifier={options.verifier}: {check.summary()}; `pivot profile --skip-bad` skips them")
    train, test = split_by_trace(turns, options.test_share)
    return PivotSet({turn.turn_id: turn for turn in turns}, train, test, verifier)


def split_by_trace(turns: Sequence[Turn], test_share: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split turn ids so that no trace, and no other trial of its task, is in both sets.

    A trace's id alone decides, so the pivots of a file are split as all turns are, and imitation of all train turns has
    not seen the pivots that test. Only if that leaves one set empty, the nearest trace is moved to it. If there is one
    trace or no share, both sets have all turns.
    """
    tasks = {turn.turn_id: task_of(turn.trace_id) for turn in turns}
    draws = {task: uniform_draw(task, SPLIT_SEED) for task in dict.fromkeys(tasks.values())}
    order = sorted(draws, key=draws.__getitem__)
    count = sum(draw < test_share for draw in draws.values())
    count = min(max(count, 1), len(order) - 1) if test_share else 0
    held_out = set(order[:count])
    test = tuple(turn.turn_id for turn in turns if tasks[turn.turn_id] in held_out)
    train = tuple(turn.turn_id for turn in turns if tasks[turn.turn_id] not in held_out)
    return (train, test) if held_out else (train, train)
