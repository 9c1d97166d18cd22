"""The task sets of pivot: the turns of a file, split into train and test by trace, with their verifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rl_agents.envs.panels import shuffled_ids
from rl_agents.errors import InputError, unknown
from rl_agents.rewards.verifiers import Verifier, VerifierOptions, make_verifier, self_check
from rl_agents.traces.turns import Turn

SPLIT_SEED = "pivot-2026"


@dataclass(frozen=True)
class PivotSet:
    """Turns by id, the two task sets, and the verifier that has accepted every demonstration of them."""

    turns: Mapping[str, Turn]
    train: tuple[str, ...]
    test: tuple[str, ...]
    verifier: Verifier


def task_ids(split: str, *, pivots: str = "", test_share: float = 0.1, **options: Any) -> list[str]:
    """Return the turns of ``split``.

    Raises:
        InputError: see `load_pivots`; or a split that does not exist.
    """
    found = load_pivots(pivots, test_share, VerifierOptions.from_mapping(options))
    if split not in ("train", "test"):
        raise unknown("split", split, ("train", "test"))
    return list(found.train if split == "train" else found.test)


def load_pivots(pivots: str, test_share: float, options: VerifierOptions) -> PivotSet:
    """Load turns and check that the verifier accepts what the experts did. Once per process and file.

    Raises:
        InputError: a file that cannot be read or holds no turns, a demonstration that its verifier refuses.
    """
    if isinstance(test_share, bool) or not isinstance(test_share, int | float) or not 0 <= test_share < 1:
        raise InputError(f"env.test_share={test_share}: at least 0 and below 1")
    stamp = Path(pivots).stat().st_mtime_ns if pivots and Path(pivots).is_file() else 0
    return _loaded(pivots, stamp, float(test_share), options)


@lru_cache(maxsize=4)  # every environment asks
def _loaded(pivots: str, stamp: int, test_share: float, options: VerifierOptions) -> PivotSet:
    turns = _read(pivots)
    if not turns:
        raise InputError(f"env.pivots={pivots}: no turns in it")
    verifier = make_verifier(options)
    check = self_check(verifier, turns)
    if check.failures:
        raise InputError(f"env.verifier={options.verifier}: {check.summary()}; `pivot profile --skip-bad` drops such")
    train, test = split_by_trace(turns, test_share)
    return PivotSet({turn.turn_id: turn for turn in turns}, train, test, verifier)


def split_by_trace(turns: Sequence[Turn], test_share: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split turn ids so that no trace is in both sets. With a single trace, or no share, both are all turns."""
    order = shuffled_ids(dict.fromkeys(turn.trace_id for turn in turns), SPLIT_SEED)
    count = max(1, round(test_share * len(order))) if test_share and len(order) > 1 else 0
    held_out = set(order[:count])
    test = tuple(turn.turn_id for turn in turns if turn.trace_id in held_out)
    train = tuple(turn.turn_id for turn in turns if turn.trace_id not in held_out)
    return (train, test) if held_out else (train, train)


def unknown_pivot(task_id: str, pivots: PivotSet) -> InputError:
    """Return the error for a turn that the file does not hold."""
    return unknown("pivot task", task_id, [next(iter(pivots.turns))])


def _read(pivots: str) -> list[Turn]:
    if not pivots:
        from rl_agents.envs.pivot.desk import desk_turns

        return desk_turns()
    from rl_agents.traces.store import read_turns

    return read_turns(Path(pivots))
