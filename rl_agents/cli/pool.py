"""``python run.py pool``: list, show and export the trajectories of a run."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rl_agents.cli.parser import Parser
from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.errors import InputError, similar, unknown
from rl_agents.installation import as_called
from rl_agents.store.export import export, plain
from rl_agents.store.files import pool_file
from rl_agents.store.reader import PoolReader, Stored, StoreQuery
from rl_agents.store.records import Credit

SUMMARY = "Read the trajectory store of a run. RUN is a run folder or a pool file."
ACTIONS = {
    "list": "list sessions",
    "show": "print one session step by step",
    "export": "write sessions to a file of JSON lines",
}
#: Longest cell of a table.
WIDEST = 40
Row = dict[str, Any]
#: Most session names that are compared with a misspelled one.
COMPARED = 20_000


def run(argv: Sequence[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        lines = "\n".join(f"  {name:10} {summary}" for name, summary in ACTIONS.items())
        usage = f"usage: run.py pool RUN ACTION ...\n\n{SUMMARY}\n\nactions (run.py pool RUN ACTION --help):\n{lines}"
        print(as_called(usage))
        return 0
    if len(argv) < 2 or argv[1] not in ACTIONS:
        if len(argv) < 2 or argv[1] in ("-h", "--help"):
            raise InputError(f"run.py pool {argv[0]}: an action is missing; valid: {', '.join(ACTIONS)}")
        raise unknown("action of pool", argv[1], ACTIONS)
    runners: dict[str, Callable[[Parser, str, Sequence[str]], None]] = {
        "list": _list, "show": _show, "export": _export,
    }  # fmt: skip
    runners[argv[1]](Parser(f"pool RUN {argv[1]}", f"{ACTIONS[argv[1]].capitalize()}."), argv[0], argv[2:])
    return 0


def _list(parser: Parser, place: str, argv: Sequence[str]) -> None:
    _add_filters(parser)
    parser.add_count("--limit", 50, "only the newest N (default: 50; 0: all)", least=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object per line and session")
    args = parser.parse(argv)
    with PoolReader(pool_file(place)) as reader:
        found, total = _newest(reader, _where(args), args.limit)
        if args.json:
            for stored in found:
                print(json.dumps(plain(session_row(stored))))
        elif not found:
            print("no session matches" + _still_open(reader))
        else:
            print(sessions_table(found))
            print(f"{len(found)} of {total} sessions" + (", the newest ones (--limit 0: all)" * (len(found) < total)))


def _still_open(reader: PoolReader) -> str:
    """Report sessions of a gateway that are not listed because they are still open; empty if there are none."""
    opened = {opening.session for opening in reader.openings()}
    count = len(opened - {stored.session.id for stored in reader.stored()})
    return f"; {count} still open: a session is listed when it ends" if count else ""


def _newest(reader: PoolReader, where: StoreQuery, limit: int) -> tuple[Sequence[Stored], int]:
    newest: deque[Stored] = deque(maxlen=limit or None)
    total = 0
    for stored in reader.stored(where):
        newest.append(stored)
        total += 1
    return list(newest), total


def _show(parser: Parser, place: str, argv: Sequence[str]) -> None:
    parser.add_argument("session", metavar="SESSION", help="session id, or a unique prefix of it")
    parser.add_argument("--ids", action="store_true", help="also print token ids and log-probabilities")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    args = parser.parse(argv)
    with PoolReader(pool_file(place)) as reader:
        stored = find_session(reader, args.session)
        trajectory = reader.trajectory(stored)
        if args.json:
            print(json.dumps(plain({**session_row(stored), **trajectory.to_json()})))
        else:
            print(full_session(stored, trajectory, reader.credit(stored.session.id), args.ids))


def _export(parser: Parser, place: str, argv: Sequence[str]) -> None:
    _add_filters(parser)
    parser.add_argument("--output", type=Path, required=True, metavar="F.jsonl", help="new file of JSON lines")
    args = parser.parse(argv)
    if args.output.suffix != ".jsonl":
        raise InputError(f"--output {args.output}: an export is a .jsonl file")
    with PoolReader(pool_file(place)) as reader:
        count = export(reader, args.output, _where(args))
    print(f"{count} sessions: {args.output}")


def find_session(reader: PoolReader, name: str) -> Stored:
    """Return the session with this id, or with this unique prefix.

    Raises:
        InputError: there is none, or several; the message has the nearest name.
    """
    exact = list(reader.stored(StoreQuery(ids=[name])))
    if exact:
        return exact[0]
    begin_so = reader.names(name, 3)
    if len(begin_so) == 1:
        return next(reader.stored(StoreQuery(ids=begin_so)))
    if begin_so:
        raise InputError(f"session '{name}': the prefix is not unique: {', '.join(begin_so[:2])} ...")
    if reader.one("SELECT count(*) FROM openings WHERE session = ?", name)[0]:
        raise InputError(f"session '{name}' is still open: it can be read when it has ended")
    raise InputError(f"unknown session '{name}': {similar(name, reader.names('', COMPARED), 'see `list`')}")


def _add_filters(parser: Parser) -> None:
    add = parser.add_argument
    parser.add_count("--iteration", None, "only sessions of this iteration", least=1)
    add("--env", metavar="NAME", help="only of this environment")
    add("--task", metavar="ID", help="only of this task")
    add("--group", type=int, metavar="N", help="only of this group (with --iteration)")
    add("--kind", choices=("episode", "sample", "gateway", "evaluation"), help="only of this kind")
    add(
        "--state", choices=("ready", "leased", "trained"),
        help="ready: not trained on yet; leased: trained on since the last checkpoint; trained: before it",
    )  # fmt: skip
    solved = parser.add_mutually_exclusive_group()
    solved.add_argument("--success", action="store_true", default=None, help="only solved ones")
    solved.add_argument("--unsolved", action="store_false", dest="success", help="only unsolved ones")
    add("--failed", action="store_true", default=None, help="only those whose environment or judge failed")
    add("--lost", action="store_true", help="only of iterations that a resumed run discarded and repeated")
    add("--min-return", type=float, metavar="X", help="only with a return of at least X")
    add("--max-return", type=float, metavar="X", help="only with a return of at most X")


def _where(args: argparse.Namespace) -> StoreQuery:
    return StoreQuery(
        kind=args.kind, iteration=args.iteration and args.iteration - 1, env=args.env, task=args.task, group=args.group,
        success=args.success, failed=args.failed, state=args.state, min_return=args.min_return,
        max_return=args.max_return, lost=args.lost,
    )  # fmt: skip


# --- tables and rows


def session_row(stored: Stored) -> Row:
    """Return the row of `list --json` for a session."""
    return {
        **asdict(stored.session), "session": stored.session.id, "steps": stored.steps, "total": stored.total,
        "tokens": stored.tokens, "state": stored.state, "learned_in": stored.learned_in,
    }  # fmt: skip


def sessions_table(sessions: Iterable[Stored]) -> str:
    head = ("session", "iter", "task", "group", "steps", "tokens", "return", "result", "ended by", "state")
    rows = [
        (
            s.session.id, s.session.iteration + 1, s.session.task_id, f"{s.session.group_id}/{s.session.member}",
            s.steps, s.tokens, f"{s.total:g}", _result(s), s.session.end_cause, _state(s),
        )
        for s in sessions
    ]  # fmt: skip
    return _table(head, rows)


def full_session(stored: Stored, trajectory: Trajectory, credit: Sequence[Credit], with_ids: bool) -> str:
    """Return a session step by step as text."""
    s = stored.session
    parts = [
        f"session {s.id} ({s.kind}), iteration {s.iteration + 1}, env {s.env or '-'}, task {s.task_id}, "
        f"group {s.group_id}, member {s.member}, seed {s.seed}",
        f"return {trajectory.episode_return:g} in {stored.steps} steps, {stored.tokens} tokens sampled; "
        f"{_result(stored)}, ended by {s.end_cause or 'unknown'}; {_state(stored)}",
    ]
    for name, facts in (("metrics", s.metrics), ("facts", s.facts)):
        listed = ", ".join(f"{key}={value}" for key, value in facts.items())
        parts += [f"{name}: {textwrap.shorten(listed, 300, placeholder=' ...')}"] * bool(facts)
    worth = {row.ordinal: row for row in credit}  # the last update's values
    for ordinal, step in enumerate(trajectory.steps):
        parts.append(_step(ordinal, step, worth.get(ordinal), with_ids))
    return printable("\n".join(parts))


def printable(text: str) -> str:
    """Escape control characters, except newlines and tabs."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def _version(step: Step) -> str:
    """Return ``version 3``, or ``version 3 (12 tokens), 4 (20)`` if weights changed within the response."""
    if not step.version_spans:
        return f"version {step.policy_version}"
    (first, count), *others = step.version_spans
    return ", ".join([f"version {first} ({count} tokens)", *(f"{version} ({tokens})" for version, tokens in others)])


def _step(ordinal: int, step: Step, worth: Credit | None, with_ids: bool) -> str:
    notes = [
        f"reward {step.reward:g}", f"{len(step.prompt_ids)} + {len(step.response_ids)} tokens",
        _version(step),
    ]  # fmt: skip
    notes += [f"{name} {value:g}" for name, value in step.metrics.items()]
    notes += ["summary"] * step.is_summary
    notes += ["invalid"] * (not step.valid) + ["cut at the token limit"] * (step.finish_reason == "length")
    if step.logprobs:
        notes.append(f"mean logprob {sum(step.logprobs) / len(step.logprobs):.3f}")
    if worth:
        value = "" if worth.value is None else f", value {worth.value:.3f}"
        notes.append(f"advantage {worth.advantage:.3f}{value} (iteration {worth.iteration + 1})")
    if step.next_step is not None:
        notes.append("not continued" if step.next_step < 0 else f"continued by step {step.next_step + 1}")
    lines = [f"\n--- step {ordinal + 1}: {', '.join(notes)}", "environment:", _block(step.observation), "agent:",
             _block(step.action)]  # fmt: skip
    if with_ids:
        lines += [f"prompt ids: {step.prompt_ids}", f"response ids: {step.response_ids}", f"logprobs: {step.logprobs}"]
    return "\n".join(lines)


def _block(text: str) -> str:
    return textwrap.indent(text.strip("\n") or "(empty)", "    ", lambda line: True)


def _result(stored: Stored) -> str:
    return "failed" if stored.session.failed else "solved" if stored.session.success else "unsolved"


def _state(stored: Stored) -> str:
    return stored.state if stored.learned_in < 0 else f"{stored.state} {stored.learned_in + 1}"


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    cells = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    text = printable(" ".join(str(value).split()))
    return text if len(text) <= WIDEST else text[: WIDEST - 3] + "..."
