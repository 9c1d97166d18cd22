"""Environments as the agent loop sees them: pooled, called within a time limit, and read with suspicion.

An environment may raise, hang or answer nonsense; each becomes an `EnvFailure`, which ends one episode.
"""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from types import FrameType
from typing import Any, NoReturn, TypeVar

import numpy as np

from rl_agents.chat.context import chat_text
from rl_agents.envs.base import TextEnv
from rl_agents.errors import InputError

T = TypeVar("T")
EnvFactory = Callable[[], TextEnv]
CLOSE_TIMEOUT_S = 10.0


class EnvFailure(Exception):
    """The environment failed; the message is the episode's ``end_cause``."""


class CallTimeout(BaseException):
    """The call took too long. Not an `Exception`, so that ``except Exception`` in the callee does not swallow it."""


@dataclass(frozen=True, slots=True)
class EnvReply:
    """What an environment said, checked.

    Attributes:
        anchor: the state's name for step-level grouping.
        success: None when the environment does not say.
        metrics: the finite numbers of ``info["metrics"]``.
        progress: T3's signal; None when the environment cannot say.
        query: the question that the action put; empty when the environment does not say.
        references: accepted answers, as far as the environment tells them.
        points: what a long answer has to state.
        evidence: what the tools have found so far; None when the environment does not say.
        new_dialogue: the observation begins a dialogue; nothing that was said before is read again.
        chat: messages and tools that a dialogue begins with, of a reset or with ``new_dialogue``; empty for one user
            message.
    """

    observation: str
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    anchor: str = ""
    valid: bool = True
    success: bool | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    progress: bool | None = None
    query: str = ""
    references: list[str] = field(default_factory=list)
    points: list[str] = field(default_factory=list)
    evidence: list[str] | None = None
    new_dialogue: bool = False
    chat: str = ""


def call_env(timeout_s: float, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Return ``call(*args, **kwargs)``, or raise `EnvFailure` when it raises or takes longer than ``timeout_s``.

    An `InputError` passes: the user can fix it, another episode cannot.
    """
    try:
        return call_with_timeout(timeout_s, call, *args, **kwargs)
    except InputError:
        raise
    except CallTimeout as error:
        raise EnvFailure(f"env_timeout: {getattr(call, '__name__', 'call')}: {error}") from error
    except (Exception, SystemExit) as error:
        raise EnvFailure(f"env_error: {type(error).__name__}: {error}") from error


def call_with_timeout(seconds: float, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Return ``call(*args, **kwargs)``, interrupted after ``seconds`` of wall-clock time.

    The limit does not apply (the call just runs) outside the main thread, under a debugger, where the platform has
    no interval timer, and for ``seconds <= 0``. It interrupts Python code and system calls such as ``sleep``, not a
    C extension that never returns. A handler and a timer that were set before (pytest-timeout's, for one) are put
    back, the timer with the time it has left.

    Raises:
        CallTimeout: the limit was reached.
    """
    if seconds <= 0 or not _can_interrupt():
        return call(*args, **kwargs)

    def interrupt(signum: int, frame: FrameType | None) -> NoReturn:
        raise CallTimeout(f"no answer within {seconds:g} s")

    started = time.monotonic()
    previous_handler = signal.signal(signal.SIGALRM, interrupt)
    # The interval fires again where a bare `except:` in the callee swallows the first interruption.
    delay, interval = signal.setitimer(signal.ITIMER_REAL, seconds, max(seconds, 1.0))
    try:
        try:
            return call(*args, **kwargs)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        # Again, because the signal may have struck within the `finally` above.
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous_handler or signal.SIG_DFL)
        if delay:
            left = delay - (time.monotonic() - started)
            signal.setitimer(signal.ITIMER_REAL, max(left, 1e-3), interval)


def _can_interrupt() -> bool:
    return (
        hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread() and not debugger_active()
    )


def debugger_active() -> bool:
    """Whether a debugger traces this thread: someone at a breakpoint must not run into a time limit."""
    if sys.gettrace() is not None:
        return True
    monitoring = getattr(sys, "monitoring", None)  # Python 3.12 and later
    return monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID) is not None


class EnvPool:
    """Hands out idle environments and creates new ones when none is idle."""

    def __init__(self, make_env: EnvFactory) -> None:
        self._make_env = make_env
        self._idle: list[TextEnv] = []
        self.created = 0

    def take(self) -> TextEnv:
        """Return an environment that nobody else uses; whatever its construction raises is passed on."""
        if self._idle:
            return self._idle.pop()
        env = self._make_env()
        self.created += 1
        return env

    def give_back(self, env: TextEnv) -> None:
        """Keep the environment of an episode that ended cleanly."""
        self._idle.append(env)

    def discard(self, env: TextEnv) -> None:
        """Close the environment of a failed episode; what it raises while closing no longer matters."""
        with contextlib.suppress(Exception, SystemExit, CallTimeout):
            call_with_timeout(CLOSE_TIMEOUT_S, env.close)

    def close(self) -> None:
        """Close all idle environments."""
        while self._idle:
            self.discard(self._idle.pop())


def read_reset(answer: Any) -> EnvReply:
    """Check what ``reset`` returned.

    Raises:
        EnvFailure: it is not ``(observation, info)`` as `rl_agents.envs.base` describes it.
    """
    observation, info = _parts(answer, 2, "reset")
    return _answer(observation, info, chat=_chat(info))


def read_step(answer: Any) -> EnvReply:
    """Check what ``step`` returned.

    Raises:
        EnvFailure: it is not ``(observation, reward, terminated, truncated, info)``.
    """
    observation, reward, terminated, truncated, info = _parts(answer, 5, "step")
    return _answer(
        observation, info,
        reward=_number(reward, "reward"),
        terminated=_flag(terminated, "terminated"),
        truncated=_flag(truncated, "truncated"),
        chat=_chat(info) if isinstance(info, Mapping) and info.get("new_dialogue") else "",
    )  # fmt: skip


def _answer(observation: Any, info: Any, **outcome: Any) -> EnvReply:
    observation = _text(observation, "observation")
    if not isinstance(info, Mapping):
        raise EnvFailure(f"env_garbage: info is {_shown(info)}, not a dict")
    success, progress, metrics = info.get("success"), info.get("progress"), info.get("metrics") or {}
    if not isinstance(metrics, Mapping):
        raise EnvFailure(f"env_garbage: info['metrics'] is {_shown(metrics)}, not a dict")
    return EnvReply(
        observation=observation,
        anchor=_text(info.get("anchor", observation), "info['anchor']"),
        valid=_flag(info.get("valid", True), "info['valid']"),
        success=None if success is None else _flag(success, "info['success']"),
        metrics={str(k): float(v) for k, v in metrics.items() if isinstance(v, Real | np.bool_) and math.isfinite(v)},
        progress=None if progress is None else _flag(progress, "info['progress']"),
        query=_text(info.get("query", ""), "info['query']"),
        references=_texts(info.get("references", ()), "info['references']"),
        points=_texts(info.get("points", ()), "info['points']"),
        evidence=_texts(info["evidence"], "info['evidence']") if "evidence" in info else None,
        new_dialogue=_flag(info.get("new_dialogue", False), "info['new_dialogue']"),
        **outcome,
    )


def _chat(info: Any) -> str:
    """Return ``info["messages"]`` and ``info["tools"]`` as one text; empty when there are no messages."""
    messages = info.get("messages") if isinstance(info, Mapping) else None
    if messages is None:
        return ""
    tools = info.get("tools") or ()
    for name, items in (("messages", messages), ("tools", tools)):
        if not isinstance(items, Sequence) or not all(isinstance(item, Mapping) for item in items):
            raise EnvFailure(f"env_garbage: info['{name}'] is {_shown(items)}, not a list of dicts")
    try:
        return _text(chat_text(messages, tools), "info['messages']")
    except (TypeError, ValueError) as error:
        raise EnvFailure(f"env_garbage: info['messages'] is not JSON: {error}") from None


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
    try:
        number = float(value) if isinstance(value, Real | np.bool_) else math.nan
    except (OverflowError, ValueError):
        number = math.inf
    if not math.isfinite(number):
        raise EnvFailure(f"env_garbage: {name} is {_shown(value)}, not a finite number")
    return number


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise EnvFailure(f"env_garbage: {name} is {_shown(value)}, not a bool")
    return bool(value)


def _shown(value: Any) -> str:
    """Return a value's type and the start of its text, whatever its ``__repr__`` does."""
    try:
        text = ascii(value)
    except Exception:
        text = "?"
    return f"{type(value).__name__} {text[:80]}"
