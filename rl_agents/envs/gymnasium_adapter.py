"""Any registered gymnasium environment as a text environment: ``gymnasium:<id>`` or ``gymnasium:<module>:<id>``.

Actions are Text (the response as it is) or Discrete (a number, or a name from ``info["admissible_actions"]``, which
stands in the order of the numbers). Observations that are not text are written out, with the picture that the
environment draws in ``ansi`` mode where it has one. Tasks are seeds: ``seed-7`` names the state that ``reset(seed=7)``
gives; what happens later at random follows the episode's own seed.
"""

from __future__ import annotations

import difflib
import importlib
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, make_dataclass
from functools import lru_cache
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from rl_agents.envs.spec import EnvSpec, TextEnv
from rl_agents.errors import InputError
from rl_agents.settings.options import key

PREFIX = "gymnasium:"
FIRST_TEST_SEED = 1_000_000
DEFAULT_MAX_TURNS = 50
TEXT_SPACE = spaces.Text(max_length=1 << 20)
# A coloured cell of an ANSI picture; a language model reads brackets more easily than escape codes.
COLOURED = re.compile(r"(?:\x1b\[[0-9;]*m)+([^\x1b]*)\x1b\[0m")
BRACKETED = r"[\1]"


@dataclass(frozen=True)
class AdapterOptions:
    """Keys of every gymnasium environment; `adapter_spec` adds ``id``, which has but one value."""

    train_tasks: int = key(1000, "training tasks: seeds from 0", at_least=0, at_most=FIRST_TEST_SEED)
    test_tasks: int = key(100, f"test tasks: seeds from {FIRST_TEST_SEED}", at_least=0)
    instructions: str = key("", "text before the first observation")
    kwargs: dict[str, Any] = key({}, "the environment's own constructor arguments, such as {is_slippery: false}")


@lru_cache(maxsize=64)
def options_of(gym_id: str) -> type:
    """Return the options class of ``gymnasium:<id>``."""
    only = ("id", Literal[gym_id], key(gym_id, "id in gymnasium's registry"))  # type: ignore[valid-type]
    return make_dataclass("AdapterOptions", [only], bases=(AdapterOptions,), frozen=True)


def adapter_spec(name: str) -> EnvSpec:
    """Return the spec of ``gymnasium:<id>``.

    Raises:
        InputError: no environment is registered under the id (the nearest is named), or its module is missing.
    """
    gym_id = name.removeprefix(PREFIX)
    registered = _registered(gym_id)
    return EnvSpec(
        name=name,
        summary=f"the gymnasium environment {gym_id}, played in text",
        reference="https://gymnasium.farama.org",
        module=__name__,
        gym_id=gym_id,
        options=options_of(gym_id),
        max_turns=registered.max_episode_steps or DEFAULT_MAX_TURNS,
    )


def task_ids(split: str, options: AdapterOptions) -> list[str]:
    """Return ``seed-0`` and following for ``train``, ``seed-1000000`` and following for ``test``."""
    first, count = (0, options.train_tasks) if split == "train" else (FIRST_TEST_SEED, options.test_tasks)
    return [f"seed-{first + number}" for number in range(count)]


def make(options: Any, max_turns: int) -> TextEnv:
    """Create the environment ``options.id``. Its own step limit, where it has one, becomes ``max_turns``.

    Raises:
        InputError: unknown id, wrong arguments, a missing package, or an action space that text cannot express.
    """
    registered = _registered(options.id)
    arguments: dict[str, Any] = {"max_episode_steps": max_turns} if registered.max_episode_steps else {}
    if "ansi" in _render_modes(registered):
        arguments["render_mode"] = "ansi"
    try:
        inner = gymnasium.make(options.id, disable_env_checker=True, **{**arguments, **options.kwargs})
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        raise InputError(f"gymnasium environment {options.id} cannot be created: {error}") from error
    if not isinstance(inner.action_space, spaces.Text | spaces.Discrete):
        raise InputError(
            f"gymnasium environment {options.id}: actions are {inner.action_space}, but Text or Discrete is needed"
        )
    return TextAdapter(inner, options.instructions)


class TextAdapter(gymnasium.Env[str, str]):
    """See the module docstring. An action that cannot be read changes nothing: reward 0 and an explanation."""

    observation_space = TEXT_SPACE
    action_space = TEXT_SPACE

    def __init__(self, inner: gymnasium.Env[Any, Any], instructions: str = "") -> None:
        self.inner, self.instructions = inner, instructions
        self._observation = ""
        self._names: list[str] = []
        space = inner.action_space
        self._numbers = None
        if isinstance(space, spaces.Discrete):
            self._numbers = range(int(space.start), int(space.start) + int(space.n))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start the task ``options["task_id"]``; without one, ``seed`` names the state."""
        options = dict(options or {})
        task_id = options.pop("task_id", None)
        observation, info = self.inner.reset(
            seed=seed if task_id is None else task_seed(task_id), options=options or None
        )
        if task_id is not None and seed is not None:
            self.inner.unwrapped.np_random = np.random.default_rng(seed)
        text = self._see(observation, info)
        parts = [self.instructions, text, self._action_help()]
        return "\n".join(part for part in parts if part), self._info(info, valid=True)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Act; see the class."""
        try:
            parsed = self._parse(action)
        except ValueError as error:
            info = {"anchor": self._observation, "valid": False, "admissible_actions": self._names}
            return f"{error}\n{self._observation}", 0.0, False, False, info
        answer: Any = self.inner.step(parsed)
        if not isinstance(answer, tuple) or len(answer) != 5:
            return answer  # type: ignore[no-any-return]  # whoever called says what is wrong with it
        observation, reward, terminated, truncated, info = answer
        text = self._see(observation, info)
        return text, float(reward), bool(terminated), bool(truncated), self._info(info, valid=True)

    def close(self) -> None:
        """Close the environment."""
        self.inner.close()

    def random_action(self, rng: random.Random) -> str | None:
        """A Discrete action as text, a name where the environment names those it allows; None for Text actions."""
        if self._numbers is None:
            return None
        return rng.choice(self._names) if self._names else str(rng.choice(self._numbers))

    def _see(self, observation: Any, info: Mapping[str, Any]) -> str:
        """Write the observation out and note the names of the actions it allows."""
        self._names = [str(name) for name in info.get("admissible_actions", ())]
        self._observation = observation if isinstance(observation, str) else self._describe(observation)
        return self._observation

    def _describe(self, observation: Any) -> str:
        picture = self.inner.render() if self.inner.render_mode == "ansi" else None
        text = f"Observation: {observation}"
        return f"{text}\n{COLOURED.sub(BRACKETED, picture).strip()}" if isinstance(picture, str) else text

    def _info(self, info: Mapping[str, Any], valid: bool) -> dict[str, Any]:
        return {"anchor": self._observation, "valid": valid, **info, "admissible_actions": self._names}

    def _action_help(self) -> str:
        if self._numbers is None:
            return ""
        if self._names:
            return f"Answer with one of: {', '.join(self._names)}."
        return f"Answer with a number from {self._numbers[0]} to {self._numbers[-1]}."

    def _parse(self, response: str) -> Any:
        """Return the action of a response: the whole of it, or its last line for Discrete actions.

        Raises:
            ValueError: not an action; the message explains.
        """
        if self._numbers is None:
            return response
        lines = response.strip().splitlines() or [""]
        word = re.sub(r"(?i)^action:|</?action>", "", lines[-1].strip()).strip().casefold()
        names = [name.strip().casefold() for name in self._names]
        if word in names[: len(self._numbers)]:
            return self._numbers[names.index(word)]
        # [0-9], not str.isdigit, which holds for '³' too; nine digits, because int() refuses thousands of them.
        if re.fullmatch(r"-?[0-9]{1,9}", word) and int(word) in self._numbers:
            return int(word)
        raise ValueError(f"'{word[:60]}' is not an action. {self._action_help()}")


def task_seed(task_id: str) -> int:
    """Return 7 for ``seed-7``.

    Raises:
        InputError: another form.
    """
    match = re.fullmatch(r"seed-([0-9]{1,18})", task_id)
    if not match:
        raise InputError(f"gymnasium task '{task_id}': write it as seed-<number>")
    return int(match[1])


def _registered(gym_id: str) -> Any:
    module, colon, plain_id = gym_id.rpartition(":")
    if colon:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise InputError(f"gymnasium environment {gym_id}: module {module} cannot be imported: {error}") from error
    if plain_id in gymnasium.registry:
        return gymnasium.registry[plain_id]
    nearest = difflib.get_close_matches(plain_id, gymnasium.registry, n=1, cutoff=0.0)
    raise InputError(f"unknown gymnasium environment '{plain_id}': did you mean '{nearest[0]}'?")


def _render_modes(registered: Any) -> list[str]:
    """Return the render modes of a registered environment's class; none when that cannot be told."""
    try:
        entry = registered.entry_point
        creator = gymnasium.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry
    except (ImportError, AttributeError):
        return []
    return list((getattr(creator, "metadata", None) or {}).get("render_modes", ()))
