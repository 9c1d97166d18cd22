"""The command line of rl_agents: picks the command and turns every outcome into an exit code.

0 done, 1 something broke, 2 bad input (one line on stderr), 130 interrupted (after a checkpoint).
"""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Sequence

from rl_agents.cli.commands import COMMANDS
from rl_agents.cli.failures import one_line, report_crash
from rl_agents.errors import InputError, unknown
from rl_agents.installation import as_called
from rl_agents.startup import collect_less_often

EXIT_DONE, EXIT_FAILED, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 0, 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never raises for a user error."""
    collect_less_often()
    try:
        command, rest = _split(list(sys.argv[1:] if argv is None else argv))
        code: int = importlib.import_module(COMMANDS[command][0]).run(rest)
        return code
    except InputError as error:
        print(f"error: {as_called(one_line(error))}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except SystemExit as stop:
        # argparse leaves this way after --help; Ray's own SIGTERM handler exits with the signal's number.
        return EXIT_INTERRUPTED if stop.code == signal.SIGTERM else int(stop.code or 0)
    except BrokenPipeError:
        sys.stdout = None  # type: ignore[assignment]  # the reader (`| head`) left: nothing to flush at exit
        return EXIT_DONE
    except Exception as error:
        return report_crash(error)


def _split(argv: list[str]) -> tuple[str, list[str]]:
    """Separate the command from its arguments; arguments that start with a flag belong to ``train``."""
    if not argv or argv[0].startswith("-"):
        return "train", argv
    if argv[0] not in COMMANDS:
        raise unknown("command", argv[0], COMMANDS)
    return argv[0], argv[1:]
