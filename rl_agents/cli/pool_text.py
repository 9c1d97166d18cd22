"""Sessions and decisions of a pool, as text and as rows for programs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.store.curation import WHOLE
from rl_agents.store.reader import Stored
from rl_agents.store.records import Credit, Curation

Row = dict[str, Any]
WIDEST = 40


def session_row(stored: Stored) -> Row:
    """Return what `list --json` prints about a session."""
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
    """Return a session step by step, as a person reads it."""
    s, curation = stored.session, _curation(stored)
    parts = [
        f"session {s.id} ({s.kind}), iteration {s.iteration}, env {s.env or '-'}, task {s.task_id}, "
        f"group {s.group_id}, member {s.member}, seed {s.seed}",
        f"return {trajectory.episode_return:g} in {stored.steps} steps, {stored.tokens} tokens sampled; "
        f"{_result(stored)}, ended by {s.end_cause or 'unknown'}; {_state(stored)}{', ' * bool(curation)}{curation}",
    ]
    parts += [f"{name}: {_brief(facts)}" for name, facts in (("metrics", s.metrics), ("facts", s.facts)) if facts]
    if decided:
        parts.append(f"decisions:\n{textwrap.indent(decisions_table(decided), '  ')}")
    worth = {row.ordinal: row for row in credit}  # of the last update
    for ordinal, step in enumerate(trajectory.steps):
        parts.append(_step(ordinal, step, worth.get(ordinal), stored.decision.weight_of(ordinal), with_ids))
    return printable("\n".join(parts))


def statistics_text(figures: Row) -> str:
    width = max(map(len, figures))
    return "\n".join(f"{name.replace('_', ' '):{width}}  {_figure(value)}" for name, value in figures.items())


def printable(text: str) -> str:
    """Return text without what moves a terminal's cursor or changes its colors."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def _version(step: Step) -> str:
    """``version 3``, or, where weights changed inside the response, ``version 3 (12 tokens), 4 (20)``."""
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


def _brief(facts: Row) -> str:
    return textwrap.shorten(", ".join(f"{key}={value}" for key, value in facts.items()), 300, placeholder=" ...")


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


def _figure(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{_figure(count)} {name}" for name, count in value.items()) or "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}" if isinstance(value, float) else str(value)


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    cells = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    text = printable(" ".join(str(value).split()))
    return text if len(text) <= WIDEST else text[: WIDEST - 3] + "..."
