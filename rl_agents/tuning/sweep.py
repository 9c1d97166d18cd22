"""A sweep file: which recipe, which keys vary, how often, and who decides when a trial may stop."""

from __future__ import annotations

import re
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from rl_agents.errors import InputError, unknown
from rl_agents.settings import FIELD_TYPES, Settings, load_recipe
from rl_agents.settings.options import coerce
from rl_agents.settings.sections import EngineKeys, ModelKeys, RunKeys
from rl_agents.tuning.space import Choice, Range, TrialSpec, expand, parse_choice

#: Keys of a sweep that are read as they are, with their types from `Sweep`.
PLAIN_KEYS = ("name", "samples", "seeds", "metric", "mode", "max_failures", "max_concurrent", "autoscaling", "local")
NESTED_KEYS = ("recipe", "set", "space", "asha", "pbt")


@dataclass(frozen=True)
class Asha:
    """Asynchronous successive halving (Li et al. 2020, arXiv 1810.05934).

    Attributes:
        grace: iterations that every trial gets.
        reduction: eta; at the iterations grace · eta^k the best 1/eta of all trials that came so far go on.
    """

    grace: int = 10
    reduction: float = 3.0


@dataclass(frozen=True)
class Pbt:
    """Population based training (Jaderberg et al. 2017, arXiv 1711.09846).

    Attributes:
        interval: iterations between two looks at the population.
        quantile: share of the population at its end that takes over weights and keys of the same share at its top.
        resample: probability of drawing a key anew instead of multiplying it by 0.8 or 1.2.
    """

    interval: int = 10
    quantile: float = 0.25
    resample: float = 0.25


Part = TypeVar("Part", Asha, Pbt)


@dataclass(frozen=True)
class Sweep:
    """A checked sweep.

    Attributes:
        name: what tables and pictures call it; the file's name without ``.yaml`` unless it says otherwise.
        keys: the keys that all trials share: recipe, ``set``, and ``--set`` of the command line.
        space: the keys that vary.
        samples: draws of the ranges for each combination of the grids.
        seeds: runs of each point, with the seeds ``seed``, ``seed + 1``, ...
        metric: what is compared: a tag of metrics.jsonl.
        mode: whether large or small values of it are good.
        max_failures: restarts of a failed trial, each from its last checkpoint.
        max_concurrent: trials at a time; 0: as many as the cluster has room for.
        autoscaling: the cluster may grow, so a trial that does not fit waits.
        local: every trial in one process with the torch engine.
    """

    name: str
    keys: Mapping[str, Any]
    space: Mapping[str, Choice]
    samples: int = 1
    seeds: int = 1
    metric: str = "eval/success_rate"
    mode: Literal["max", "min"] = "max"
    max_failures: int = 2
    max_concurrent: int = 0
    autoscaling: bool = False
    local: bool = False
    asha: Asha | None = None
    pbt: Pbt | None = None
    source: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def trials(self) -> list[TrialSpec]:
        """All runs, in order; the same at every call and on every machine."""
        return expand(self.space, self.samples, self.seeds, self.first_seed)

    @property
    def first_seed(self) -> int:
        """Seed of the first run of each point."""
        return int(self.keys.get("seed", 0))

    def trial(self, name: str) -> TrialSpec:
        """Return the trial called ``name``."""
        return next(trial for trial in self.trials if trial.name == name)

    def settings(self, trial: TrialSpec, keys: Mapping[str, Any] | None = None) -> Settings:
        """Return the settings of a trial, not resolved yet.

        Args:
            trial: which one.
            keys: values of the space's keys when they are no longer the trial's own (population based training).

        Raises:
            InputError: a key is unknown or its value has the wrong type.
        """
        settings = Settings()
        given = {**self.keys, **(trial.keys if keys is None else keys), "seed": trial.seed}
        settings.update(given)
        if self.local:
            settings.make_local(given)
        if settings.model != "starter":  # trials run in other processes, elsewhere
            settings.model = str(Path(settings.model).resolve())
        return settings

    def to_yaml(self) -> str:
        """Return the text of a sweep file that says the same without the recipe's file."""
        plain = {name: getattr(self, name) for name in PLAIN_KEYS}
        parts = {name: asdict(part) for name in ("asha", "pbt") if (part := getattr(self, name)) is not None}
        data = {"set": dict(self.keys), "space": self.source["space"], **plain, **parts}
        return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)


def load_sweep(path: Path, assignments: Mapping[str, Any] | None = None, local: bool = False) -> Sweep:
    """Read a sweep file.

    Args:
        path: the file; ``recipe`` in it is relative to its folder.
        assignments: ``--set`` of the command line.
        local: run every trial in one process, whatever the file says.

    Raises:
        InputError: naming the file and the key that cannot work.
    """
    data = load_recipe(str(path))
    try:
        return _sweep({"name": path.stem, **data}, path.parent, assignments or {}, local)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _sweep(data: dict[str, Any], folder: Path, assignments: Mapping[str, Any], local: bool) -> Sweep:
    for name in data:
        if name not in PLAIN_KEYS + NESTED_KEYS:
            hint = " (keys of the runs belong under `set` or `space`)" if name in FIELD_TYPES else ""
            raise InputError(f"{unknown('key of a sweep', name, PLAIN_KEYS + NESTED_KEYS)}{hint}")
    space = {str(name): parse_choice(str(name), value) for name, value in _mapping(data, "space").items()}
    keys = {**_recipe(data, folder), **_mapping(data, "set"), **assignments}
    types = typing.get_type_hints(Sweep)
    plain = {name: coerce(name, data[name], types[name]) for name in PLAIN_KEYS if name in data}
    sweep = Sweep(
        keys=keys, space=space, asha=_part(data, "asha", Asha), pbt=_part(data, "pbt", Pbt), source=data,
        **{**plain, "local": local or plain.get("local", False)},
    )  # fmt: skip
    _check(sweep, assignments)
    return sweep


def _recipe(data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    return load_recipe(str(folder / str(data["recipe"]))) if "recipe" in data else {}


def _mapping(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = data.get(name) or {}
    if not isinstance(value, dict):
        raise InputError(f"{name}: a mapping of keys is needed, found {type(value).__name__}")
    return {str(key): item for key, item in value.items()}


def _part(data: Mapping[str, Any], name: str, kind: type[Part]) -> Part | None:
    if name not in data:
        return None
    given, types = _mapping(data, name), typing.get_type_hints(kind)
    for key in given:
        if key not in types:
            raise unknown(f"key of {name}", key, types)
    return kind(**{key: coerce(f"{name}.{key}", value, types[key]) for key, value in given.items()})


def _check(sweep: Sweep, assignments: Mapping[str, Any]) -> None:
    if not re.fullmatch(r"[\w.-]+", sweep.name):
        raise InputError(f"name='{sweep.name}': letters, digits, dots and dashes only, it names a folder")
    if not sweep.space:
        raise InputError("space: no key varies; for one run use: python run.py --config RECIPE")
    valid = [*(name for name in FIELD_TYPES if name != "env_options"), "env.KEY"]
    for where, names in (("space", sweep.space), ("set", sweep.keys)):
        for name in names:
            if name not in valid and not name.startswith("env."):
                raise InputError(f"{where}: {unknown('key', name, valid)}")
    for name in sweep.space:
        if name in assignments:
            raise InputError(f"--set {name}={assignments[name]}: the sweep varies {name} itself")
    if "seed" in sweep.space:
        raise InputError("space: seed is no key to choose by; write `seeds: N` for N runs of each point")
    _check_numbers(sweep)
    _ = sweep.trials  # too many are refused here
    _check_schedulers(sweep)


def _check_numbers(sweep: Sweep) -> None:
    for name, least in (("samples", 1), ("seeds", 1), ("max_failures", 0), ("max_concurrent", 0)):
        if getattr(sweep, name) < least:
            raise InputError(f"{name}={getattr(sweep, name)}: must be at least {least}")
    if sweep.samples > 1 and not any(isinstance(choice, Range) for choice in sweep.space.values()):
        raise InputError(f"samples={sweep.samples}: there is no range to draw from; write `seeds: N` to repeat points")


def _check_schedulers(sweep: Sweep) -> None:
    if sweep.asha and sweep.pbt:
        raise InputError("asha and pbt exclude each other")
    if sweep.asha and (sweep.asha.grace < 1 or sweep.asha.reduction <= 1):
        raise InputError(f"asha: grace={sweep.asha.grace} must be at least 1, reduction={sweep.asha.reduction} above 1")
    if sweep.pbt is None:
        return
    if sweep.pbt.interval < 1 or not 0 < sweep.pbt.quantile <= 0.5 or not 0 <= sweep.pbt.resample <= 1:
        raise InputError(
            f"pbt: interval={sweep.pbt.interval} must be at least 1, quantile={sweep.pbt.quantile} in (0, 0.5], "
            f"resample={sweep.pbt.resample} in [0, 1]"
        )
    if sweep.seeds > 1:
        raise InputError("pbt: trials learn from each other, so `seeds` has no meaning; run the sweep again instead")
    if len(sweep.trials) < 2:
        raise InputError("pbt: a population needs at least 2 trials; raise `samples`")
    if sweep.max_concurrent:
        raise InputError("pbt: members take turns where there is no room for all; leave max_concurrent at 0")
    for name in sweep.space:
        if name.startswith("env.") or name in fixed_keys():
            raise InputError(f"pbt: {name} cannot change during a run")


def fixed_keys() -> set[str]:
    """Keys that make a run what it is, so that no checkpoint of another value can be taken over."""
    return {key.name for section in (RunKeys, ModelKeys, EngineKeys) for key in fields(section)}
