"""Sweep files: recipe, varied keys, number of runs, and scheduler."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from rl_agents.algorithms import KEYS, Settings
from rl_agents.config import load_recipe
from rl_agents.config.aliases import canonical, unknown_key
from rl_agents.config.loading import load_preset, preset_files, yaml_text
from rl_agents.config.options import key, keys_of, read_options
from rl_agents.config.settings import LOCAL_KEYS
from rl_agents.errors import InputError, unknown
from rl_agents.trainer.unused_keys import idle_of

#: A larger sweep is probably a typo.
MAX_TRIALS = 10_000
RANGE_KEYS = ("low", "high", "log")


@dataclass(frozen=True)
class Grid:
    """A list of values."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Range:
    """Numbers from [low, high], uniform or log-uniform; rounded for a key of whole numbers."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def at(self, share: float) -> float:
        """Return the quantile of ``share`` (0 to 1)."""
        margin = 0.5 if self.whole else 0.0
        low, high = self.low - margin, self.high + margin
        if self.log:
            value = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
        else:
            value = low + share * (high - low)
        if self.whole:
            return min(max(round(value), math.ceil(self.low)), math.floor(self.high))
        return float(f"{value:.5g}")  # five digits suffice, and are readable in tables and folder names


Choice = Grid | Range


@dataclass(frozen=True)
class TrialSpec:
    """One run of a sweep.

    Attributes:
        name: its folder under ``trials/``, which sorts in the order of the sweep.
        point: number of its point; trials of a point differ only in their seed.
        keys: values of the space's keys.
    """

    name: str
    point: int
    keys: Mapping[str, Any]
    seed: int


def parse_choice(name: str, value: Any) -> Choice:
    """Read an entry of ``space``: a list of values, or a mapping with ``low``, ``high`` and optionally ``log``.

    Raises:
        InputError: neither, or an invalid range.
    """
    if isinstance(value, list):
        if not value:
            raise InputError(f"space: {name}: the list is empty")
        if any(value.index(item) != position for position, item in enumerate(value)):
            raise InputError(f"space: {name}: a value occurs twice in {value}")
        return Grid(tuple(value))
    if not isinstance(value, dict):
        raise InputError(f"space: {name}: write a list of values, or {{low: A, high: B, log: true}}, not {value!r}")
    for part in value:
        if part not in RANGE_KEYS:
            raise unknown(f"key of the range of {name}", str(part), RANGE_KEYS)
    return _parse_range(name, value)


def _parse_range(name: str, value: Mapping[str, Any]) -> Range:
    kind = KEYS[name].kind if name in KEYS else float
    if kind not in (int, float):
        raise InputError(f"space: {name}: only a number can have a range; write a list of values")
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
    if log and low <= (least := 0.5 if kind is int else 0):
        raise InputError(f"space: {name}: low={low:g}: must be above {least:g} with log: true")
    return Range(low, high, log, whole=kind is int)


def expand(space: Mapping[str, Choice], samples: int, seeds: int, first_seed: int) -> list[TrialSpec]:
    """Return all trials: every combination of the grids with ``samples`` draws of the ranges each, with all seeds.

    Draws depend only on the names of the keys and ``first_seed``, so a resumed sweep has the same trials. The draws
    of a key are stratified (Latin hypercube), with one in each of equally many parts of its range.

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
    """Return ``003-vspo_alpha=2.0,seed=1``, a short file name that sorts in the order of the sweep.

    >>> trial_name(3, {"vspo_alpha": 2.0, "model": "a/b"}, 1)
    '003-vspo_alpha=2.0,model=a_b,seed=1'
    """
    parts = [f"{name}={short(value)}" for name, value in keys.items()]
    text = ",".join([*parts, *([] if seed is None else [f"seed={seed}"])])
    return f"{index:03d}-{re.sub(r'[^A-Za-z0-9_.,=+-]', '_', text)}"[:100]


def short(value: Any) -> str:
    """Return a value of the space as text: 5 digits of a number, no spaces in a list."""
    if isinstance(value, float):
        return repr(float(f"{value:.5g}"))
    return ",".join(map(short, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)


@dataclass(frozen=True)
class Asha:
    """Asynchronous successive halving (Li et al. 2020, arXiv 1810.05934)."""

    grace: int = key(10, "iterations that every trial gets", ge=1)
    reduction: float = key(
        3.0, "eta: at the iterations grace * eta^k the best 1/eta of the trials seen so far continue", gt=1
    )


@dataclass(frozen=True)
class SweepOptions:
    """Keys of a sweep file besides ``recipe``, ``set``, ``space`` and ``asha``."""

    name: str = key("", "name in tables; default: the file name without .yaml")
    samples: int = key(1, "draws of the ranges for each combination of the grids", ge=1)
    seeds: int = key(1, "runs of each point, with the seeds `seed`, `seed + 1`, ...", ge=1)
    metric: str = key("eval/success_rate", "the metric to compare: a tag of metrics.jsonl")
    mode: Literal["max", "min"] = key("max", "whether large or small values are better")
    max_failures: int = key(2, "restarts of a failed trial, each from its last checkpoint", ge=0)
    max_concurrent: int = key(0, "trials at a time; 0: as many as fit on the cluster", ge=0)
    autoscaling: bool = key(False, "the cluster may grow, so a trial that does not fit waits")
    local: bool = key(False, "run every trial in a single process with the torch engine")


#: Keys of a sweep with plain values.
PLAIN_KEYS = tuple(keys_of(SweepOptions))
NESTED_KEYS = ("recipe", "set", "space", "asha")


@dataclass(frozen=True)
class Sweep(SweepOptions):
    """A checked sweep.

    Attributes:
        keys: keys of all trials, from the recipe, ``set``, and ``--set`` of the command line.
        space: varied keys.
        source: contents of the file.
    """

    keys: Mapping[str, Any] = field(default_factory=dict)
    space: Mapping[str, Choice] = field(default_factory=dict)
    asha: Asha | None = None
    source: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def trials(self) -> list[TrialSpec]:
        """All runs in order, the same on every machine."""
        return expand(self.space, self.samples, self.seeds, self.first_seed)

    @property
    def first_seed(self) -> int:
        return int(KEYS["seed"].read(self.keys.get("seed", 0)))

    def trial(self, name: str) -> TrialSpec:
        return next(trial for trial in self.trials if trial.name == name)

    def settings(self, trial: TrialSpec) -> Settings:
        """Return the unresolved settings of a trial, without keys that have no effect.

        Raises:
            InputError: a key is unknown or its value has the wrong type.
        """
        given = {**self.keys, **trial.keys, "seed": trial.seed}
        idle = idle_of(self.run_keys(given))
        settings = Settings.from_dict({name: value for name, value in given.items() if name not in idle})
        if self.local:
            settings.make_local(given)
        if Path(settings.model).is_dir():  # trials run in other processes
            settings.model = str(Path(settings.model).resolve())
        return settings

    def run_keys(self, keys: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``keys`` with `LOCAL_KEYS` if the sweep is local."""
        return {**keys, **(LOCAL_KEYS if self.local else {})}

    def to_yaml(self) -> str:
        """Return an equal sweep file that does not need the recipe's file."""
        plain = {name: getattr(self, name) for name in PLAIN_KEYS}
        asha = {} if self.asha is None else {"asha": asdict(self.asha)}
        data = {"set": dict(self.keys), "space": self.source["space"], **plain, **asha}
        return yaml_text(data)


def load_sweep(path: Path, assignments: Mapping[str, Any] | None = None, local: bool = False) -> Sweep:
    """Read a sweep file.

    Args:
        path: the file; its ``recipe`` is relative to its folder.
        assignments: ``--set`` of the command line.
        local: run every trial in a single process, regardless of the file.

    Raises:
        InputError: with the file and the key.
    """
    data = load_recipe(str(path))
    try:
        return _sweep({"name": path.stem, **data}, path.parent, assignments or {}, local)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _sweep(data: dict[str, Any], folder: Path, assignments: Mapping[str, Any], local: bool) -> Sweep:
    for name in data:
        if name not in PLAIN_KEYS + NESTED_KEYS:
            hint = " (keys of the runs belong under `set` or `space`)" if name in KEYS else ""
            raise InputError(f"{unknown('key of a sweep', name, PLAIN_KEYS + NESTED_KEYS)}{hint}")
    space = {str(name): parse_choice(str(name), value) for name, value in canonical(_mapping(data, "space")).items()}
    keys = {**_recipe(data, folder), **canonical(_mapping(data, "set")), **assignments}
    if plugins := Settings.from_dict({"plugins": keys.get("plugins", [])}).plugins:
        keys["plugins"] = plugins  # including those of --import
    options = read_options(SweepOptions, {name: data[name] for name in PLAIN_KEYS if name in data})
    asha = read_options(Asha, _mapping(data, "asha"), prefix="asha.") if "asha" in data else None
    plain = {**asdict(options), "local": local or options.local}
    sweep = Sweep(keys=keys, space=space, asha=asha, source=data, **plain)
    _check(sweep, assignments)
    return sweep


def _recipe(data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    if "recipe" not in data:
        return {}
    file = folder / str(data["recipe"])
    by_name = not file.is_file() and file.parent == folder and str(data["recipe"]) in preset_files()
    return load_preset(str(data["recipe"])) if by_name else load_recipe(str(file))


def _mapping(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = data.get(name) or {}
    if not isinstance(value, dict):
        raise InputError(f"{name}: a mapping of keys is needed, found {type(value).__name__}")
    return {str(name): item for name, item in value.items()}


def _check(sweep: Sweep, assignments: Mapping[str, Any]) -> None:
    if not re.fullmatch(r"[\w.-]+", sweep.name):
        raise InputError(f"name='{sweep.name}': only letters, digits, dots and dashes, since it names a folder")
    if not sweep.space:
        raise InputError("space: no key varies; for a single run use: run.py --config RECIPE")
    for where, names in (("space", sweep.space), ("set", sweep.keys)):
        for name in names:
            if name not in KEYS and not name.startswith("env."):
                raise InputError(f"{where}: {unknown_key(name, KEYS)}")
    for name in sweep.space:
        if name in assignments:
            raise InputError(f"--set {name}={assignments[name]}: the sweep varies {name} itself")
    if "seed" in sweep.space:
        raise InputError("space: seed cannot vary; write `seeds: N` for N runs of each point")
    if sweep.samples > 1 and not any(isinstance(choice, Range) for choice in sweep.space.values()):
        raise InputError(f"samples={sweep.samples}: there is no range to draw from; write `seeds: N` to repeat points")
    _check_idle(sweep)
    _ = sweep.trials  # raises if there are too many


def _check_idle(sweep: Sweep) -> None:
    keys = [sweep.run_keys({**sweep.keys, **trial.keys}) for trial in sweep.trials]
    idle = [idle_of(trial) for trial in keys]
    for name, reason in idle[0].items():
        if all(name in other for other in idle):
            raise InputError(f"key '{name}' {reason}" + (" in any trial" if len(idle) > 1 else ""))
