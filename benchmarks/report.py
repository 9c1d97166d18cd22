"""Reports of benchmarks: tables of medians, and JSON files in ``benchmarks/results``."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def summarize(rounds: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return median, minimum and maximum of every number over the rounds."""
    columns = {name: [figures[name] for figures in rounds] for name in rounds[0]}
    return {
        name: {
            "median": _rounded(statistics.median(values)),
            "min": _rounded(min(values)),
            "max": _rounded(max(values)),
        }
        for name, values in columns.items()
    }


def median_table(rounds: Sequence[Mapping[str, float]]) -> str:
    """Return a table with one line per number."""
    lines = [f"{'median of ' + str(len(rounds)):40} {'median':>10} {'min':>10} {'max':>10}"]
    for name, row in summarize(rounds).items():
        lines.append(f"{name:40} {row['median']:10g} {row['min']:10g} {row['max']:10g}")
    return "\n".join(lines)


def write_result(name: str, command: str, rounds: Sequence[Mapping[str, float]], **extra: Any) -> Path:
    """Write ``results/NAME.json``: the command, the date, the summary, and every round."""
    rounded = [{key: _rounded(value) for key, value in figures.items()} for figures in rounds]
    return write_figures(name, command, {**extra, "summary": summarize(rounds), "rounds": rounded})


def write_figures(name: str, command: str, figures: Mapping[str, Any]) -> Path:
    """Write ``results/NAME.json``: the command, the date, and the figures unchanged."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    data = {"command": command, "date": date.today().isoformat(), **figures}
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return path


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join([f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)])


def add_options(parser: argparse.ArgumentParser, options: Mapping[str, Any]) -> None:
    """Add flags with defaults; a list takes several values, and False makes a switch."""
    for name, default in options.items():
        kind: dict[str, Any] = {"default": default, "help": f"default: {default}"}
        if default is False:
            kind["action"] = "store_true"
        elif isinstance(default, list):
            kind |= {"nargs": "+", "type": type(default[0])}
        else:
            kind["type"] = type(default)
        parser.add_argument("--" + name.replace("_", "-"), **kind)
