"""User errors (one line, exit code 2), errors that end a run, and errors that a run recovers from."""

from __future__ import annotations

import difflib
import inspect
import math
import sys
import sysconfig
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_FOLDERS = (*map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib")), str(Path(__file__).parent))
#: Beginnings of the files that are not a user's: Python's, those of installed packages, and ours.
_LIBRARIES = (*(f"{folder}/" for folder in _FOLDERS), "<")


class InputError(ValueError):
    """Bad input. The command line prints the message on one line and exits with code 2."""


class NoPlayer(InputError):
    """The environment has no scripted player; ``hint`` is a further way out."""

    def __init__(self, env: str, hint: str = "") -> None:
        super().__init__(f"environment {env} has no scripted player, so no warm-start model: set model=DIR{hint}")


class NoTasks(InputError):
    """The environment lists no tasks of a split."""


class EpisodesFail(RuntimeError):
    """Too many episodes fail, and would fail again; the message says how many, and why.

    Attributes:
        repeats: the environment's code raises or returns invalid values, so that a resumed run fails, too.
    """

    repeats = False


class RolloutError(RuntimeError):
    """Rollouts could not be completed, even after restarts of env runners and engines."""


class PolicyFell(RuntimeError):
    """The policy degraded below its start, and ``collapse_monitor`` is set to end the run."""


class LearnerLost(RuntimeError):
    """A learner died or does not answer; new learners can continue from the last checkpoint."""


class AgentFailed(RuntimeError):
    """A black-box agent ended without a result; the message has the reason, and the place in its code."""


def place_of(error: BaseException, callers: Collection[str] = ()) -> str:
    """Return `` (file.py:12)``, the deepest line of a user's code, or else of a file that is none of ``callers``."""
    return _user_place([(f.f_code.co_filename, line) for f, line in traceback.walk_tb(error.__traceback__)], callers)


def place_in_thread(ident: int | None) -> str:
    """Return where a thread is now, as `place_of` does."""
    frame = sys._current_frames().get(ident or 0)
    frames = traceback.walk_stack(frame) if frame else ()
    return _user_place([(f.f_code.co_filename, line) for f, line in frames][::-1])


def _user_place(frames: list[tuple[str, int]], callers: Collection[str] = ()) -> str:
    others = [place for place in frames if callers and place[0] not in callers and "importlib" not in place[0]]
    found = [place for place in frames if not place[0].startswith(_LIBRARIES)] or others
    return f" ({Path(found[-1][0]).name}:{found[-1][1]})" if found else ""


def described(error: BaseException, callers: Collection[str] = ()) -> str:
    """Return the type, the message and the place (`place_of`) of an error in a user's code."""
    if isinstance(error, AgentFailed):
        return str(error)
    return f"{type(error).__name__}: {error}{place_of(error, callers)}"


def defined_at(function: Any) -> str:
    """Return `` (file.py:12)``, where a user's function is defined; empty for one that is not written in Python."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f" ({Path(code.co_filename).name}:{code.co_firstlineno})" if code else ""


def only_item(value: Any) -> Any:
    """Return the number or flag in an array or tensor of one item, of any library; anything else unchanged."""
    with suppress(AttributeError, TypeError, ValueError, RuntimeError):  # several items, or no array
        return value.item()
    return value


def finite_metrics(metrics: Mapping[Any, Any], source: str) -> dict[str, float]:
    """Return the metrics that are finite numbers; print one line for each other one, except None."""
    found: dict[str, float] = {}
    for name, value in metrics.items():
        item = only_item(value)
        number = math.nan
        with suppress(TypeError, ValueError, OverflowError):
            number = math.nan if isinstance(item, str | bytes) else float(item)
        if math.isfinite(number):
            found[str(name)] = number
        elif item is not None:
            shown = f"{type(value).__name__} {ascii(value)[:80]}"
            report_once(f"{source}: the metric '{name}' is {shown}, not a finite number; it is excluded", str(name))
    return found


def report_once(line: str, *topic: str) -> None:
    """Print a line to stderr, once per process for each topic, or for each line."""
    if (topic or line) not in _reported:
        _reported.add(topic or line)
        print(f"[rl_agents] {line}", file=sys.stderr, flush=True)


_reported: set[str | tuple[str, ...]] = set()


def number_from(function: Callable[..., Any], value: Any, least: float = -math.inf, most: float = math.inf) -> float:
    """Return what a user's function returned as a number.

    Raises:
        ValueError: it is no finite number from ``least`` to ``most``; the message has the function's file and line.
    """
    try:
        number = float(only_item(value))
    except (TypeError, ValueError, RuntimeError, OverflowError):
        number = math.nan
    if math.isfinite(number) and least <= number <= most:
        return number
    name = getattr(function, "__name__", type(function).__name__)
    wanted = f"a number from {least:g} to {most:g}" if math.isfinite(most) else "a finite number"
    raise ValueError(f"{name}() returned {ascii(value)[:80]}, not {wanted}{defined_at(function)}")


@contextmanager
def named(where: str) -> Iterator[None]:
    """Turn an error of a user's code in the block into an `InputError` that begins with ``where``."""
    try:
        yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f"{where}: {described(error)}") from error


def closest(name: str, valid: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the valid choice that ``name`` was probably meant to be; empty if none is close.

    That is the one with the most of its words, then with the fewest typing errors, up to one per three letters; else
    the shortest, latest one that begins with ``name``; else the most similar one. A beginning of all up to a dot
    (``env.``) does not count.

    Args:
        cutoff: least similarity of the last case, 1 for equal names; higher where ``valid`` is a folder of anything.
    """
    from rapidfuzz.distance import OSA  # letters to insert, delete, replace, or swap with the next

    choices, start = sorted(valid), name[: name.rfind(".") + 1]
    shared = len(start) if all(choice.startswith(start) for choice in choices) else 0
    wanted, known = name.lower()[shared:][:100], {choice.lower()[shared:]: choice for choice in choices}
    errors = {choice: OSA.distance(wanted, choice) for choice in known}
    if close := [choice for choice in known if errors[choice] <= max(1, len(wanted) // 3)]:
        words = wanted.split("_")

        def foreign(choice: str) -> int:  # words that are none of the choice's, with a typing error
            own = choice.split("_")
            return sum(min(OSA.distance(word, other) for other in own) > max(1, len(word) // 3) for word in words)

        return known[min(close, key=lambda choice: (foreign(choice), errors[choice], choice[:1] != wanted[:1]))]
    begun = [choice for choice in known if len(wanted) > 2 and choice.startswith(wanted)]
    alike = sorted(sorted(begun, reverse=True), key=len) or difflib.get_close_matches(wanted, known, n=1, cutoff=cutoff)
    return known[alike[0]] if alike else ""


def similar(name: str, valid: Iterable[str], otherwise: str = "", cutoff: float = 0.6) -> str:
    """Return a hint that names the `closest` choice; ``otherwise`` if none is close.

    >>> similar("grop", ["grpo", "ppo"])
    "did you mean 'grpo'?"
    """
    near = closest(name, valid, cutoff)
    return f"did you mean '{near}'?" if near else otherwise


def similar_file(path: Path) -> str:
    """Return a hint that names what is like ``path``, or its first missing folder; files of its suffix come first."""
    if path.exists():
        return ""
    folder = next((parent for parent in path.parents if parent.is_dir()), path)
    wanted, there = path.relative_to(folder).parts[0], [entry.name for entry in folder.glob("*")]
    alike = {Path(name).stem: name for name in there if Path(name).suffix == Path(wanted).suffix}
    near = alike.get(closest(Path(wanted).stem, alike)) or closest(wanted, {*there} - {*alike.values()})
    return f"did you mean '{near}'?" if near else ""


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return a hint that names the closest valid choice, or all of them when none is close."""
    choices = sorted(valid)
    return similar(name, choices, "valid: " + ", ".join(choices))


def unknown(kind: str, name: str, valid: Iterable[str]) -> InputError:
    return InputError(f"unknown {kind} '{name}': {nearest(name, valid)}")
