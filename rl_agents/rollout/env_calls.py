"""Calls of environments within a time limit, and checks of their answers.

An environment may raise, hang or return invalid values. Each becomes an `EnvFailure`, which ends one episode.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

from rl_agents.chat.template import chat_text, further_text
from rl_agents.envs import coroutines
from rl_agents.envs.spec import cut_text
from rl_agents.errors import InputError, defined_at, described, finite_metrics, only_item, place_of
from rl_agents.queues import Deadline
from rl_agents.time_limits import CallTimeout, call_with_timeout, over

T = TypeVar("T")
#: Types of numbers; created once, because building a union takes as long as a check.
NUMBERS = (float, int, Real, Decimal)
#: Of a turn; ``turn/NAME/ENVIRONMENT`` is a tag of a run over several environments.
METRIC_NAME = re.compile(r"[A-Za-z0-9_.-]+")
#: Files that a call passes through before it reaches the environment.
OURS = {__file__, str(Path(__file__).with_name("env_worker.py")), coroutines.__file__}


class EnvFailure(Exception):
    """The environment failed; the message is the episode's ``end_cause``."""


@dataclass(frozen=True, slots=True)
class EnvReply:
    """A checked answer of an environment.

    Attributes:
        anchor: the state's key for step-level grouping.
        success: None if the environment does not report it.
        metrics: the finite numbers of ``info["metrics"]``.
        turn_metrics: of the step alone.
        progress: T3's signal; None if the environment does not report it.
        query: the question in the action; empty if the environment does not report it.
        references: accepted answers, if the environment reports them.
        points: statements that a long answer must contain.
        evidence: the tools' findings so far; None if the environment does not report them.
        hint: what a teacher reads from now on in addition; None: as before.
        new_dialogue: the observation begins a dialogue, and nothing before it is read again.
        chat: messages and tools at the beginning of a dialogue, after a reset or with ``new_dialogue``; empty for one
            user message.
        further: messages that follow the action instead of the observation; empty for one user message.
        seat: of a game, the reader's; None: it is no game.
    """

    observation: str
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    anchor: str = ""
    valid: bool = True
    success: bool | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    turn_metrics: dict[str, float] = field(default_factory=dict)
    progress: bool | None = None
    query: str = ""
    references: list[str] = field(default_factory=list)
    points: list[str] = field(default_factory=list)
    evidence: list[str] | None = None
    hint: str | None = None
    new_dialogue: bool = False
    chat: str = ""
    further: str = ""
    seat: int | None = None


def call_env(timeout_s: float, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Return ``call(*args, **kwargs)``, or raise `EnvFailure` if it raises or takes longer than ``timeout_s``.

    An `InputError` passes, because the user has to fix it.
    """
    try:
        return call_with_timeout(timeout_s, call, *args, **kwargs)
    except InputError:
        raise
    # A plain call is never canceled, so a CancelledError is the environment's own.
    except (CallTimeout, Exception, SystemExit, asyncio.CancelledError) as error:
        raise failure_of(call, error) from error


def failure_of(call: Callable[..., Any], error: BaseException, place: str = "") -> EnvFailure:
    if isinstance(error, CallTimeout):
        return EnvFailure(f"env_timeout: {getattr(call, '__name__', 'call')}: {error}{place or place_of(error)}")
    return EnvFailure(f"env_error: {described(error, OURS)}")


def timed_out(call: Callable[..., Any], deadline: Deadline, place: str = "") -> EnvFailure:
    """Return the failure of a call without an answer in time; its cause is a `CallTimeout`, as in the main thread."""
    error = over(deadline)
    failure = failure_of(call, error, place)
    failure.__cause__ = error
    return failure


def read_reset(answer: Any, longest: int = 0, env: Any = None) -> EnvReply:
    """Check what ``reset`` returned.

    Args:
        longest: characters of an observation; see `cut_text`.
        env: that returned it, for messages.

    Raises:
        EnvFailure: it is not ``(observation, info)`` as `rl_agents.envs.base` describes it.
    """
    with _named(env, "reset") as place:
        observation, info = _parts(answer, 2, "reset")
        return _answer(observation, info, longest, place, chat=_chat(info))


def read_step(answer: Any, longest: int = 0, env: Any = None) -> EnvReply:
    """Check what ``step`` returned; the arguments are those of `read_reset`.

    Raises:
        EnvFailure: it is not ``(observation, reward, terminated, truncated, info)``.
    """
    with _named(env, "step") as place:
        observation, reward, terminated, truncated, info = _parts(answer, 5, "step")
        return _answer(
            observation, info, longest, place,
            reward=_number(reward, "reward"),
            terminated=_flag(terminated, "terminated"),
            truncated=_flag(truncated, "truncated"),
            chat=_chat(info) if isinstance(info, Mapping) and info.get("new_dialogue") else "",
            further=_further(info, longest),
        )  # fmt: skip


@contextlib.contextmanager
def _named(env: Any, method: str) -> Iterator[str]:
    """Yield where the user's method is defined, and add it to the failures of the block."""
    place = defined_at(getattr(type(getattr(env, "unwrapped", env)), method, None))
    try:
        yield place
    except EnvFailure as failure:
        raise EnvFailure(f"{failure}{place}") from None


def _answer(observation: Any, info: Any, longest: int, place: str, **outcome: Any) -> EnvReply:
    observation = _text(observation, "observation")
    if not isinstance(info, Mapping):
        raise EnvFailure(f"env_garbage: info is {_shown(info)}, not a dict")
    success, progress, metrics = info.get("success"), info.get("progress"), info.get("metrics") or {}
    if not isinstance(metrics, Mapping):
        raise EnvFailure(f"env_garbage: info['metrics'] is {_shown(metrics)}, not a dict")
    return EnvReply(
        observation=cut_text(observation, longest),
        anchor=_text(info.get("anchor", observation), "info['anchor']"),
        valid=_flag(info.get("valid", True), "info['valid']"),
        success=None if success is None else _flag(success, "info['success']"),
        metrics=finite_metrics(metrics, f"environment{place}") if metrics else {},
        turn_metrics=_turn_metrics(info.get("turn_metrics") or {}),
        progress=None if progress is None else _flag(progress, "info['progress']"),
        query=_text(info.get("query", ""), "info['query']"),
        references=_texts(info.get("references", ()), "info['references']"),
        points=_texts(info.get("points", ()), "info['points']"),
        evidence=_texts(info["evidence"], "info['evidence']") if "evidence" in info else None,
        hint=_text(info["hint"], "info['hint']") if "hint" in info else None,
        new_dialogue=_flag(info.get("new_dialogue", False), "info['new_dialogue']"),
        seat=seat if isinstance(seat := info.get("seat"), int) else None,
        **outcome,
    )


def _turn_metrics(metrics: Any) -> dict[str, float]:
    if not isinstance(metrics, Mapping):
        raise EnvFailure(f"env_garbage: info['turn_metrics'] is {_shown(metrics)}, not a dict")
    for name in metrics:
        if not isinstance(name, str) or not METRIC_NAME.fullmatch(name):
            raise EnvFailure(
                f"env_garbage: info['turn_metrics'] has the name {_shown(name)}: use ASCII letters, digits and _.-"
            )
    return {name: _number(value, f"info['turn_metrics']['{name}']") for name, value in metrics.items()}


def read_seats(info: Mapping[str, Any], seats: int) -> tuple[int, list[float]]:
    """Return a game's ``info["seat"]``, and ``info["rewards"]``, by default 0 for each seat. Raises `EnvFailure`."""
    seat, rewards = info.get("seat"), info.get("rewards", [0.0] * seats)
    if not isinstance(seat, int) or not 0 <= seat < seats:
        raise EnvFailure(f"env_garbage: info['seat'] is {_shown(seat)}, not a number from 0 to {seats - 1}")
    if not isinstance(rewards, Sequence) or len(rewards) != seats:
        raise EnvFailure(f"env_garbage: info['rewards'] is {_shown(rewards)}, not a list of {seats} numbers")
    return seat, [_number(reward, "info['rewards']") for reward in rewards]


def _chat(info: Any) -> str:
    """Return ``info["messages"]`` and ``info["tools"]`` as one text; empty if there are no messages."""
    messages = info.get("messages") if isinstance(info, Mapping) else None
    if messages is None:
        return ""
    return _json("messages", messages, "tools", info.get("tools") or (), chat_text)


def _further(info: Any, longest: int) -> str:
    """Return ``info["further_messages"]`` and the action's ``info["calls"]`` as one text; empty without messages."""
    messages = info.get("further_messages") if isinstance(info, Mapping) else None
    if not messages:
        return ""
    if info.get("new_dialogue"):
        raise EnvFailure("env_garbage: info['further_messages'] with info['new_dialogue']: use info['messages'] then")
    if isinstance(messages, list):
        messages = [_shorter(message, longest) for message in messages]
    return _json("further_messages", messages, "calls", info.get("calls") or (), further_text)


def _shorter(message: Any, longest: int) -> Any:
    content = message.get("content") if isinstance(message, Mapping) else None
    return {**message, "content": cut_text(content, longest)} if isinstance(content, str) else message


def _json(name: str, messages: Any, other: str, items: Any, write: Callable[[Any, Any], str]) -> str:
    for key, value in ((name, messages), (other, items)):
        if not isinstance(value, Sequence) or not all(isinstance(item, Mapping) for item in value):
            raise EnvFailure(f"env_garbage: info['{key}'] is {_shown(value)}, not a list of dicts")
    for message in messages:  # a template would render it as an empty message
        if "role" not in message or not {"content", "tool_calls"} & message.keys():
            raise EnvFailure(f"env_garbage: info['{name}'] has {_shown(message)}, without role, or without content")
    try:
        return _text(write(messages, items), f"info['{name}']")
    except (TypeError, ValueError) as error:
        raise EnvFailure(f"env_garbage: info['{name}'] is not JSON: {error}") from None


def _texts(value: Any, name: str) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise EnvFailure(f"env_garbage: {name} is {_shown(value)}, not a list of str")
    return [_text(item, name) for item in value]


def _parts(answer: Any, count: int, call: str) -> tuple[Any, ...]:
    if not isinstance(answer, tuple) or len(answer) != count:
        size = f" of {len(answer)}" if isinstance(answer, tuple) else ""
        raise EnvFailure(f"env_garbage: {call} returned {type(answer).__name__}{size}, not a tuple of {count}")
    return answer


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise EnvFailure(f"env_garbage: {name} is {_shown(value)}, not a str")
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate; tokenizers raise on it
        raise EnvFailure(f"env_garbage: {name} is not valid Unicode: {_shown(value)}") from None
    return str(value)


def _number(value: Any, name: str) -> float:
    item = only_item(value)
    try:
        number = float(item) if isinstance(item, NUMBERS) else math.nan
    except (OverflowError, ValueError):
        number = math.inf
    if not math.isfinite(number):
        raise EnvFailure(f"env_garbage: {name} is {_shown(value)}, not a finite number")
    return number


def _flag(value: Any, name: str) -> bool:
    item = only_item(value)
    if not isinstance(item, bool):
        raise EnvFailure(f"env_garbage: {name} is {_shown(value)}, not a bool")
    return item


def _shown(value: Any) -> str:
    """Return a value's type and the start of its text, even if its ``__repr__`` raises."""
    try:
        text = ascii(value)
    except Exception:
        text = "?"
    return f"{type(value).__name__} {text[:80]}"
