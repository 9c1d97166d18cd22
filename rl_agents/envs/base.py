"""Environments: gymnasium's API over text, and the registry that names them.

An environment is a `gymnasium.Env` whose observations and actions are strings:

- ``reset(seed=..., options={"task_id": ...}) -> (observation, info)``: the first observation is the
  whole task description that the agent reads as its first user message.
- ``step(action) -> (observation, reward, terminated, truncated, info)``: ``action`` is the model's whole
  response; the environment parses it.

``info`` may carry ``success`` (bool), ``valid`` (the action could be parsed), ``admissible_actions``
(list of str), ``anchor`` (the state's name for step-level grouping; default: the observation),
``metrics`` (numbers reported when the episode ends), ``progress`` (T3: whether the step narrowed down what the agent
can believe; None where that cannot be said, as for a malformed action), ``query`` (the question that the action put,
for truncation by similarity; default: the action without its thoughts and tags), ``references`` (list of str, the
accepted answers; PRS reads those of the last step), ``points`` and ``evidence`` (lists of str, for judges of long
answers: what the answer has to state, and what the tools have found so far), ``new_dialogue`` (the observation begins
a new dialogue: the agent reads nothing of what was said before) and, of a reset or beside ``new_dialogue``,
``messages`` with ``tools``: chat messages and tool definitions in OpenAI's form (arguments as objects) that the
dialogue begins with in place of the observation.

An environment may have a method ``render_window(task, history, observation) -> str`` (see
`rl_agents.chat.context`) and an attribute ``answer_instruction`` (str): how it tells the agent, after its last
feedback, that the next turn must answer.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium

from rl_agents.errors import InputError, unknown

TextEnv = gymnasium.Env[str, str]


@dataclass(frozen=True)
class EnvSpec:
    """What the registry knows about an environment.

    Attributes:
        name: as on the command line.
        module: module with ``make(**options) -> TextEnv`` and
            ``task_ids(split, **options) -> list[str]`` (split ``train`` or ``test``), and, where the
            environment can teach a starter model, ``STARTER`` (see `rl_agents.core.starter`).
        options: the environment's own keys with their defaults (``--set env.KEY=VALUE``).
        max_turns: default turn limit of an episode.
        progress_window: T3's k for the environment's progress rule; 0 when it reports no ``info["progress"]``.
    """

    name: str
    summary: str
    reference: str
    module: str
    gym_id: str
    options: Mapping[str, Any]
    max_turns: int
    progress_window: int = 0


@dataclass(frozen=True)
class StarterRecipe:
    """How an environment makes its small starter model; its module calls it ``STARTER``.

    Attributes:
        build_tokenizer: () -> Hugging Face tokenizer with a chat template.
        build_model: (tokenizer, seed) -> untrained Hugging Face causal LM.
        demonstrate: (task_id, random.Random, **options) -> [(observation, action), ...], a mediocre player's episode.
        training: settings of the supervised run that turns the untrained model into the starter.
        defaults: settings of runs that use the starter, such as ``env.prompt`` and ``max_model_len``.
        version: counts up when a change makes cached starters stale.
        opening: (task_id, **options) -> what a task's dialogue begins with where that is more than its observation
            (`rl_agents.chat.context.chat_text`).
        expert: as ``demonstrate``, but a player that errs as little as it can: its traces are what PivotRL starts from.
    """

    build_tokenizer: Callable[[], Any]
    build_model: Callable[[Any, int], Any]
    demonstrate: Callable[..., list[tuple[str, str]]]
    training: Mapping[str, Any]
    defaults: Mapping[str, Any]
    version: int = 1
    opening: Callable[..., str] | None = None
    expert: Callable[..., list[tuple[str, str]]] | None = None


ENVIRONMENTS: dict[str, EnvSpec] = {}


def register(spec: EnvSpec) -> None:
    """Add an environment to the registry and to gymnasium's."""
    ENVIRONMENTS[spec.name] = spec
    if spec.gym_id not in gymnasium.registry:
        gymnasium.register(spec.gym_id, entry_point=f"{spec.module}:make", disable_env_checker=True)


def env_spec(name: str) -> EnvSpec:
    """Return the spec of ``name`` (``gymnasium:<id>`` included).

    Raises:
        InputError: unknown name; the message offers the nearest.
    """
    import rl_agents.envs  # noqa: F401  (registers the built-in environments)

    if name.startswith("gymnasium:"):
        from rl_agents.envs.gymnasium_adapter import adapter_spec

        return adapter_spec(name)
    if name not in ENVIRONMENTS:
        raise unknown("environment", name, [*ENVIRONMENTS, "gymnasium:<id>"])
    return ENVIRONMENTS[name]


def checked_options(spec: EnvSpec, options: Mapping[str, Any]) -> dict[str, Any]:
    """Merge ``options`` over the environment's defaults.

    Raises:
        InputError: a key that the environment does not have.
    """
    for key in options:
        if key not in spec.options:
            raise unknown(f"option of environment {spec.name}", f"env.{key}", [f"env.{k}" for k in spec.options])
    return {**spec.options, **options}


def make_env(name: str, options: Mapping[str, Any]) -> TextEnv:
    """Create an environment by name."""
    spec = env_spec(name)
    return _module_function(spec, "make")(**checked_options(spec, options))


def task_ids(name: str, split: str, options: Mapping[str, Any]) -> list[str]:
    """Return the frozen task set ``split`` (``train`` or ``test``) of an environment."""
    spec = env_spec(name)
    if split not in ("train", "test"):
        raise InputError(f"unknown split '{split}': valid: test, train")
    tasks: list[str] = _module_function(spec, "task_ids")(split, **checked_options(spec, options))
    if not tasks:
        raise InputError(f"environment {name} has no {split} tasks with options {dict(options)}")
    return tasks


def starter_recipe(name: str) -> StarterRecipe:
    """Return the starter recipe of an environment.

    Raises:
        InputError: it has none, so that a model folder must be given.
    """
    recipe: StarterRecipe | None = getattr(importlib.import_module(env_spec(name).module), "STARTER", None)
    if recipe is None:
        raise InputError(f"environment {name} has no starter model: name a model folder with --set model=DIR")
    return recipe


def _module_function(spec: EnvSpec, function: str) -> Callable[..., Any]:
    return getattr(importlib.import_module(spec.module), function)  # type: ignore[no-any-return]
