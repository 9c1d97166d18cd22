"""``python run.py view``: web pages about runs, while they train and afterwards."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import textwrap
import webbrowser
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rl_agents.cli.parser import Parser
from rl_agents.cli.serve import check_port
from rl_agents.errors import InputError
from rl_agents.interrupts import EXIT_CODE, Interrupts, event_loop
from rl_agents.viewer.answers import ask
from rl_agents.viewer.export import export
from rl_agents.viewer.runs import Catalog, find_runs
from rl_agents.viewer.server import make_app
from rl_agents.web.listening import listening
from rl_agents.web.security import is_loopback

WAKE_S = 0.2
#: First port to try, and number of ports.
PORT, PORTS = 8200, 20
#: The text summary: bars of a curve and their number, steps, and characters of an action.
BARS = "▁▂▃▄▅▆▇█"
WIDTH, STEPS, SAID = 48, 5, 90
CURVES = ("rollout/success_rate", "rollout/return_mean", "eval/success_rate", "actor/entropy", "timing_s/iteration")


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
    add("--text", action="store_true", help="print a text summary instead")
    return parser


def run(argv: Sequence[str]) -> int:
    args = build_parser().parse(argv, mixed=True)
    if args.last is not None and args.export is None:
        raise InputError("--last is for --export FOLDER")
    if args.text and args.export is not None:
        raise InputError("--text excludes --export")
    catalog = find_runs(args.runs)
    if args.text:
        print(digest(catalog))
        return 0
    if args.export is not None:
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


# --- the text summary


def digest(catalog: Catalog) -> str:
    """Return a summary of all runs, without control characters."""
    about = ask(catalog, "runs")["runs"]
    text = "\n\n".join(_run(catalog, run) for run in about)
    return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text)


def _run(catalog: Catalog, about: Mapping[str, Any]) -> str:
    settings, name = about["settings"], about["name"]
    planned = f" of {about['planned']}" if about["planned"] else ""
    title = f"{name}: {settings.get('algo', '?')} on {settings.get('env', '?')}, seed {settings.get('seed', '?')}"
    lines = [title, "=" * len(title), f"iteration {about['iteration']}{planned}, {about['status'] or 'no metrics yet'}"]
    if evaluation := about["evaluation"]:
        bounds = [evaluation[part] for part in ("low", "high") if evaluation[part] is not None]
        interval = f" [{bounds[0]:.2f}, {bounds[1]:.2f}]" if len(bounds) == 2 else ""
        lines.append(
            f"success on test tasks {evaluation['rate']:.2f}{interval} after iteration {evaluation['iteration']}"
        )
    series = ask(catalog, "series", run=name)["series"]
    lines += [_curve(tag, [value for _, value in series[tag]]) for tag in CURVES if tag in series]
    if about["last"] is not None:
        lines += ["", *_iteration(catalog, name, about["last"])]
    return "\n".join(lines)


def _curve(tag: str, values: Sequence[float]) -> str:
    step = max(1, len(values) / WIDTH)
    places = [values[int(number * step)] for number in range(min(WIDTH, len(values)))]
    low, high = min(places), max(places)
    bars = "".join(BARS[int((v - low) / (high - low) * 7.999) if high > low else 3] for v in places)
    return f"  {tag:22} {bars:{WIDTH}} {values[0]:8.3g} -> {values[-1]:.3g}"


def _iteration(catalog: Catalog, run: str, iteration: int) -> list[str]:
    groups = ask(catalog, "groups", run=run, iteration=iteration)
    kinds = ", ".join(f"{count} {kind}{'s' * (count != 1)}" for kind, count in groups["kinds"].items())
    causes = ", ".join(f"{cause or 'unknown'} {count}" for cause, count in groups["causes"].items())
    lines = [f"iteration i{iteration}: {kinds}", f"  ended by: {causes}"]
    steps = ask(catalog, "steps", run=run, iteration=iteration)
    for title, rows in (("lowest", steps["lowest"]), ("highest", steps["highest"])):
        if rows:
            lines.append(f"  {title} advantages:")
            lines += [_step(catalog, run, row) for row in rows[:STEPS]]
    if steps["lowest"]:
        return lines
    return [*lines, "  all advantages are 0" if steps["learned"] else "  not trained on yet"]


def _step(catalog: Catalog, run: str, row: Mapping[str, Any]) -> str:
    episode = ask(catalog, "episode", run=run, session=row["session"])
    why = next((step.get("why") for step in episode["steps"] if step["ordinal"] == row["ordinal"]), None)
    said = textwrap.shorten(row["action"], SAID, placeholder=" ...")
    place = f"step {row['ordinal']}" + (f" (and {row['alike'] - 1} more)" if row["alike"] > 1 else "")
    return f"    {row['advantage']:+7.3f}  {row['session']} {place}: {said}{_reason(episode, why)}"


def _reason(episode: Mapping[str, Any], why: Mapping[str, Any] | None) -> str:
    if why is None:
        return ""
    if why["by"] == "group":
        what = "reward" if episode["kind"] == "sample" else "return"
        return f"\n             {what} {episode['return']:g}, group mean {why['mean']:.3g}: A = {why['formula']}"
    whitened = f", whitened {why['result']:+.3f}" if "result" in why else ""  # chain-gae also adds a correction
    return f"\n             TD error {why['delta']:+.3f}, summed {why['gae']:+.3f}{whitened}"
