"""Progress of a run on stdout: one line per iteration."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, TextIO

Record = Mapping[str, Any]


def _short_exponent(value: float) -> str:
    return f"{value:.0e}".replace("e-0", "e-").replace("e+00", "").replace("e+0", "e+")


DIFFERENCE = "rollout_corr/logprob_diff_mean"
#: Up to which engine and learner round differently, by the dtype of the weights.
NORMAL = {"float32": 1e-5, "bfloat16": 0.02}

#: (label, tag, format; `z` removes the sign of a zero); a column without its tag is hidden.
COLUMNS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("success", "rollout/success_rate", "{:.2f}".format),
    ("search", "search/success_rate", "{:.2f}".format),
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
    ("logprob diff", DIFFERENCE, _short_exponent),
)


def cells(record: Record) -> dict[str, str]:
    """Return the columns of a record with a value, as text."""
    found = {label: write(record[tag]) for label, tag, write in COLUMNS if record.get(tag) is not None}
    if found.get("failed") == "0":
        del found["failed"]
    if found.get("below start") == "1":
        found["below start"] = f"{record['collapse_monitor/start']:.2f}"
    else:  # `success` shows how the policy does
        found = {label: text for label, text in found.items() if label not in ("policy", "below start")}
    # The loss is informative only for supervised learning, the logprob difference only for sampled tokens.
    found.pop("loss" if found.keys() & {"success", "search"} else "logprob diff", None)
    return found


def plain_line(record: Record, total: int, dtype: str = "float32") -> str:
    """Return one iteration as one line; it warns if the logprob difference is larger than ``dtype`` explains."""
    shown = cells(record)
    if "logprob diff" in shown and record[DIFFERENCE] > NORMAL[dtype]:
        shown["logprob diff"] += f" (normal in {dtype}: up to {_short_exponent(NORMAL[dtype])})"
    if "success" in shown:
        shown["success"] += _of_each(record, "rollout/success_rate/")
    parts = [f"iter {record['iteration']}/{total}", *(f"{label} {text}" for label, text in shown.items())]
    if record.get("timing_s/iteration") is not None:
        # The checkpoint before it waits for running rollouts.
        parts.append(f"{record['timing_s/iteration'] + record.get('timing_s/checkpoint', 0.0):.1f} s")
    rate, low, high = (record.get(f"eval/success_{part}") for part in ("rate", "low", "high"))
    if rate is not None:
        parts.append(f"(eval {rate:.2f} [{low:.2f}, {high:.2f}]{_of_each(record, 'eval/success_rate/')})")
    return "  ".join(parts)


def _of_each(record: Record, tag: str) -> str:
    """Return the values of several environments, each after its name."""
    return "".join(f", {key.removeprefix(tag)} {record[key]:.2f}" for key in record if key.startswith(tag))


class Progress:
    """One flushed line per iteration; ``dtype`` is that of the weights."""

    def __init__(self, stream: TextIO | None = None, dtype: str = "float32") -> None:
        self._stream, self._dtype = stream or sys.stdout, dtype

    def note(self, text: str) -> None:
        """Print a line of text."""
        print(text, file=self._stream, flush=True)

    def update(self, record: Record, total: int) -> None:
        """Show a completed iteration of ``total``."""
        self.note(plain_line(record, total, self._dtype))
