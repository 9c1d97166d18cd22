"""User errors (one line, exit code 2), what ends a run, and what a run recovers from by itself."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input. The command line prints the message on one line and exits with code 2."""


class EpisodesFail(RuntimeError):
    """Episodes are such that a run makes no sense, and would be again: the message says how many, and why."""


class RolloutError(RuntimeError):
    """Jobs could not be completed although env runners and engines were restarted."""


class PolicyFell(RuntimeError):
    """The policy's success fell below its start, and the key ``collapse_monitor`` says that the run ends then."""


class LearnerLost(RuntimeError):
    """A learner died or does not answer; new ones can go on from the last checkpoint."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return a hint that names the closest valid choice, or all of them when none is close.

    >>> nearest("grop", ["grpo", "ppo"])
    "did you mean 'grpo'?"
    """
    choices = sorted(valid)
    lowered = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{lowered[close[0]]}'?"
    return "valid: " + ", ".join(choices)


def unknown(kind: str, name: str, valid: Iterable[str]) -> InputError:
    """Build the error for an unknown ``kind`` called ``name``."""
    return InputError(f"unknown {kind} '{name}': {nearest(name, valid)}")
