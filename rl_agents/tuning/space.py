"""The search space of a sweep: grids and ranges, and the trials that they make."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_agents.algorithms import Settings
from rl_agents.config.options import option_types
from rl_agents.errors import InputError, unknown

#: A sweep beyond this is a mistyped range rather than a plan.
MAX_TRIALS = 10_000
RANGE_KEYS = ("low", "high", "log")


@dataclass(frozen=True)
class Grid:
    """Every one of some values."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Range:
    """Numbers drawn from [low, high], evenly or evenly in their logarithm; rounded for a key of whole numbers."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def at(self, share: float) -> float:
        """Return the value below which ``share`` (0 to 1) of all draws lie."""
        if self.log:
            value = math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + share * (self.high - self.low)
        # Five digits are more than any sweep resolves, and can be read in tables and folder names.
        return round(value) if self.whole else float(f"{value:.5g}")

    def clamp(self, value: float) -> float:
        """Return the nearest value inside the range."""
        inside = min(max(value, self.low), self.high)
        return round(inside) if self.whole else inside


Choice = Grid | Range


@dataclass(frozen=True)
class TrialSpec:
    """One run of a sweep.

    Attributes:
        name: its folder under ``trials/``, in the order of the sweep.
        point: the number of its point; trials of one point differ by their seed alone.
        keys: the values of the space's keys.
        seed: of the run.
    """

    name: str
    point: int
    keys: Mapping[str, Any]
    seed: int


def parse_choice(name: str, value: Any) -> Choice:
    """Read one entry of ``space``: a list of values, or a mapping with ``low``, ``high`` and perhaps ``log``.

    Raises:
        InputError: neither, or a range that is none.
    """
    if isinstance(value, list):
        if not value:
            raise InputError(f"space: {name}: the list is empty")
        if any(value.index(item) != position for position, item in enumerate(value)):
            raise InputError(f"space: {name}: a value stands twice in {value}")
        return Grid(tuple(value))
    if not isinstance(value, dict):
        raise InputError(f"space: {name}: write a list of values, or {{low: A, high: B, log: true}}, not {value!r}")
    for key in value:
        if key not in RANGE_KEYS:
            raise unknown(f"key of the range of {name}", str(key), RANGE_KEYS)
    return _parse_range(name, value)


def _parse_range(name: str, value: Mapping[str, Any]) -> Range:
    kind = option_types(Settings).get(name, float)
    if kind not in (int, float):
        raise InputError(f"space: {name}: a range needs a key that is a number; write a list of values")
    try:
        low, high = float(value["low"]), float(value["high"])
    except KeyError as error:
        raise InputError(f"space: {name}: the range lacks '{error.args[0]}'") from None
    except (TypeError, ValueError):
        raise InputError(f"space: {name}: low and high must be numbers") from None
    log = value.get("log", False)
    if not isinstance(log, bool):
        raise InputError(f"space: {name}: log='{log}': true or false is needed")
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(f"space: {name}: low={low:g} must be below high={high:g}")
    if log and low <= 0:
        raise InputError(f"space: {name}: low={low:g}: a logarithmic range lies above 0")
    return Range(low, high, log, whole=kind is int)


def expand(space: Mapping[str, Choice], samples: int, seeds: int, first_seed: int) -> list[TrialSpec]:
    """Return all trials: every combination of the grids, ``samples`` draws of the ranges for each, all seeds of both.

    Draws depend on the names of the keys and ``first_seed`` alone, so a resumed sweep has the same trials. The
    draws of one key are stratified (Latin hypercube): one in each of as many equal parts of its range.

    Raises:
        InputError: more than 10,000 trials.
    """
    grids = {name: choice.values for name, choice in space.items() if isinstance(choice, Grid)}
    count = math.prod(len(values) for values in grids.values()) * samples * seeds
    if count > MAX_TRIALS:
        raise InputError(f"space: {count} trials, {MAX_TRIALS} at most")
    combinations = [dict(zip(grids, values, strict=True)) for values in itertools.product(*grids.values())]
    points = [(combination, sample) for combination in combinations for sample in range(samples)]
    draws = {
        name: _stratified(choice, len(points), f"{first_seed}/{name}")
        for name, choice in space.items()
        if isinstance(choice, Range)
    }
    trials: list[TrialSpec] = []
    for point, (combination, _) in enumerate(points):
        keys = {name: combination[name] if name in combination else draws[name][point] for name in space}
        for seed in range(first_seed, first_seed + seeds):
            trials.append(TrialSpec(trial_name(len(trials), keys, seed if seeds > 1 else None), point, keys, seed))
    return trials


def _stratified(choice: Range, count: int, stream: str) -> list[float]:
    rng = random.Random(stream)
    shares = [(part + rng.random()) / count for part in range(count)]
    rng.shuffle(shares)
    return [choice.at(share) for share in shares]


def trial_name(index: int, keys: Mapping[str, Any], seed: int | None) -> str:
    """Return ``003-vspo_alpha=2.0,seed=1``: sorts in the order of the sweep, is a file name, and is not too long.

    >>> trial_name(3, {"vspo_alpha": 2.0, "model": "a/b"}, 1)
    '003-vspo_alpha=2.0,model=a_b,seed=1'
    """
    parts = [f"{name}={short(value)}" for name, value in keys.items()]
    text = ",".join([*parts, *([] if seed is None else [f"seed={seed}"])])
    return f"{index:03d}-{re.sub(r'[^A-Za-z0-9_.,=+-]', '_', text)}"[:100]


def short(value: Any) -> str:
    """Write a value of the space for people: 5 digits of a number, no blanks in a list."""
    if isinstance(value, float):
        return repr(float(f"{value:.5g}"))
    return ",".join(map(short, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)
