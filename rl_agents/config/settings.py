"""The configuration of a run: a flat object whose keys are declared in `sections` and by the algorithms."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from rl_agents import plugins
from rl_agents.config import sections
from rl_agents.config.aliases import canonical, unknown_key
from rl_agents.config.options import Key, keys_of
from rl_agents.errors import InputError

#: Keys that ``--local`` sets.
LOCAL_KEYS: Mapping[str, Any] = {"num_env_runners": 0, "num_learners": 0, "engine": "torch"}
#: Keys without training: no learner actors, no truncation, and the environment's rewards.
EVALUATION_KEYS: Mapping[str, Any] = {"num_learners": 0, "truncation": "none", "reward": "environment"}


# Data classes take their fields from the last base to the first: this lists the sections backwards.
@dataclass(init=False, eq=False, repr=False)
class Settings(
    sections.ReportKeys,
    sections.OptimizerKeys,
    sections.DemonstrationKeys,
    sections.CriticKeys,
    sections.PolicyGradientKeys,
    sections.TeacherKeys,
    sections.ExpertKeys,
    sections.LossKeys,
    sections.OverlongKeys,
    sections.DynamicSamplingKeys,
    sections.SearchKeys,
    sections.DiscountKeys,
    sections.EngineKeys,
    sections.RewardKeys,
    sections.TruncationKeys,
    sections.PoolKeys,
    sections.AsyncKeys,
    sections.RolloutKeys,
    sections.ModelKeys,
    sections.RunKeys,
):
    """The configuration of a run: every key in `KEYS` is an attribute. Read-only once the algorithm is built."""

    #: Pickled by this name, so that a process that receives settings has the keys of all algorithms.
    __module__ = "rl_agents.algorithms"

    def __init__(self) -> None:
        self._fill()
        #: The environment's own keys, without ``env.``.
        self.env_options: dict[str, Any] = {}
        #: Keys that were set explicitly; algorithm defaults do not override them.
        self.explicit: set[str] = set()
        #: Already resolved: resolving again only checks.
        self.complete = False
        #: Measurements of prompts and lengths, for a run's first lines; empty until then (`trainer.lengths`).
        self.lengths = ""
        #: The chosen engine and the reason (`trainer.engine_choice`); empty until then, and if one was set.
        self.engine_choice = ""
        #: The only task set that is played, for an evaluation without training; empty: a run, which has both.
        self.only_split = ""

    def _fill(self) -> None:
        """Set keys without a value to their defaults."""
        for name, key in KEYS.items():
            if name not in vars(self):
                setattr(self, name, copy.copy(key.default))

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        # A process that receives settings needs the plugins that register their names.
        self.__dict__.update(state)
        plugins.load(state.get("plugins", ()))

    def to_dict(self) -> dict[str, Any]:
        """Plain data in declaration order, ``env.KEY`` flattened; `from_dict` is its inverse."""
        own = {f"env.{name}": value for name, value in self.env_options.items()}
        return copy.deepcopy({**{name: getattr(self, name) for name in KEYS}, **own})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Build from plain data. Raises `InputError`: unknown key, or a value of the wrong type or out of range."""
        settings = cls()
        settings.update(data)
        return settings

    @classmethod
    def restored(cls, data: Mapping[str, Any], file: Path | str = "config.yaml") -> Self:
        """Build from what a run saved, which is complete: no later default replaces its values.

        Raises:
            InputError: a key that this version does not have; the message names the file.
        """
        found, settings = canonical(data, note=False), cls()
        settings.update({"plugins": found.get("plugins", [])})  # they declare keys, too
        for name in found:
            if name not in KEYS and not name.startswith("env."):
                raise InputError(f"{file}: key '{name}': this version does not have it")
        settings.update(found)
        settings.explicit, settings.complete = set(), True
        return settings

    def update(self, data: Mapping[str, Any]) -> None:
        """Set keys in place; types and ranges are checked. Plugins that they name are loaded first.

        Raises:
            InputError: unknown key, a value of the wrong type or out of range, or a plugin that cannot be loaded.
        """
        if "plugins" in data:
            named = [*plugins.ASKED, *KEYS["plugins"].read(data["plugins"])]
            plugins.load(named)
            data = {**data, "plugins": list(dict.fromkeys(map(plugins.located, named)))}
        plugins.load()
        self._fill()
        for name, value in canonical(data).items():
            if name.startswith("env."):
                self.env_options[name.removeprefix("env.")] = value
            elif name not in KEYS:
                raise unknown_key(name, KEYS)
            else:
                setattr(self, name, KEYS[name].read(value))
            self.explicit.add(name)

    def set_defaults(self, data: Mapping[str, Any]) -> None:
        """Like `update`, for keys that were not set explicitly; later defaults may replace the values."""
        if self.complete:
            return
        fresh = {name: value for name, value in data.items() if name not in self.explicit}
        chosen = set(self.explicit)
        self.update(fresh)
        self.explicit = chosen

    def make_local(self, given: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Set `LOCAL_KEYS`: run in a single process, without Ray actors.

        Args:
            given: keys that were set explicitly.

        Raises:
            InputError: one of them contradicts `LOCAL_KEYS`.
        """
        for name, value in LOCAL_KEYS.items():
            if given.get(name, value) not in (value, "auto"):
                raise InputError(f"--local means {name}={value}, but {name}={given[name]} is given")
        self.update(LOCAL_KEYS)


#: Every key of a run by name: those of the sections, and those that only algorithms read (`declare`).
KEYS: dict[str, Key] = dict(keys_of(Settings))


def declare(keys: type) -> None:
    """Add an algorithm's keys to those of a run.

    Raises:
        ValueError: another algorithm declares one of them with another type or default.
    """
    own = keys_of(keys)
    for name, key in own.items():
        known = KEYS.get(name, key)
        if (known.kind, known.default) != (key.kind, key.default):
            raise ValueError(f"key {name} has another type or default elsewhere")
    KEYS.update({name: key for name, key in own.items() if name not in KEYS})
