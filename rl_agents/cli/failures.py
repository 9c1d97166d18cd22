"""Reports of failures: one line for the user, and a file with the traceback."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from pathlib import Path

from rl_agents.errors import place_of
from rl_agents.installation import as_called
from rl_agents.reporting.outputs import ERROR_LOG

TRACEBACK_VARIABLE = "RL_AGENTS_TRACEBACK"


def one_line(error: BaseException) -> str:
    """Return the message of ``error`` on one line, without Ray's wrapper of a remote error."""
    error = getattr(error, "cause", None) or error
    return " ".join(str(error).split()) or type(error).__name__


def report_crash(error: BaseException, folder: Path | None = None, show: bool = False, hint: str = "") -> int:
    """Write the traceback to ``error.log``, name the file on one line of stderr, and return exit code 1.

    Args:
        folder: of ``error.log``; default: a new temporary folder.
        show: also print the traceback (as with RL_AGENTS_TRACEBACK=1).
        hint: a further sentence, such as how to resume.
    """
    text = "".join(traceback.format_exception(error))
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="rl_agents-"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / ERROR_LOG
        log.write_text(text, encoding="utf-8")
    except OSError:  # for example, the disk is full
        log = Path(tempfile.mkdtemp(prefix="rl_agents-")) / ERROR_LOG
        log.write_text(text, encoding="utf-8")
    if show or os.environ.get(TRACEBACK_VARIABLE, "0") not in ("", "0"):
        print(text, file=sys.stderr, end="")
    message = one_line(error)
    message = (message if len(message) <= 300 else message[:297] + "...") + place_of(error)
    hint = f" {as_called(hint)}" if hint else ""
    print(f"error: {type(error).__name__}: {message} (traceback: {log}){hint}", file=sys.stderr)
    return 1
