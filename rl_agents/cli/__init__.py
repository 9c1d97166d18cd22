"""The command line of rl_agents: dispatches commands and maps outcomes to exit codes.

0 done, 1 failed, 2 bad input (one line on stderr), 130 interrupted (after a checkpoint).
"""

from __future__ import annotations

import errno
import importlib
import signal
import sys
from collections.abc import Sequence

from rl_agents import plugins
from rl_agents.cli.failures import one_line, report_crash
from rl_agents.cli.parser import COMMANDS, main_parser
from rl_agents.errors import InputError, unknown
from rl_agents.installation import as_called
from rl_agents.startup import collect_less_often

EXIT_DONE, EXIT_FAILED, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 0, 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; user errors are not raised."""
    collect_less_often()
    try:
        own, arguments = _imports(list(sys.argv[1:] if argv is None else argv))
        if arguments[:1] == ["help"]:
            arguments = [*arguments[1:], "--help"]
        command, rest = _split(arguments)
        if not arguments or (command == "train" and not {"-h", "--help"}.isdisjoint(rest)):
            main_parser().print_help()  # without the libraries that training needs
            return EXIT_DONE
        module = importlib.import_module(COMMANDS[command][0])
        plugins.load(own)
        plugins.ASKED[:] = map(plugins.located, own)
        return module.run(rest)
    except InputError as error:
        print(f"error: {as_called(one_line(error))}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except SystemExit as stop:
        # argparse leaves this way after --help, Ray's own SIGTERM handler with the signal's number, and users' code.
        return EXIT_INTERRUPTED if stop.code == signal.SIGTERM else report_crash(stop) if stop.code else EXIT_DONE
    except BrokenPipeError:
        sys.stdout = None  # type: ignore[assignment]  # the reader (`| head`) has closed the pipe: nothing to flush at exit
        return EXIT_DONE
    except Exception as error:
        if not isinstance(error, OSError) or error.errno != errno.ENAMETOOLONG:
            return report_crash(error)
        print(f"error: {str(error.filename)[:80]}...: the file name is too long", file=sys.stderr)
        return EXIT_BAD_INPUT
    finally:
        plugins.ASKED.clear()


def _imports(argv: list[str]) -> tuple[list[str], list[str]]:
    """Remove every ``--import MODULE`` from the arguments; return the modules and the rest.

    Raises:
        InputError: the flag has no module.
    """
    own: list[str] = []
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag != "--import":
            rest.append(word)
        elif (name := value if equals else next(words, "")) and not name.startswith("-"):
            own.append(plugins.located(name))
        else:
            raise InputError("--import needs a module or a file, such as --import my_module")
    return own, rest


def _split(argv: list[str]) -> tuple[str, list[str]]:
    """Split off the command; arguments that start with a flag belong to ``train``."""
    if not argv or argv[0].startswith("-"):
        return "train", argv
    if argv[0] not in COMMANDS:
        raise unknown("command", argv[0], COMMANDS)
    return argv[0], argv[1:]
