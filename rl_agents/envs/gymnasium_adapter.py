"""Any registered gymnasium environment as a text environment: ``gymnasium:<id>`` or ``gymnasium:<module>:<id>``.

Actions are Text (the unchanged response) or Discrete (a number, or a name from ``info["admissible_actions"]``, in the
order of the numbers). Observations that are not text are written as text, with the environment's picture if it has an
``ansi`` mode. Tasks are seeds, unless the environment lists its own: ``seed-7`` is the state after ``reset(seed=7)``.
Later random events follow the episode's own seed.

``gymnasium:<module>:<id>`` imports the module first, and uses the environment that it registers under the id, or its
class of that name. docs/environments/gymnasium.md describes the optional parts of an environment.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
import random
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from decimal import Decimal
from functools import lru_cache
from numbers import Real
from pathlib import Path
from typing import Any, Literal, cast

import gymnasium
import numpy as np
import yaml
from gymnasium import spaces
from gymnasium.envs import registration

from rl_agents.background import settled
from rl_agents.chat.template import chat_text
from rl_agents.config import KEYS
from rl_agents.config.options import key
from rl_agents.envs.coroutines import then
from rl_agents.envs.options import GameKeys, shared_game
from rl_agents.envs.spec import EnvFamily, EnvSpec, StarterSpec, TextEnv
from rl_agents.errors import InputError, NoPlayer, defined_at, named, only_item, report_once, similar
from rl_agents.plugins import member, own_module


def registered(gym_id: str) -> registration.EnvSpec:
    """Return gymnasium's entry of ``<id>`` or ``<module>:<id>``; its entry point is loaded.

    Raises:
        InputError: no environment under the id (the message has the nearest), or its module or class cannot be
            imported.
    """
    module, colon, plain_id = gym_id.rpartition(":")
    home = own_module(module, f"gymnasium environment {gym_id}") if colon else None
    if plain_id in gymnasium.registry:
        entry = gymnasium.registry[plain_id]
    elif inspect.isclass(found := getattr(home, plain_id, None)) and issubclass(found, gymnasium.Env):
        entry = registration.EnvSpec(id=plain_id, entry_point=cast(Any, found))
    else:
        raise _unknown(gym_id, module, home)
    if not isinstance(entry.entry_point, str):
        return entry
    with named(f"gymnasium environment {gym_id}: its entry point {entry.entry_point} cannot be loaded"):
        return replace(entry, entry_point=cast(Any, registration.load_env_creator(entry.entry_point)))


def _unknown(gym_id: str, module: str, home: Any) -> InputError:
    plain_id = gym_id.rpartition(":")[2]
    if home is None:
        hint = similar(plain_id, gymnasium.registry, "gymnasium registers none of that name.")
        return InputError(f"unknown gymnasium environment '{plain_id}': {hint} Your own is gymnasium:<module>:<id>")
    known = [name for name, entry in gymnasium.registry.items() if str(entry.entry_point).startswith(f"{module}:")]
    own = {name: made for name, made in vars(home).items() if getattr(made, "__module__", "") == home.__name__}
    known += [name for name, made in own.items() if inspect.isclass(made) and issubclass(made, gymnasium.Env)]
    problem = f"registers no environment '{plain_id}' and has no class of that name"
    has = ", ".join(known) or "no gymnasium.Env"
    return InputError(f"module {module} ({home.__file__}) {problem}; it has: {has}")


PREFIX = "gymnasium:"
FIRST_TEST_SEED = 1_000_000
DEFAULT_MAX_TURNS = 50
TEXT_SPACE = spaces.Text(max_length=1 << 20)
#: What the adapter's `step` returns if the environment's own answer is right.
STEP = (str, Real | Decimal, bool, bool, Mapping)
#: Optional parts of an environment that the agent loop uses.
FORWARDED = ("render_window", "answer_instruction")
# A colored cell of an ANSI picture; a language model reads brackets more easily than escape codes.
COLORED = re.compile(r"(?:\x1b\[[0-9;]*m)+([^\x1b]*)\x1b\[0m")
BRACKETED = r"[\1]"


@dataclass(frozen=True)
class AdapterOptions:
    """Keys of every gymnasium environment; `adapter_spec` adds ``id``, which has only one value."""

    kwargs: dict[str, Any] = key({}, "constructor arguments of the environment, such as {is_slippery: false}")
    success_return: float | None = key(None, "lowest return of a success if info has none; empty for any above 0")


@dataclass(frozen=True)
class SeedOptions(AdapterOptions):
    """Keys of an environment that lists no tasks of its own."""

    train_tasks: int = key(1000, "number of training tasks: seeds from 0", ge=0, le=FIRST_TEST_SEED)
    test_tasks: int = key(100, f"number of test tasks: seeds from {FIRST_TEST_SEED}", ge=0)


@lru_cache(maxsize=64)
def options_of(
    name: str, base: type = SeedOptions, meaning: str = "id in Gymnasium's registry", also: tuple[type, ...] = ()
) -> type:
    """Return ``base`` with ``also`` and a key ``id``, whose only value is an environment's name without its prefix."""
    only = ("id", Literal[name], key(name, meaning))  # type: ignore[valid-type]
    return make_dataclass(base.__name__, [only], bases=(*also, base), frozen=True)


def adapter_spec(name: str) -> EnvSpec:
    """Return the spec of ``gymnasium:<id>``.

    Raises:
        InputError: no environment under the id (the message has the nearest), or its module is missing.
    """
    gym_id = name.removeprefix(PREFIX)
    entry = registered(gym_id)
    seats, tasks = _count(entry, "seats") or 1, SeedOptions if own(entry, "task_ids") is None else AdapterOptions
    return EnvSpec(
        name=name,
        summary=f"the gymnasium environment {gym_id}, played in text",
        reference="docs/environments/gymnasium.md",
        module=__name__,
        gym_id=gym_id,
        options=options_of(gym_id, tasks, also=(GameKeys,) * (seats > 1)),
        max_turns=entry.max_episode_steps or _count(entry, "max_turns") or DEFAULT_MAX_TURNS,
        progress_window=_count(entry, "progress_window"),
        blocking=own(entry, "blocking") or ("inline" if inspect.iscoroutinefunction(own(entry, "step")) else "thread"),
        seats=lambda options: seats if seats > 1 and shared_game(options) else 1,
    )


def own(entry: Any, name: str) -> Any:
    """Return an attribute of an environment's class or of the function that makes it; None if it has none."""
    return getattr(entry.entry_point, name, None)


def _count(entry: Any, name: str) -> int:
    """Return an attribute that counts as ``max_turns`` does; 0: none. Raises `InputError`: it is no such number."""
    return int(replace(KEYS["max_turns"], name=name).read(own(entry, name) or 0, f"{entry.id}."))


def task_ids(split: str, options: Any) -> list[str]:
    """Return the environment's own tasks, or ``seed-0`` and following for ``train``, ``seed-1000000`` ... for ``test``.

    Raises:
        InputError: its ``task_ids`` fails, or does not return texts.
    """
    if listed := own(registered(options.id), "task_ids"):
        with named(f"gymnasium environment {options.id}: task_ids('{split}') failed"):
            tasks = list(listed(split, **options.kwargs))
        if strange := [task for task in tasks if not isinstance(task, str)]:
            raise InputError(f"gymnasium environment {options.id}: task_ids('{split}') holds {strange[0]!r}, not a str")
        return tasks
    return seeded_tasks(split, options)


def seeded_tasks(split: str, options: Any) -> list[str]:
    """Return the tasks of `SeedOptions`."""
    first, count = (0, options.train_tasks) if split == "train" else (FIRST_TEST_SEED, options.test_tasks)
    return [f"seed-{first + number}" for number in range(count)]


def make(options: Any, max_turns: int) -> TextEnv:
    """Create the environment ``options.id``. If it has its own step limit, ``max_turns`` replaces it.

    Raises:
        InputError: unknown id, wrong arguments, a missing package, or an action space that text cannot express.
    """
    entry = registered(options.id)
    arguments: dict[str, Any] = {}
    if "ansi" in ((own(entry, "metadata") or {}).get("render_modes") or ()):
        arguments["render_mode"] = "ansi"
    with named(f"gymnasium environment {options.id} cannot be created"):
        # Steps are counted in the adapter's own state, which a snapshot holds, not in gymnasium's wrappers.
        inner = gymnasium.make(
            replace(entry, order_enforce=False), max_episode_steps=-1, disable_env_checker=True,
            **{**arguments, **options.kwargs},
        )  # fmt: skip
    space = getattr(inner, "action_space", None)
    if not isinstance(space, spaces.Text | spaces.Discrete):
        raise InputError(f"gymnasium environment {options.id}: actions are {space}, not Text or Discrete")
    copies = all(inner.has_wrapper_attr(name) for name in ("snapshot", "restore"))
    adapter = CopyableAdapter if copies else TextAdapter
    return adapter(inner, options, max_turns if entry.max_episode_steps else 0, own(entry, "task_ids") is not None)


@dataclass(frozen=True)
class Shown:
    """The adapter's state of an episode.

    Attributes:
        observation: the last one, as text.
        state: its key: the text, and a digest of numbers that the text rounds.
        names: of the allowed actions.
        steps: of the environment so far.
        earned: sum of their rewards.
        success: the environment's last ``info["success"]``; None if it has none. The caller refuses what is no flag.
    """

    observation: str = ""
    state: str = ""
    names: tuple[str, ...] = ()
    steps: int = 0
    earned: float = 0.0
    success: Any = None


class TextAdapter(gymnasium.Env[str, str]):
    """See the module docstring. An action that cannot be read changes nothing: reward 0 and an explanation.

    Args:
        max_steps: steps after which the episode is truncated; 0 for no limit.
        lists_tasks: the environment lists its tasks and reads ``options["task_id"]``; else tasks are seeds.
    """

    observation_space = TEXT_SPACE
    action_space = TEXT_SPACE

    def __init__(
        self, inner: gymnasium.Env[Any, Any], options: Any, max_steps: int = 0, lists_tasks: bool = False
    ) -> None:
        self.inner, self.options, self.max_steps, self._lists_tasks = inner, options, max_steps, lists_tasks
        self._shown = Shown()
        space = inner.action_space
        self._numbers = None
        if isinstance(space, spaces.Discrete):
            self._numbers = range(int(space.start), int(space.start) + int(space.n))

    def __getattr__(self, name: str) -> Any:
        """Return the environment's attributes in `FORWARDED`."""
        if name not in FORWARDED:
            raise AttributeError(name)
        return self.inner.get_wrapper_attr(name)

    @property
    def unwrapped(self) -> Any:
        """The user's environment."""
        return self.inner.unwrapped

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start the task ``options["task_id"]``; without one, ``seed`` names the state.

        Raises:
            InputError: a task that is no seed if the environment lists none, or an observation without text.
        """
        options = dict(options or {})
        task_id = None if self._lists_tasks else options.pop("task_id", None)
        answer: Any = self.inner.reset(seed=seed if task_id is None else task_seed(task_id), options=options or None)
        drawn_from = seed if task_id is not None else None
        return then(answer, lambda told: self._began(told, drawn_from))  # type: ignore[no-any-return]

    def _began(self, answer: Any, seed: int | None) -> tuple[str, dict[str, Any]]:
        if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], Mapping):
            raise self.refusal("reset", answer, "(observation, info dict)")
        observation, info = answer
        if self._shown.steps:  # an episode that the caller ended
            self._report_success()
        if seed is not None:
            self.unwrapped.np_random = np.random.default_rng(seed)
        self._shown = Shown()
        text = self._see(observation, info)
        if not isinstance(text, str):
            raise InputError(
                f"gymnasium environment {self.options.id}: reset() returned {ascii(text)[:80]} as observation; "
                "the agent reads text: return a str, numbers or an array"
            )
        return "\n".join(part for part in (text, self._action_help()) if part), self._info(info)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Act; see the class."""
        try:
            parsed = self._parse(action)
        except ValueError as error:
            info = self._info({}, valid=False, success=self._succeeded())
            return f"{error}\n{self._shown.observation}", 0.0, False, False, info
        return then(self.inner.step(parsed), self._stepped)  # type: ignore[no-any-return]

    def _stepped(self, answer: Any) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if not isinstance(answer, tuple) or len(answer) != 5 or not isinstance(answer[4], Mapping):
            return answer  # type: ignore[no-any-return]  # the caller reports what is wrong with it
        observation, reward, terminated, truncated, info = *answer[:1], *map(only_item, answer[1:4]), answer[4]
        text = self._see(observation, info)
        steps, earned = self._shown.steps + 1, self._shown.earned
        with contextlib.suppress(TypeError, ValueError):  # no number: the caller refuses it, too
            earned += float(reward)
        self._shown = replace(self._shown, steps=steps, earned=earned, success=_flag(info.get("success")))
        truncated = _flag(truncated or (0 < self.max_steps <= steps and not terminated))
        if terminated or truncated:
            self._report_success()
        return text, reward, _flag(terminated or False), truncated, self._info(info, success=self._succeeded())

    def refusal(self, method: str, answer: Any, wanted: str) -> InputError:
        """Return the error of a method of the user's class that returned ``answer``, with its file and line."""
        made_by = type(self.unwrapped)
        found = tuple(type(part).__name__ for part in answer) if isinstance(answer, tuple) else type(answer).__name__
        place = f"{made_by.__name__}.{method}{defined_at(getattr(made_by, method))}"
        return InputError(f"gymnasium environment {self.options.id}: {place} returned {found}, not {wanted}")

    def player(self, method: str) -> Any:
        """Return a scripted player of the user's class."""
        return self.inner.get_wrapper_attr(method)

    def close(self) -> None:
        closed: Any = self.inner.close()  # a coroutine, perhaps
        return closed  # type: ignore[no-any-return]

    def random_action(self, rng: random.Random) -> str | None:
        """Return a random Discrete action as text, by name if the actions have names; None for Text actions."""
        if self._numbers is None:
            return None
        return rng.choice(self._shown.names) if self._shown.names else str(rng.choice(self._numbers))

    def _see(self, observation: Any, info: Mapping[str, Any]) -> Any:
        """Return the observation as text, and note the names of the allowed actions.

        None and bytes are returned unchanged, for the caller to refuse.
        """
        if observation is None or isinstance(observation, bytes | bytearray):
            return observation
        text = observation if isinstance(observation, str) else self._describe(observation)
        named = info.get("admissible_actions")
        names = () if named is None else tuple(map(str, named))
        self._shown = replace(self._shown, observation=text, state=text + _digest(observation), names=names)
        return text

    def _describe(self, observation: Any) -> str:
        picture = self.inner.render() if self.inner.render_mode == "ansi" else None
        with np.printoptions(threshold=sys.maxsize):
            text = f"Observation: {observation}"
        kind, shown = type(observation).__name__, " ".join(text.split())[:80]
        line = f"gymnasium environment {self.options.id}: observations of type {kind} become text such as '{shown}'"
        report_once(line, self.options.id, "observation", kind)
        return f"{text}\n{COLORED.sub(BRACKETED, picture).strip()}" if isinstance(picture, str) else text

    def _info(self, info: Mapping[str, Any], valid: bool = True, **more: Any) -> dict[str, Any]:
        """Return the environment's info, with defaults for missing entries and with ``more``."""
        names = list(self._shown.names)
        return {"anchor": self._shown.state, "valid": valid, **info, **more, "admissible_actions": names}

    def _report_success(self) -> None:
        if self._shown.success is None and self.options.success_return is None:
            report_once(
                f"gymnasium environment {self.options.id}: info has no 'success' at the end of an episode, so any "
                "return above 0 counts as one; with shaped rewards set env.success_return=R, the return of a solved "
                "task", self.options.id, "success",
            )  # fmt: skip

    def _succeeded(self) -> Any:
        if self._shown.success is not None:
            return self._shown.success
        return reached(self._shown.earned, self.options.success_return)

    def _action_help(self) -> str:
        if self._numbers is None:
            return ""
        if self._shown.names:
            return f"Answer with one of: {', '.join(self._shown.names)}."
        return f"Answer with a number from {self._numbers[0]} to {self._numbers[-1]}."

    def _parse(self, response: str) -> Any:
        """Return the action of a response: the whole response, or its last line for Discrete actions.

        Raises:
            ValueError: not an action; the message is for the agent.
        """
        if self._numbers is None:
            return response
        lines = response.strip().splitlines() or [""]
        word = re.sub(r"(?i)^action:|</?action>", "", lines[-1].strip()).strip().casefold()
        names = [name.strip().casefold() for name in self._shown.names]
        if word in names[: len(self._numbers)]:
            return self._numbers[names.index(word)]
        # [0-9], not str.isdigit, which accepts '³' too; nine digits, because int() refuses thousands of them.
        if re.fullmatch(r"-?[0-9]{1,9}", word) and int(word) in self._numbers:
            return int(word)
        raise ValueError(f"'{word[:60]}' is not an action. {self._action_help()}")


class CopyableAdapter(TextAdapter):
    """An environment with ``snapshot`` and ``restore``, so that a search branches without replaying."""

    def snapshot(self) -> tuple[Any, Shown]:
        """Return the environment's snapshot with the adapter's state."""
        return self.inner.get_wrapper_attr("snapshot")(), self._shown

    def restore(self, state: tuple[Any, Shown]) -> None:
        """Continue from a snapshot of this or an equally configured environment."""
        inner, self._shown = state
        self.inner.get_wrapper_attr("restore")(inner)


def _flag(value: Any) -> Any:
    """Return 0 and 1 of any type as bool; anything else, such as a text, unchanged, for the caller to refuse."""
    value = only_item(value)
    return bool(value) if isinstance(value, Real) and value in (0, 1) else value


def _digest(observation: Any) -> str:
    """Return a digest of an observation's arrays of floats, which printing rounds; empty if it has none."""
    parts = observation.values() if isinstance(observation, Mapping) else observation
    if isinstance(observation, np.ndarray):
        digest = hashlib.sha256(np.ascontiguousarray(observation).tobytes()).hexdigest()
        return f" {digest[:16]}" if observation.dtype.kind == "f" else ""
    return "".join(map(_digest, parts)) if isinstance(observation, Mapping | tuple | list) else ""


def task_seed(task_id: str) -> int:
    """Return 7 for ``seed-7``.

    Raises:
        InputError: another form.
    """
    match = re.fullmatch(r"seed-([0-9]{1,18})", task_id)
    if not match:
        raise InputError(f"task '{task_id}': write it as seed-<number>")
    return int(match[1])


Dialogue = list[tuple[str, str]]
#: Number of tasks whose episodes define the warm-start model's words and lengths.
HEARD_TASKS = 200
TAG = re.compile(r"</?([A-Za-z]\w*)>")
#: Tokens that the chat template adds to a message, at most.
TEMPLATE_TOKENS = 3


@dataclass
class MethodPlayer:
    """Runs tasks with a method of the environment, or a function ``<module>:<name>``; see `StarterSpec.demonstrate`."""

    spec: EnvSpec
    method: str
    _made: tuple[Any, int, Any] | None = field(default=None, repr=False)
    _chat: str = field(default="", repr=False)

    def __call__(self, task_id: str, rng: random.Random, options: Any, max_turns: int = 0) -> Dialogue:
        """Return the episode's (observation, action) pairs.

        Raises:
            InputError: the method did not return a text, or it or the environment fails.
        """
        turns = max_turns or self.spec.max_turns
        if self._made is None or self._made[:2] != (options, turns):
            self._made = (options, turns, importlib.import_module(self.spec.module).make(options, turns))
        env = self._made[2]
        dialogue: Dialogue = []
        with named(f"environment {self.spec.name}: {self.method}() failed"):
            act = member(self.method, "env.player") if ":" in self.method else env.player(self.method)
            observation, info = settled(env.reset(seed=rng.getrandbits(32), options={"task_id": task_id}))
            messages = info.get("messages", ())
            self._chat = chat_text(messages, info.get("tools") or ()) if messages else ""
            shown = "\n".join(message["content"] for message in messages) or observation
            for _ in range(turns):
                action = settled(act(observation, rng))
                if not isinstance(action, str):
                    raise InputError(f"{self.spec.name}: {self.method}() returned {ascii(action)[:80]}, not a str")
                dialogue.append((shown, action))
                told: Any = settled(env.step(action))
                if not isinstance(told, tuple) or len(told) != 5 or not all(map(isinstance, told, STEP)):
                    wanted = "(observation, reward, terminated, truncated, info dict)"
                    raise env.refusal("step", told, wanted)
                observation, _, terminated, truncated, _ = told
                shown = observation
                if terminated or truncated:
                    break
        return dialogue

    def opening(self, task_id: str, options: Any) -> str:
        """Return the chat that the last episode began with; empty if it had none."""
        return self._chat


class LibraryEnv(gymnasium.Env[str, str]):
    """The base of environments of libraries and servers: its task is named, or drawn from the training tasks."""

    observation_space = action_space = TEXT_SPACE
    awaited = True
    options: Any

    def draw(self, seed: int | None, options: dict[str, Any] | None, tasks: Callable[[], Sequence[str]]) -> str:
        """Return ``options["task_id"]``, or one of ``tasks()`` drawn with ``seed``."""
        super().reset(seed=seed)
        return str((options or {}).get("task_id") or self.np_random.choice(tasks()))


def reached(earned: float, least: float | None) -> bool:
    """Return whether a reward is a success: at least ``least``, or above 0 without such a bound."""
    return earned > 0 if least is None else earned >= least


def players_starter(name: str, options: Any) -> StarterSpec:
    """Return the warm-start model of ``gymnasium:<id>`` with the constructor arguments ``options.kwargs``.

    Raises:
        NoPlayer: its class has no ``demonstrate``.
        InputError: ``demonstrate`` fails.
    """
    spec = adapter_spec(name)
    entry = registered(spec.gym_id)
    if not callable(own(entry, "demonstrate")):
        raise NoPlayer(name, ", or give its class a method demonstrate (docs/environments/gymnasium.md)")
    return words_starter(spec, entry.entry_point, spec.options(kwargs=options.kwargs), "demonstrate", "expert")


def named_player(spec: EnvSpec, options: Any) -> StarterSpec:
    """Return the warm-start model that imitates the function ``env.player``; raises `NoPlayer`: there is none."""
    if not options.player:
        raise NoPlayer(spec.name, f", or env.player=<module>:<function> (docs/environments/{spec.name}.md)")
    return words_starter(spec, member(options.player, "env.player"), options, options.player, "")


def words_starter(spec: EnvSpec, made_by: Any, options: Any, method: str, expert: str) -> StarterSpec:
    """Return the warm-start model that imitates a method of the class ``made_by``, with the keys ``options``.

    Raises:
        InputError: the method fails.
    """
    expert = expert if callable(getattr(made_by, expert, None)) else ""
    default = spec.options()
    chosen = {name: value for name, value in vars(options).items() if value != getattr(default, name)}
    return _starter(spec, _version(made_by), yaml.safe_dump(chosen, sort_keys=False), method, expert)


@lru_cache(maxsize=8)
def _starter(spec: EnvSpec, version: int, arguments: str, method: str, expert: str) -> StarterSpec:
    from rl_agents.envs.starters import IMITATION, SPECIAL_TOKENS, small_qwen3, word_tokenizer  # torch is slow

    chosen, player = yaml.safe_load(arguments), MethodPlayer(spec, method)
    dialogues = _heard(spec, player, spec.options(**chosen))
    texts = [text for dialogue in dialogues for turn in dialogue for text in turn]
    tags = sorted({tag for text in texts for tag in TAG.findall(text)})
    longest = max(sum(_tokens(turn, tags) for turn in dialogue) for dialogue in dialogues)
    answer = max(_tokens([action], tags) for dialogue in dialogues for _, action in dialogue)
    # Twice the player's length, because the model needs more turns.
    length = -(-2 * longest // 64) * 64
    words = dict.fromkeys(word for text in texts for word in _words(text, tags) if word not in SPECIAL_TOKENS)
    defaults = {"max_model_len": length, "max_response_tokens": 2 * answer, "lr": 5e-4, "iterations": 60}
    return StarterSpec(
        build_tokenizer=lambda: word_tokenizer(list(words), tags, length),
        build_model=small_qwen3,
        demonstrate=player,
        training=dict(IMITATION),
        defaults=defaults | {f"env.{name}": value for name, value in chosen.items()},
        version=version,
        opening=player.opening,
        expert=MethodPlayer(spec, expert) if expert else None,
    )


def _heard(spec: EnvSpec, player: Callable[..., Dialogue], options: Any) -> list[Dialogue]:
    rng, listed = random.Random(spec.name), importlib.import_module(spec.module).task_ids
    tasks = [task for split in ("train", "test") for task in listed(split, options)[:HEARD_TASKS]]
    if not tasks:
        raise InputError(f"environment {spec.name} has no tasks")
    return [player(task, rng, options) for task in tasks]


def _tokens(texts: Iterable[str], tags: Sequence[str]) -> int:
    return sum(len(_words(text, tags)) + len(TAG.findall(text)) + TEMPLATE_TOKENS for text in texts)


def _words(text: str, tags: Sequence[str]) -> list[str]:
    return TAG.sub(" ", text).split() if tags else text.split()


def _version(made_by: Any) -> int:
    """Return a number that changes with the files of the environment's class and its bases.

    Whole files, because a player's actions also depend on their constants and functions.
    """
    texts: dict[str, bytes] = {}
    for part in getattr(made_by, "__mro__", (made_by,)):
        with contextlib.suppress(OSError, TypeError):  # without a file: built in or interactive
            name = inspect.getfile(part)
            texts[name] = texts.get(name) or Path(name).read_bytes()
    return zlib.crc32(b"".join(texts.values()))


FAMILY = EnvFamily(
    name=f"{PREFIX}<id>",
    summary="any Gymnasium environment, or your own as gymnasium:<module>:<class or id>",
    reference="docs/environments/gymnasium.md",
    spec=adapter_spec,
    starter=players_starter,
)
