"""The registry of environments: every folder here with a ``SPEC`` or a ``FAMILY``, and users' classes.

Importing it imports the specs of the folders, and no other module of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import gymnasium

from rl_agents.background import settled
from rl_agents.config import Settings
from rl_agents.config.options import read_options
from rl_agents.data.tasks import TaskMix
from rl_agents.envs.gymnasium_adapter import FAMILY, PREFIX
from rl_agents.envs.spec import EnvFamily, EnvSpec, StarterSpec, TextEnv
from rl_agents.errors import InputError, NoPlayer, NoTasks, closest, unknown
from rl_agents.plugins import claim

ENVIRONMENTS: dict[str, EnvSpec] = {}
#: Plain names of gymnasium classes that plugins registered -> ``gymnasium:<module>:<class>``.
CLASSES: dict[str, str] = {}
#: By the prefix of their names.
FAMILIES: dict[str, EnvFamily] = {}

part = EnvSpec.part
GymClass = TypeVar("GymClass", bound=type[gymnasium.Env[Any, Any]])


def register(spec: EnvSpec) -> None:
    """Add an environment to the registry and to gymnasium's.

    Raises:
        InputError: a plugin uses a name that exists already.
    """
    claim("environment", spec.name, {**ENVIRONMENTS, **CLASSES})
    ENVIRONMENTS[spec.name] = spec
    if spec.gym_id not in gymnasium.registry:
        gymnasium.register(
            spec.gym_id, "rl_agents.envs.base:named_env", disable_env_checker=True, kwargs={"environment": spec.name}
        )


def register_family(family: EnvFamily) -> None:
    """Add environments with a common prefix.

    Raises:
        InputError: a plugin uses a prefix that exists already.
    """
    prefix = family.name.partition(":")[0]
    claim("family", prefix, FAMILIES)
    FAMILIES[prefix] = family


def _family(name: str) -> EnvFamily | None:
    return FAMILIES.get(name.partition(":")[0]) if ":" in name else None


def environment(name: str) -> Callable[[GymClass], GymClass]:
    """Decorate a gymnasium class of your own, so that ``--env name`` means ``gymnasium:<module>:<class>``.

    Raises:
        InputError: the name exists already.
    """

    def registered(made: GymClass) -> GymClass:
        claim("environment", name, {**ENVIRONMENTS, **CLASSES})
        CLASSES[name] = f"{PREFIX}{made.__module__}:{made.__name__}"
        return made

    return registered


def discover() -> None:
    """Register the ``SPEC`` or the ``FAMILY`` of every folder as a plugin registers its own."""
    register_family(FAMILY)
    for path in sorted(Path(__file__).parent.glob("*/__init__.py")):
        home = importlib.import_module(f"rl_agents.envs.{path.parent.name}")
        register_family(home.FAMILY) if hasattr(home, "FAMILY") else register(home.SPEC)


def env_spec(name: str) -> EnvSpec:
    """Return the spec of ``name`` (those of families, such as ``gymnasium:<id>``, included).

    Raises:
        InputError: unknown name; the message offers the nearest.
    """
    name = CLASSES.get(name, name)
    if family := _family(name):
        return family.spec(name)
    if name not in ENVIRONMENTS:
        raise _unknown(name)
    return ENVIRONMENTS[name]


def _unknown(name: str) -> InputError:
    first, colon, rest = name.partition(":")
    if "," in name and all(map(is_environment, name.split(","))):
        return InputError(f"'{name}': several environments are for training and `eval`; name one of them here")
    if colon or name in gymnasium.registry:
        near = closest(first, FAMILIES, cutoff=0.8) if colon else ""
        meant = f"{near}:{rest}" if near else f"{PREFIX}{name}"
        return InputError(f"unknown environment '{name}': did you mean '{meant}'?")
    return unknown("environment", name, [*ENVIRONMENTS, *CLASSES, *(family.name for family in FAMILIES.values())])


def is_environment(name: str) -> bool:
    """Return whether ``name`` is an environment's. Of families' names, only the prefix is checked."""
    return _family(name) is not None or name in ENVIRONMENTS or name in CLASSES


def base_environment(name: str, options: Mapping[str, Any]) -> str:
    """Return the environment whose tasks, warm-start model and limits ``name`` uses: nearly always itself.

    Raises:
        InputError: its options name none.
    """
    spec = env_spec(name)
    named = part(spec, "tasks", "base_environment") if spec.agent else None
    return str(named(options)) if named else name


def read_env_options(spec: EnvSpec, options: Mapping[str, Any], chosen: Iterable[str] = ()) -> Any:
    """Return an object of the environment's options class.

    Args:
        options: plain values by key, without ``env.``; absent keys have their defaults.
        chosen: keys that the user has set explicitly, so that they must have an effect.

    Raises:
        InputError: an unknown key (the message has the nearest one), a wrong type, a value out of range, or a key
            without effect.
    """
    if "max_turns" in options:
        raise InputError("env.max_turns is not a key: set max_turns, which holds for the environment, too")
    kind = f"option of environment {spec.name}"
    return read_options(spec.options, options, prefix="env.", kind=kind, chosen=chosen)


def plain_options(options: Any) -> dict[str, Any]:
    """Return an options object as values by key."""
    return {item.name: getattr(options, item.name) for item in fields(options)}


def make_env(name: str, options: Mapping[str, Any], max_turns: int = 0) -> TextEnv:
    """Create an environment by name; ``max_turns=0`` means its own turn limit."""
    spec = env_spec(name)
    return _made(spec, read_env_options(spec, options), max_turns)


def named_env(environment: str, max_turns: int = 0, **options: Any) -> TextEnv:
    """Create an environment from keyword arguments, for `gymnasium.make`.

    Raises:
        InputError: see `read_env_options`; every keyword counts as chosen.
    """
    spec = env_spec(environment)
    return synchronous(_made(spec, read_env_options(spec, options, chosen=options), max_turns))


def synchronous(env: TextEnv) -> TextEnv:
    """Return ``env`` for callers that cannot await: coroutines of `reset` and `step` are run to their end."""
    if getattr(env, "awaited", False):
        reset, step = env.reset, env.step

        def waited(*, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            return settled(reset(seed=seed, options=options))

        env.reset = waited  # type: ignore[method-assign]
        env.step = lambda action: settled(step(action))  # type: ignore[method-assign]
    return env


def task_ids(name: str, split: str, options: Mapping[str, Any]) -> list[str]:
    """Return the task set ``split`` (``train`` or ``test``) of an environment."""
    spec = env_spec(name)
    if split not in ("train", "test"):
        raise InputError(f"unknown split '{split}': valid: test, train")
    tasks: list[str] = part(spec, "tasks", "task_ids")(split, read_env_options(spec, options))
    if not tasks:
        raise NoTasks(f"environment {name} has no {split} tasks with options {dict(options)}")
    return tasks


def game_seats(name: str, options: Mapping[str, Any]) -> int:
    """Return the number of players of a game that has a policy in every seat; 1: the environment is no such game."""
    spec = env_spec(name)
    return spec.seats(read_env_options(spec, options))


def run_tasks(settings: Settings, split: str) -> Sequence[str]:
    """Return the task set ``split`` of a run; those of several environments begin with their environment's name."""
    sets = {
        name: [f"{own.task_prefix}{task}" for task in task_ids(own.env, split, own.env_options)]
        for name, own in settings.each.items()
    }
    return TaskMix(sets, tuple(own.weight for own in settings.parts.values())) if settings.parts else sets[settings.env]


def divide(settings: Settings) -> None:
    """Replace ``env=a,b`` by ``environments``; a name with commas of its own, such as a family's, stays whole."""
    names: list[str] = []
    for name in settings.env.split(","):
        if names and ":" in names[-1] and not is_environment(name):
            names[-1] += f",{name}"
        else:
            names.append(name)
    if len(names) > 1 and not settings.parts:
        settings.update({"environments": [{"env": name} for name in names]})


def starter_spec(name: str, options: Mapping[str, Any] = MappingProxyType({})) -> StarterSpec:
    """Return the specification of an environment's warm-start model.

    Args:
        options: the environment's keys, without ``env.``: some environments have a warm-start model for each of several
            prompts or constructor arguments.

    Raises:
        NoPlayer: it has none, so that a model folder is required.
        InputError: its player fails.
    """
    name = CLASSES.get(name, name)
    if (family := _family(name)) and family.starter:
        return family.starter(name, read_env_options(env_spec(name), options))
    if starter_of := part(env_spec(name), "demonstrations", "starter_of"):
        return starter_of(read_env_options(env_spec(name), options))  # type: ignore[no-any-return]
    spec: StarterSpec | None = part(env_spec(name), "demonstrations", "STARTER")
    if spec is None:
        raise NoPlayer(name)
    return (spec.variant(options) if spec.variant else None) or spec


def run_starter(settings: Settings) -> tuple[str, StarterSpec]:
    """Return the name of a run's environments and its warm-start model; raises as `starter_spec` does."""
    found = {}
    for name, own in settings.each.items():
        base = base_environment(own.env, own.env_options)
        found[name] = base, starter_spec(base, base_options(own.env, own.env_options))
    if settings.parts:
        from rl_agents.envs.starters import shared_starter  # torch is slow

        return settings.env, shared_starter(found)
    return next(iter(found.values()))


def starter_defaults(name: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings of runs with the warm-start model that ``name`` uses; raises as `starter_spec` does."""
    base = base_environment(name, options)
    defaults = starter_spec(base, base_options(name, options)).defaults
    return borrowed(defaults) if base != name else defaults


def base_options(name: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the keys of `base_environment`: those of ``name`` itself, or those in its ``task_options``."""
    return options if base_environment(name, options) == name else options.get("task_options", {})


def env_keys(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return an environment's own keys among those of a run, without ``env.``."""
    return {name.removeprefix("env."): value for name, value in keys.items() if name.startswith("env.")}


def borrowed(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Convert settings for an environment into settings for an environment that borrows its tasks.

    >>> borrowed({"lr": 1e-4, "env.prompt": "compact"})
    {'lr': 0.0001, 'env.task_options': {'prompt': 'compact'}}
    """
    own = env_keys(defaults)
    rest = {name: value for name, value in defaults.items() if not name.startswith("env.")}
    return {**rest, "env.task_options": own} if own else rest


def _made(spec: EnvSpec, options: Any, max_turns: int) -> TextEnv:
    made: TextEnv = part(spec, "env", "make")(options, max_turns or spec.max_turns)
    return made
