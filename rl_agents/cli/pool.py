"""``python run.py pool``: list, show, curate and export the trajectories of a run."""

from __future__ import annotations

import argparse
import getpass
import json
import math
import textwrap
import typing
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rl_agents.cli.parser import Parser
from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.errors import InputError, similar, unknown
from rl_agents.installation import as_called
from rl_agents.store.curation import WHOLE, curate
from rl_agents.store.export import export, plain
from rl_agents.store.files import pool_file
from rl_agents.store.reader import PoolReader, Stored, Where
from rl_agents.store.records import Credit, Curation, Verdict

SUMMARY = "Read and curate the trajectory store of a run. RUN is a run folder or a pool file."
ACTIONS = {
    "list": "list sessions",
    "show": "print one session step by step",
    "exclude": "exclude sessions, or one of their steps, from training",
    "keep": "include excluded sessions or steps again",
    "reward": "set the reward of a session (at its last step) or of one step",
    "weight": "set the training weight of a session or of one step",
    "note": "attach a comment to sessions or to one of their steps",
    "decisions": "list the decisions with their numbers, which `undo` takes",
    "undo": "undo decisions",
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
        "list": _list, "show": _show, "decisions": _decisions, "undo": _undo, "export": _export,
    }  # fmt: skip
    parser = Parser(f"pool RUN {argv[1]}", f"{ACTIONS[argv[1]].capitalize()}.")
    if argv[1] in runners:
        runners[argv[1]](parser, argv[0], argv[2:])
    else:
        _decide(typing.cast(Verdict, argv[1]), parser, argv[0], argv[2:])
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


def _newest(reader: PoolReader, where: Where, limit: int) -> tuple[Sequence[Stored], int]:
    newest: deque[Stored] = deque(maxlen=limit or None)
    total = 0
    for stored in reader.stored(where):
        newest.append(stored)
        total += 1
    return list(newest), total


def _show(parser: Parser, place: str, argv: Sequence[str]) -> None:
    parser.add_argument("session", metavar="SESSION", help="session id, or a unique prefix of it")
    parser.add_argument("--ids", action="store_true", help="also print token ids and log-probabilities")
    parser.add_argument("--raw", action="store_true", help="show the recorded rewards, without decisions")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    args = parser.parse(argv)
    with PoolReader(pool_file(place)) as reader:
        stored = find_session(reader, args.session)
        trajectory = reader.trajectory(stored, args.raw)
        decided, credit = reader.curation(stored.session.id), reader.credit(stored.session.id)
        if args.json:
            rows = [decision_row(number, row) for number, row in decided]
            print(json.dumps(plain({**session_row(stored), **trajectory.to_json(), "decisions": rows})))
        else:
            print(full_session(stored, trajectory, decided, credit, args.ids))


def _decide(verdict: Verdict, parser: Parser, place: str, argv: Sequence[str]) -> None:
    if verdict in ("reward", "weight"):
        parser.add_argument("value", type=float, metavar="NUMBER", help=f"the {verdict}")
    if verdict == "note":
        parser.add_argument("text", metavar="TEXT", help="the comment")
    parser.add_argument("sessions", nargs="*", metavar="SESSION", help="session ids or unique prefixes; or use filters")
    _add_filters(parser)
    parser.add_argument("--step", type=int, default=WHOLE, metavar="N", help="only this step, counted from 0")
    _add_author(parser)
    if verdict != "note":
        parser.add_argument("--why", default="", metavar="TEXT", help="the reason")
    args = parser.parse(argv, mixed=True)
    if verdict == "note":
        if not args.text.strip():
            raise InputError("note: needs text")
        args.why = args.text
    _record(pool_file(place), verdict, args)


def _record(path: Path, verdict: Verdict, args: argparse.Namespace) -> None:
    value = getattr(args, "value", None)
    if value is not None and (not math.isfinite(value) or (verdict == "weight" and value < 0)):
        raise InputError(f"{verdict} {value:g}: must be a number{', 0 or above' * (verdict == 'weight')}")
    with PoolReader(path) as reader:
        chosen = _chosen(reader, args)
    for stored in chosen:
        if not WHOLE <= args.step < stored.steps:
            raise InputError(f"--step {args.step}: session '{stored.session.id}' has steps 0 to {stored.steps - 1}")
    rows = [Curation(stored.session.id, verdict, args.step, value, args.by, args.why) for stored in chosen]
    numbers = curate(path, rows)
    what = f"{verdict}{'' if value is None else f' {value:g}'}"
    where = chosen[0].session.id if len(chosen) == 1 else f"{len(chosen)} sessions"
    step = "" if args.step == WHOLE else f", step {args.step}"
    span = f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
    print(f"{what}: {where}{step} (to undo: undo {span})")


def _chosen(reader: PoolReader, args: argparse.Namespace) -> list[Stored]:
    where = _where(args)
    if args.sessions:
        if where != Where():
            raise InputError("give session ids or filters, not both")
        return [find_session(reader, name) for name in dict.fromkeys(args.sessions)]
    if where == Where():
        raise InputError("no sessions chosen: name some, or use filters such as --failed or --iteration 3")
    if not (found := list(reader.stored(where))):
        raise InputError("no session matches")
    return found


def _decisions(parser: Parser, place: str, argv: Sequence[str]) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object per line and decision")
    args = parser.parse(argv)
    with PoolReader(pool_file(place)) as reader:
        rows = reader.curation()
    if args.json:
        for number, row in rows:
            print(json.dumps(plain(decision_row(number, row))))
    else:
        print(decisions_table(rows) if rows else "no decisions yet")


def _undo(parser: Parser, place: str, argv: Sequence[str]) -> None:
    parser.add_argument("numbers", nargs="+", metavar="NUMBER", help="decision number, or a range N-M; see `decisions`")
    _add_author(parser)
    parser.add_argument("--why", default="", metavar="TEXT", help="the reason")
    args = parser.parse(argv)
    path = pool_file(place)
    with PoolReader(path) as reader:
        rows = dict(reader.curation())
    undone = {row.undoes for row in rows.values()}
    chosen = [number for word in args.numbers for number in _span(word)]
    for number in chosen:
        if number not in rows:
            there = f"valid: 1 to {max(rows)}" if rows else "there are no decisions yet"
            raise InputError(f"undo {number}: no such decision; {there}")
        if number in undone or rows[number].undoes:
            reason = "was already undone" if number in undone else "is itself an undo: make the decision again instead"
            raise InputError(f"undo {number}: decision {number} {reason}")
    curate(
        path, [Curation(rows[n].session, rows[n].verdict, rows[n].ordinal, None, args.by, args.why, n) for n in chosen]
    )
    print(f"{len(chosen)} decision{'s' * (len(chosen) != 1)} undone")


def _span(word: str) -> range:
    first, _, last = word.partition("-")
    if not first.isdecimal() or not (last or first).isdecimal():
        raise InputError(f"undo {word}: a number or a range such as 3-7 is needed")
    return range(int(first), int(last or first) + 1)


def _export(parser: Parser, place: str, argv: Sequence[str]) -> None:
    _add_filters(parser)
    parser.add_argument("--output", type=Path, required=True, metavar="F.jsonl", help="new file of JSON lines")
    parser.add_argument("--raw", action="store_true", help="export all sessions as recorded, without decisions")
    args = parser.parse(argv)
    if args.output.suffix != ".jsonl":
        raise InputError(f"--output {args.output}: an export is a .jsonl file")
    with PoolReader(pool_file(place)) as reader:
        count = export(reader, args.output, _where(args), raw=args.raw)
    print(f"{count} sessions: {args.output}")


def find_session(reader: PoolReader, name: str) -> Stored:
    """Return the session with this id, or with this unique prefix.

    Raises:
        InputError: there is none, or several; the message has the nearest name.
    """
    exact = list(reader.stored(Where(ids=[name])))
    if exact:
        return exact[0]
    begin_so = reader.names(name, 3)
    if len(begin_so) == 1:
        return next(reader.stored(Where(ids=begin_so)))
    if begin_so:
        raise InputError(f"session '{name}': the prefix is not unique: {', '.join(begin_so[:2])} ...")
    if reader.one("SELECT count(*) FROM openings WHERE session = ?", name)[0]:
        raise InputError(f"session '{name}' is still open: it can be read when it has ended")
    raise InputError(f"unknown session '{name}': {similar(name, reader.names('', COMPARED), 'see `list`')}")


def _add_author(parser: Parser) -> None:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # some containers have no user name
        user = ""
    parser.add_argument("--by", default=user, metavar="NAME", help=f"author (default: {user})")


def _add_filters(parser: Parser) -> None:
    add = parser.add_argument
    add("--iteration", type=int, metavar="N", help="only sessions of this iteration")
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
    excluded = parser.add_mutually_exclusive_group()
    excluded.add_argument("--excluded", action="store_true", default=None, help="only excluded ones")
    excluded.add_argument("--included", action="store_false", dest="excluded", help="only included ones")
    add("--lost", action="store_true", help="only of iterations that a resumed run discarded and repeated")
    add("--min-return", type=float, metavar="X", help="only with a return of at least X")
    add("--max-return", type=float, metavar="X", help="only with a return of at most X")


def _where(args: argparse.Namespace) -> Where:
    return Where(
        kind=args.kind, iteration=args.iteration, env=args.env, task=args.task, group=args.group, success=args.success,
        failed=args.failed, excluded=args.excluded, state=args.state, min_return=args.min_return,
        max_return=args.max_return, lost=args.lost,
    )  # fmt: skip


# --- tables and rows


def session_row(stored: Stored) -> Row:
    """Return the row of `list --json` for a session."""
    decision = stored.decision
    return {
        **asdict(stored.session), "session": stored.session.id, "steps": stored.steps, "total": stored.total,
        "tokens": stored.tokens, "state": stored.state, "learned_in": stored.learned_in, "excluded": decision.excluded,
        "weight": decision.weight,
    }  # fmt: skip


def decision_row(number: int, row: Curation) -> Row:
    return {"number": number, **asdict(row)}


def sessions_table(sessions: Iterable[Stored]) -> str:
    head = ("session", "iter", "task", "group", "steps", "tokens", "return", "result", "ended by", "state", "curation")
    rows = [
        (
            s.session.id, s.session.iteration, s.session.task_id, f"{s.session.group_id}/{s.session.member}", s.steps,
            s.tokens, f"{s.total:g}", _result(s), s.session.end_cause, _state(s), _curation(s),
        )
        for s in sessions
    ]  # fmt: skip
    return _table(head, rows)


def decisions_table(rows: Sequence[tuple[int, Curation]]) -> str:
    undone = {row.undoes for _, row in rows if row.undoes}
    lines = [
        (
            number, _verdict(row), row.session, "" if row.ordinal == WHOLE else row.ordinal, row.by, row.why,
            "undone" if number in undone else "",
        )
        for number, row in rows
    ]  # fmt: skip
    return _table(("number", "decision", "session", "step", "by", "why", ""), lines)


def full_session(
    stored: Stored,
    trajectory: Trajectory,
    decided: Sequence[tuple[int, Curation]],
    credit: Sequence[Credit],
    with_ids: bool,
) -> str:
    """Return a session step by step as text."""
    s, curation = stored.session, _curation(stored)
    parts = [
        f"session {s.id} ({s.kind}), iteration {s.iteration}, env {s.env or '-'}, task {s.task_id}, "
        f"group {s.group_id}, member {s.member}, seed {s.seed}",
        f"return {trajectory.episode_return:g} in {stored.steps} steps, {stored.tokens} tokens sampled; "
        f"{_result(stored)}, ended by {s.end_cause or 'unknown'}; {_state(stored)}{', ' * bool(curation)}{curation}",
    ]
    for name, facts in (("metrics", s.metrics), ("facts", s.facts)):
        listed = ", ".join(f"{key}={value}" for key, value in facts.items())
        parts += [f"{name}: {textwrap.shorten(listed, 300, placeholder=' ...')}"] * bool(facts)
    if decided:
        parts.append(f"decisions:\n{textwrap.indent(decisions_table(decided), '  ')}")
    worth = {row.ordinal: row for row in credit}  # the last update's values
    for ordinal, step in enumerate(trajectory.steps):
        parts.append(_step(ordinal, step, worth.get(ordinal), stored.decision.weight_of(ordinal), with_ids))
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


def _step(ordinal: int, step: Step, worth: Credit | None, weight: float, with_ids: bool) -> str:
    notes = [
        f"reward {step.reward:g}", f"{len(step.prompt_ids)} + {len(step.response_ids)} tokens",
        _version(step),
    ]  # fmt: skip
    notes += ["invalid"] * (not step.valid) + ["cut at the token limit"] * (step.finish_reason == "length")
    notes += [f"weight {weight:g}"] * (weight != 1)
    if step.logprobs:
        notes.append(f"mean logprob {sum(step.logprobs) / len(step.logprobs):.3f}")
    if worth:
        value = "" if worth.value is None else f", value {worth.value:.3f}"
        notes.append(f"advantage {worth.advantage:.3f}{value} (iteration {worth.iteration})")
    if step.next_step is not None:
        notes.append("not continued" if step.next_step < 0 else f"continued by step {step.next_step}")
    lines = [f"\n--- step {ordinal}: {', '.join(notes)}", "environment:", _block(step.observation), "agent:",
             _block(step.action)]  # fmt: skip
    if with_ids:
        lines += [f"prompt ids: {step.prompt_ids}", f"response ids: {step.response_ids}", f"logprobs: {step.logprobs}"]
    return "\n".join(lines)


def _block(text: str) -> str:
    return textwrap.indent(text.strip("\n") or "(empty)", "    ", lambda line: True)


def _result(stored: Stored) -> str:
    return "failed" if stored.session.failed else "solved" if stored.session.success else "unsolved"


def _state(stored: Stored) -> str:
    return stored.state if stored.learned_in < 0 else f"{stored.state} {stored.learned_in}"


def _curation(stored: Stored) -> str:
    d = stored.decision
    notes = ["excluded"] * d.excluded + ["kept"] * d.kept + [f"weight {d.weight:g}"] * (d.weight != 1)
    notes += ["reward set"] * bool(d.rewards) + ["some steps"] * bool(d.excluded_steps or d.step_weights)
    return ", ".join(notes)


def _verdict(row: Curation) -> str:
    if row.undoes:
        return f"undo {row.undoes}"
    return row.verdict if row.value is None else f"{row.verdict} {row.value:g}"


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    cells = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    text = printable(" ".join(str(value).split()))
    return text if len(text) <= WIDEST else text[: WIDEST - 3] + "..."
