"""Progress of a run on stdout: a live table in a terminal, else one line per iteration."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TextIO

Record = Mapping[str, Any]


class Progress(Protocol):
    """Displays a run."""

    def start(self, completed: int, total: int) -> None:
        """Begin after ``completed`` of ``total`` iterations."""

    def note(self, text: str) -> None:
        """Print a line of text."""

    def update(self, record: Record) -> None:
        """Show a completed iteration."""

    def stop(self) -> None:
        """Stop, and keep the output."""


def _short_exponent(value: float) -> str:
    return f"{value:.0e}".replace("e-0", "e-").replace("e+00", "").replace("e+0", "e+")


#: (label, tag, format; `z` removes the sign of a zero); a column without its tag is hidden.
COLUMNS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("success", "rollout/success_rate", "{:.2f}".format),
    ("policy", "collapse_monitor/success", "{:.2f}".format),
    ("below start", "collapse_monitor/below", "{:.0f}".format),
    ("return", "rollout/return_mean", "{:z.2f}".format),
    ("turns", "rollout/turns_mean", "{:.1f}".format),
    ("tokens", "rollout/response_tokens", "{:.0f}".format),
    ("states", "search/states_known", "{:.0f}".format),
    ("score", "search/score_mean", "{:z.2f}".format),
    ("frontier", "search/frontier_size", "{:.0f}".format),
    ("loss", "actor/pg_loss", "{:z.4f}".format),
    ("failed", "rollout/failed_episodes", "{:.0f}".format),
    ("diverged", "end_cause/env_diverged", "{:.0%}".format),
    ("logprob diff", "rollout_corr/logprob_diff_max", _short_exponent),
)


def cells(record: Record) -> dict[str, str]:
    """Return the columns of a record with a value, as text."""
    found = {label: write(record[tag]) for label, tag, write in COLUMNS if record.get(tag) is not None}
    if found.get("failed") == "0":
        del found["failed"]
    if found.get("below start") == "0":
        del found["below start"]
    elif "below start" in found:
        found["below start"] = f"{record['collapse_monitor/start']:.2f}"
    if "states" not in found and "below start" not in found:  # otherwise rollouts show the policy's success
        found.pop("policy", None)
    # The loss is informative only for supervised learning, the logprob difference only for sampled tokens.
    found.pop("loss" if "success" in found else "logprob diff", None)
    return found


def evaluation_text(record: Record) -> str:
    """Return ``0.71 [0.64, 0.78]``, or nothing without an evaluation."""
    rate, low, high = (record.get(f"eval/success_{part}") for part in ("rate", "low", "high"))
    return "" if rate is None else f"{rate:.2f} [{low:.2f}, {high:.2f}]"


def seconds_text(record: Record) -> str:
    """Return the seconds of an iteration and of the checkpoint before it, which waits for running rollouts."""
    seconds = record.get("timing_s/iteration")
    return "" if seconds is None else f"{seconds + record.get('timing_s/checkpoint', 0.0):.1f}"


def plain_line(record: Record, total: int) -> str:
    """Return one iteration as one line of text."""
    parts = [f"iter {record['iteration']}/{total}", *(f"{label} {text}" for label, text in cells(record).items())]
    if taken := seconds_text(record):
        parts.append(f"{taken} s")
    if evaluated := evaluation_text(record):
        parts.append(f"(eval {evaluated})")
    return "  ".join(parts)


class PlainProgress:
    """One flushed line per iteration: for jobs, pipes and logs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._total = 0

    def start(self, completed: int, total: int) -> None:
        self._total = total

    def note(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def update(self, record: Record) -> None:
        print(plain_line(record, self._total), file=self._stream, flush=True)

    def stop(self) -> None:
        """Nothing to flush."""


class RichProgress:
    """A bar with the remaining time, above a table of the last iterations."""

    ROWS = 12

    def __init__(self) -> None:
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("iteration"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            TextColumn("left"), TimeRemainingColumn(),
        )  # fmt: skip
        self._task = self._bar.add_task("train", total=None)
        self._records: deque[Record] = deque(maxlen=self.ROWS)
        self._live = Live(self._view(), refresh_per_second=4)

    def start(self, completed: int, total: int) -> None:
        self._bar.update(self._task, completed=completed, total=total)
        self._live.start()

    def note(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False)

    def update(self, record: Record) -> None:
        self._records.append(record)
        self._bar.update(self._task, completed=record["iteration"])
        self._live.update(self._view())

    def stop(self) -> None:
        self._live.update(self._view(), refresh=True)
        self._live.stop()

    def _view(self) -> Any:
        from rich.console import Group
        from rich.table import Table

        rows = [(record, cells(record)) for record in self._records]
        labels = [label for label, _, _ in COLUMNS if any(label in row for _, row in rows)]
        table = Table(box=None, pad_edge=False)
        for label in ("iteration", *labels, "seconds", "test success"):
            table.add_column(label, justify="right")
        for record, row in rows:
            table.add_row(
                str(record["iteration"]), *(row.get(label, "") for label in labels),
                seconds_text(record), evaluation_text(record),
            )  # fmt: skip
        return Group(self._bar, table) if rows else self._bar


def make_progress(stream: TextIO | None = None) -> Progress:
    """Return the live view if ``stream`` (stdout) is a terminal, else plain lines."""
    stream = stream or sys.stdout
    if stream.isatty():
        from rich.console import Console

        if not Console().is_dumb_terminal:
            return RichProgress()
    return PlainProgress(stream)
