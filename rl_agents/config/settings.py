"""The configuration of a run: one flat data class, whose keys stand in `sections`, `learning` and `search`.

`rl_agents.algorithms.Settings` adds the keys of all algorithms; whoever builds settings takes that one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

from rl_agents import plugins
from rl_agents.config.aliases import canonical, unknown_key
from rl_agents.config.learning import (
    CriticKeys,
    DemonstrationKeys,
    DiscountKeys,
    DynamicSamplingKeys,
    LossKeys,
    OptimizerKeys,
    OverlongKeys,
    RatioKeys,
)
from rl_agents.config.migration import migrated
from rl_agents.config.options import coerce, option_types
from rl_agents.config.search import SearchKeys
from rl_agents.config.sections import (
    AsyncKeys,
    EngineKeys,
    ModelKeys,
    PoolKeys,
    ReportKeys,
    RewardKeys,
    RolloutKeys,
    RunKeys,
    TruncationKeys,
)
from rl_agents.errors import InputError

#: What ``--local`` means.
LOCAL_KEYS: Mapping[str, Any] = {"num_env_runners": 0, "num_learners": 0, "engine": "torch"}


# Data classes take their fields from the last base to the first: this lists the sections backwards.
@dataclass
class Settings(
    ReportKeys,
    OptimizerKeys,
    DemonstrationKeys,
    CriticKeys,
    RatioKeys,
    LossKeys,
    OverlongKeys,
    DynamicSamplingKeys,
    SearchKeys,
    DiscountKeys,
    EngineKeys,
    RewardKeys,
    TruncationKeys,
    PoolKeys,
    AsyncKeys,
    RolloutKeys,
    ModelKeys,
    RunKeys,
):
    """The configuration of a run. Read-only once the algorithm is built."""

    def __post_init__(self) -> None:
        #: Keys that somebody chose; algorithm defaults do not override them.
        self.explicit: set[str] = set()
        #: Resolved already: resolving again only checks.
        self.complete = False
        #: What was measured of prompts and lengths, for a run's first lines; empty until it is (`trainer.lengths`).
        self.lengths = ""
        #: Which engine it is and why (`trainer.engine_choice`); empty until then, and where one was asked for.
        self.engine_choice = ""

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        # Whoever receives settings from another process needs what their names stand for.
        self.__dict__.update(state)
        plugins.load(state.get("plugins", ()))

    def to_dict(self) -> dict[str, Any]:
        """Plain data in declaration order, ``env.KEY`` flattened; `from_dict` is its inverse."""
        data = dataclasses.asdict(self)
        options = data.pop("env_options")
        return {**data, **{f"env.{name}": value for name, value in options.items()}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Build from plain data.

        Raises:
            InputError: unknown key or a value of the wrong type.
        """
        settings = cls()
        settings.update(data)
        return settings

    @classmethod
    def restored(cls, data: Mapping[str, Any]) -> Self:
        """Build from a run's config.yaml, which is complete: no later default replaces a value of it.

        Raises:
            InputError: it is of an earlier version, and a value of it has no successor; unknown keys.
        """
        settings = cls()
        settings.set_defaults(migrated(data))
        settings.complete = True
        return settings

    def update(self, data: Mapping[str, Any]) -> None:
        """Set keys in place; values are checked against the field's type. Plugins that they name are loaded first.

        Raises:
            InputError: unknown key, a value of the wrong type, or a plugin that cannot be loaded.
        """
        if "plugins" in data:
            named = [*plugins.ASKED, *coerce("plugins", data["plugins"], list[str])]
            plugins.load(named)
            data = {**data, "plugins": list(dict.fromkeys(map(plugins.located, named)))}
        plugins.load()
        types = option_types(type(self))
        for name, value in canonical(data).items():
            if name.startswith("env."):
                self.env_options[name.removeprefix("env.")] = value
            elif name not in types or name == "env_options":
                raise unknown_key(name, types)
            else:
                setattr(self, name, coerce(name, value, types[name]))
            self.explicit.add(name)

    def set_defaults(self, data: Mapping[str, Any]) -> None:
        """Like `update`, for keys that nobody chose; they stay open to later defaults."""
        if self.complete:
            return
        fresh = {name: value for name, value in data.items() if name not in self.explicit}
        chosen = set(self.explicit)
        self.update(fresh)
        self.explicit = chosen

    def make_local(self, given: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Set `LOCAL_KEYS`: no actors, everything in this process.

        Args:
            given: keys that somebody chose.

        Raises:
            InputError: one of them says otherwise.
        """
        for name, value in LOCAL_KEYS.items():
            if given.get(name, value) not in (value, "auto"):
                raise InputError(f"--local means {name}={value}, but {name}={given[name]} is given")
        self.update(LOCAL_KEYS)
