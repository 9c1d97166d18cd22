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
from rl_agents.config.aliases import canonical, nearest_key, unknown_key
from rl_agents.config.options import Key, keys_of, read_options
from rl_agents.errors import InputError

#: Keys that ``--local`` sets.
LOCAL_KEYS: Mapping[str, Any] = {"num_env_runners": 0, "num_learners": 0, "engine": "torch"}
#: Keys without training: no learner actors, no truncation, and the environment's rewards.
EVALUATION_KEYS: Mapping[str, Any] = {"num_learners": 0, "truncation": "none", "reward": "environment"}
#: Keys that each of several environments may set for itself. All others hold for the run.
OWN_KEYS = (
    "max_turns", "max_response_tokens", "max_model_len", "max_observation_characters", "context", "max_summary_tokens",
    "prompting", "env_timeout_s", "env_start_timeout_s", "env_blocking", "env_concurrency",
    *keys_of(sections.TruncationKeys), *keys_of(sections.RewardKeys),
)  # fmt: skip
#: Between the name of an environment and its task, in the task ids of a run over several.
SEPARATOR = "::"


def of_the_run(name: str) -> InputError:
    """Build the error for a key that one of several environments cannot have for itself."""
    return InputError(f"'{name}' holds for the whole run: write it outside of `environments`")


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
        #: The keys are those of a run's config.yaml: no default replaces any value.
        self.complete = False
        #: Checked on this machine (`trainer.measure`), so that a run can start.
        self.measured = False
        #: Measurements of prompts and lengths, for a run's first lines; empty until then.
        self.lengths = ""
        #: The chosen engine and the reason; empty until then, and if one was set.
        self.engine_choice = ""
        #: The only task set that is played, for an evaluation without training; empty: a run, which has both.
        self.only_split = ""
        #: The settings of each of several environments by name, as of a run over it alone; empty for a run over one.
        self.parts: dict[str, Settings] = {}
        #: The recipe that the environments are from; empty: the command line.
        self.source = ""
        #: Of one of several environments: its share relative to the others', what begins its task ids, and the
        #: algorithm of its advantages; empty: the run's.
        self.weight, self.task_prefix, self.advantages = 1.0, "", ""

    @property
    def each(self) -> Mapping[str, Settings]:
        """The settings of every environment by name; a run over one has its own."""
        return self.parts or {self.env: self}

    def of(self, task_id: str) -> Settings:
        """Return the settings of the environment of a task."""
        return self.parts[task_id.partition(SEPARATOR)[0]] if self.parts else self

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

        Raises `InputError`: a key that this version does not have; the message names the file.
        """
        found, settings = canonical(data), cls()
        settings.update({"plugins": found.get("plugins", [])})  # they declare keys, too
        for name in found:
            if name not in KEYS and not name.startswith("env."):
                raise InputError(f"{file}: this version has no key '{name}'; {nearest_key(name, KEYS)}".rstrip("; "))
        settings.update(found)
        parts: list[Any] = [settings, *settings.parts.values()]
        for own in parts:
            own.explicit, own.complete = set(), True
        return settings

    def update(self, data: Mapping[str, Any]) -> None:
        """Set keys in place; types and ranges are checked. Plugins that they name are loaded first.

        ``environments`` divides the run: keys given with it hold where an entry has none, later ones for all entries.

        Raises `InputError`: unknown key, a value of the wrong type or out of range, or a plugin that cannot be loaded.
        """
        if "plugins" in data:
            named = [*plugins.ASKED, *KEYS["plugins"].read(data["plugins"])]
            plugins.load(named)
            data = {**data, "plugins": list(dict.fromkeys(map(plugins.located, named)))}
        plugins.load()
        self._fill()
        found, before, self.measured = canonical(data), self.env, False
        if found.get("environments", None) == [] and "env" not in found:
            raise InputError("environments=[]: it lists none; give entries such as {env: NAME}, or set env=NAME")
        for name, value in found.items():
            if name.startswith("env."):
                self.env_options[name.removeprefix("env.")] = value
            elif name not in KEYS:
                raise unknown_key(name, KEYS)
            else:
                setattr(self, name, KEYS[name].read(value))
            self.explicit.add(name)
        if found.get("environments"):
            self._divide(found.get("env"))
        elif "environments" in found or self.env != before:
            self.environments, self.parts = [], {}
        for part in () if found.get("environments") else self.parts.values():
            part.update({name: value for name, value in found.items() if name != "env"})

    def _divide(self, env: str | None) -> None:
        """Build ``parts`` from ``environments``; ``env`` was given together with them."""
        self.parts = {}  # they must not be parts of the parts
        parts: dict[str, Settings] = {}
        for number, entry in enumerate(self.environments, 1):
            try:
                name, part = self._part(canonical(entry))
            except InputError as error:
                raise InputError(f"environments, entry {number}: {error}") from None
            if name in parts:
                raise InputError(f"environments, entry {number}: {name} occurs twice: give one of them another `name`")
            parts[name] = part
        if env not in (None, joined := ",".join(parts)):
            raise InputError(f"env={env} and environments are mutually exclusive: each entry names its own `env`")
        self.parts, self.env = parts, joined

    def _part(self, entry: Mapping[str, Any]) -> tuple[str, Settings]:
        """Return the name of an entry, and its keys over those of the run.

        Which other keys ``advantages`` allows is known when the algorithms are (`trainer.resolve`).
        """
        own = keys_of(sections.EntryKeys)
        allowed = {*own, *(KEYS if entry.get("advantages") else OWN_KEYS)}
        for name in entry:
            if name not in allowed and not name.startswith("env."):
                raise of_the_run(name) if name in KEYS else unknown_key(name, allowed)
        keys = read_options(sections.EntryKeys, {name: value for name, value in entry.items() if name in own})
        name = keys.name or keys.env
        if not keys.env or SEPARATOR in name:
            raise InputError(f"`name` must not contain {SEPARATOR}" if keys.env else "`env` is missing")
        part = copy.deepcopy(self)
        part.environments, part.explicit = [], self.explicit - {"environments"}
        part.update({key: value for key, value in entry.items() if key not in ("name", "weight", "advantages")})
        part.weight, part.task_prefix, part.advantages = keys.weight, f"{name}{SEPARATOR}", keys.advantages
        return name, part

    def set_defaults(self, data: Mapping[str, Any]) -> None:
        """Like `update`, for keys that were not set explicitly; later defaults may replace the values."""
        if self.complete:
            return
        fresh = {name: value for name, value in data.items() if name not in self.explicit}
        chosen = [(own, set(own.explicit)) for own in (self, *self.parts.values())]
        self.update(fresh)
        for own, explicit in chosen:
            own.explicit = explicit

    def make_local(self, given: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Set `LOCAL_KEYS`: run in a single process, without Ray actors.

        Args:
            given: keys that were set explicitly.

        Raises `InputError`: one of them contradicts `LOCAL_KEYS`.
        """
        for name, value in LOCAL_KEYS.items():
            if given.get(name, value) not in (value, "auto"):
                means = f"--local means {name}={value}, but {name}={given[name]} is given"
                raise InputError(f"{means}; for one process with other keys set num_env_runners=0 instead of --local")
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
