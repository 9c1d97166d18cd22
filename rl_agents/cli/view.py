"""``python run.py view``: web pages about runs, while they train and afterwards."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rl_agents.cli.parser import Parser
from rl_agents.cli.serve import check_port
from rl_agents.errors import InputError
from rl_agents.interrupts import EXIT_CODE, Interrupts, event_loop
from rl_agents.reporting.outputs import check_writable, nothing_left
from rl_agents.viewer.export import export
from rl_agents.viewer.runs import Catalog, find_runs
from rl_agents.viewer.server import make_app
from rl_agents.web.listening import listening
from rl_agents.web.security import is_loopback

WAKE_S = 0.2
#: First port to try, and number of ports.
PORT, PORTS = 8200, 20


def build_parser() -> Parser:
    parser = Parser("view", epilog="The pages are read-only; see docs/how-to/inspect-a-run.md")
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="run folders, sweep folders, or pool files")
    add("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1); any other requires a token")
    add("--port", type=int, metavar="N", help=f"port (default: the first free port from {PORT})")
    add("--open", action="store_true", help="open the page in a browser")
    add("--token", action="store_true", help="require a token even on this machine, for machines with several users")
    add("--export", type=Path, metavar="FOLDER", help="write the pages into a new folder that opens without a server")
    parser.add_count("--last", None, "with --export: the newest N iterations (default: 3; 0: all)", least=0)
    return parser


def run(argv: Sequence[str]) -> int:
    args = build_parser().parse(argv, mixed=True)
    if args.last is not None and args.export is None:
        raise InputError("--last is for --export FOLDER")
    catalog = find_runs(args.runs)
    if args.export is not None:
        check_writable(args.export, "--export")
        with nothing_left(args.export):
            print(export(catalog, args.export, 3 if args.last is None else args.last))
        return 0
    if args.port is not None:
        check_port(args.host, args.port)
    port = args.port if args.port is not None else _free_port(args.host)
    token = secrets.token_urlsafe(24) if args.token or not is_loopback(args.host) else ""
    with Interrupts() as interrupts, event_loop() as runner:
        runner.run(_serve(args, catalog, port, token, interrupts))
    return EXIT_CODE


def _free_port(host: str) -> int:
    """Return the first free port from `PORT` on; 0 (any) if there is none."""
    for port in range(PORT, PORT + PORTS):
        with suppress(InputError):
            check_port(host, port)
            return port
    return 0


async def _serve(args: argparse.Namespace, catalog: Catalog, port: int, token: str, interrupts: Interrupts) -> None:
    """Serve until a signal."""
    try:
        async with listening(make_app(catalog, token), args.host, port, "run explorer") as url:
            shown = next(iter(catalog.runs)) if len(catalog.runs) == 1 else f"{len(catalog.runs)} runs"
            address = f"{url}/#token={token}" if token else f"{url}/"
            print(f"{shown} at {address}\nstop  Ctrl-C", flush=True)
            if args.open:
                webbrowser.open(address)
            while not interrupts.requested:
                await asyncio.sleep(WAKE_S)
    except OSError as error:
        raise InputError(f"cannot listen on {args.host} port {port}: {error.strerror or error}") from None
    print("stopping", file=sys.stderr, flush=True)
