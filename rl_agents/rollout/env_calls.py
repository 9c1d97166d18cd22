"""Environments as the agent loop sees them: called within a time limit, and read with suspicion.

An environment may raise, hang or answer nonsense; each becomes an `EnvFailure`, which ends one episode.
"""

from __future__ import annotations

import asyncio
import math
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import numpy as np

from rl_agents.chat.template import chat_text, further_text
from rl_agents.envs import coroutines
from rl_agents.envs.spec import cut_text
from rl_agents.errors import InputError
from rl_agents.queues import Deadline

T = TypeVar("T")
#: What counts as a number and as a flag; built once, since a union takes as long to build as to ask.
NUMBERS, FLAGS = (float, int, Real, np.bool_), (bool, np.bool_)
#: Pauses between interruptions of code that swallows them, in turn: how long its `except` blocks take is not known.
RELENTLESS_S = (2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4)
#: Where a call passes through on its way to the environment.
OURS = {__file__, str(Path(__file__).with_name("env_worker.py")), coroutines.__file__}


class CallTimeout(BaseException):
    """The call took too long. Not an `Exception`, so that ``except Exception`` in the callee does not swallow it."""


class QueueTimeout(CallTimeout):
    """The call's turn did not come: neither its environment nor its server is to blame."""


def over(deadline: Deadline) -> CallTimeout:
    problem = deadline.problem() or f"no answer within {deadline.seconds:g} s"
    return (QueueTimeout if deadline.stuck else CallTimeout)(problem)


def call_with_timeout(seconds: float, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Return ``call(*args, **kwargs)``, interrupted after ``seconds`` of wall-clock time, less that in line for places.

    The limit does not apply (the call just runs) outside the main thread, under a debugger, where the platform has
    no interval timer, and for ``seconds <= 0``. It interrupts Python code, loops with a bare ``except:`` too, and
    system calls such as ``sleep``, not a C extension that never returns. A handler and a timer that were set before
    (pytest-timeout's, for one) are put back, the timer with the time it has left.

    Raises:
        CallTimeout: the limit was reached.
    """
    if seconds <= 0 or not _can_interrupt():
        return call(*args, **kwargs)
    mine: FrameType | None = sys._getframe()
    inside, strikes, deadline = True, 0, Deadline(seconds)

    def interrupt(signum: int, frame: FrameType | None) -> None:
        nonlocal strikes
        if frame is mine and not inside:
            return
        if not strikes and not deadline.problem() and deadline.pause:
            signal.setitimer(signal.ITIMER_REAL, deadline.pause, max(seconds, 1.0))
            return
        strikes += 1
        if strikes > 1:
            # Something swallowed the first interruption. The next ones follow so soon that one of them strikes in the
            # `except` block or behind it, where nothing swallows it.
            signal.setitimer(signal.ITIMER_REAL, RELENTLESS_S[strikes % len(RELENTLESS_S)], 1e-3)
        raise over(deadline)

    started = time.monotonic()
    previous_handler = signal.signal(signal.SIGALRM, interrupt)
    # The interval fires again where a bare `except:` in the callee swallows the first interruption.
    delay, interval = signal.setitimer(signal.ITIMER_REAL, seconds, max(seconds, 1.0))
    try:
        return call(*args, **kwargs)
    finally:
        inside = False  # first of all: from here on no interruption is raised
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous_handler or signal.SIG_DFL)
        if delay:
            left = delay - (time.monotonic() - started)
            signal.setitimer(signal.ITIMER_REAL, max(left, 1e-3), interval)
        mine = None  # the frame holds `interrupt`, which holds the frame: a cycle per call, left to the collector


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


class EnvFailure(Exception):
    """The environment failed; the message is the episode's ``end_cause``."""


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
        further: messages that follow the action instead of the observation; empty for one user message.
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
    further: str = ""


def call_env(timeout_s: float, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Return ``call(*args, **kwargs)``, or raise `EnvFailure` when it raises or takes longer than ``timeout_s``.

    An `InputError` passes: the user can fix it, another episode cannot. So does an `EnvFailure`: that of an environment
    in another process has been translated already.
    """
    try:
        return call_with_timeout(timeout_s, call, *args, **kwargs)
    except (InputError, EnvFailure):
        raise
    # A plain call is never canceled: a CancelledError is the environment's own.
    except (CallTimeout, Exception, SystemExit, asyncio.CancelledError) as error:
        raise failure_of(call, error) from error


def failure_of(call: Callable[..., Any], error: BaseException) -> EnvFailure:
    if isinstance(error, CallTimeout):
        return EnvFailure(f"env_timeout: {getattr(call, '__name__', 'call')}: {error}")
    return EnvFailure(f"env_error: {type(error).__name__}: {error}{_place(error)}")


def timed_out(call: Callable[..., Any], deadline: Deadline) -> EnvFailure:
    """Return the failure of a call that had no answer in time; its cause is a `CallTimeout`, as in the main thread."""
    error = over(deadline)
    failure = failure_of(call, error)
    failure.__cause__ = error
    return failure


def _place(error: BaseException) -> str:
    """Return `` (file.py:12)``, the line that raised; empty where no Python line below `call_env` did."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    outside = [(Path(name).name, line) for name, line in frames if name not in OURS]
    return " ({}:{})".format(*outside[-1]) if outside else ""


def read_reset(answer: Any, longest: int = 0) -> EnvReply:
    """Check what ``reset`` returned.

    Args:
        longest: characters of an observation; see `cut_text`.

    Raises:
        EnvFailure: it is not ``(observation, info)`` as `rl_agents.envs.base` describes it.
    """
    observation, info = _parts(answer, 2, "reset")
    return _answer(observation, info, longest, chat=_chat(info))


def read_step(answer: Any, longest: int = 0) -> EnvReply:
    """Check what ``step`` returned; ``longest`` as for `read_reset`.

    Raises:
        EnvFailure: it is not ``(observation, reward, terminated, truncated, info)``.
    """
    observation, reward, terminated, truncated, info = _parts(answer, 5, "step")
    return _answer(
        observation, info, longest,
        reward=_number(reward, "reward"),
        terminated=_flag(terminated, "terminated"),
        truncated=_flag(truncated, "truncated"),
        chat=_chat(info) if isinstance(info, Mapping) and info.get("new_dialogue") else "",
        further=_further(info, longest),
    )  # fmt: skip


def _answer(observation: Any, info: Any, longest: int, **outcome: Any) -> EnvReply:
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
        metrics={str(k): float(v) for k, v in metrics.items() if isinstance(v, NUMBERS) and math.isfinite(v)},
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
    try:
        number = float(value) if isinstance(value, NUMBERS) else math.nan
    except (OverflowError, ValueError):
        number = math.inf
    if not math.isfinite(number):
        raise EnvFailure(f"env_garbage: {name} is {_shown(value)}, not a finite number")
    return number


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, FLAGS):
        raise EnvFailure(f"env_garbage: {name} is {_shown(value)}, not a bool")
    return bool(value)


def _shown(value: Any) -> str:
    """Return a value's type and the start of its text, even if its ``__repr__`` raises."""
    try:
        text = ascii(value)
    except Exception:
        text = "?"
    return f"{type(value).__name__} {text[:80]}"
