"""What all benchmarks share: command lines, JSON files in ``benchmarks/results``, tables and pictures."""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

from rl_agents.reporting.statistics import Interval, student_interval

RESULTS = Path(__file__).parent / "results"


def command_line(description: str | None, options: Mapping[str, Any] | None = None) -> argparse.ArgumentParser:
    """Return a parser whose help is a module's docstring, with `add_options`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, options or {})
    return parser


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


def load(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return data


def part_of(name: str, part: str = "arms") -> dict[str, Any]:
    """Return a part of ``results/NAME.json``; empty if there is no such file."""
    found: dict[str, Any] = load(name)[part] if (RESULTS / f"{name}.json").is_file() else {}
    return found


def save(name: str, data: Mapping[str, Any]) -> None:
    """Write ``results/NAME.json``; whoever reads it meanwhile sees the old file or the new one."""
    temporary = RESULTS / f"{name}.tmp"
    temporary.parent.mkdir(parents=True, exist_ok=True)
    temporary.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    temporary.replace(temporary.with_suffix(".json"))


def write_figures(name: str, command: str, figures: Mapping[str, Any]) -> None:
    """Write ``results/NAME.json``: the command, the date, and the figures unchanged."""
    save(name, {"command": command, "date": date.today().isoformat(), **figures})


def write_result(name: str, command: str, rounds: Sequence[Mapping[str, float]], **extra: Any) -> None:
    """Print the medians; write ``results/NAME.json``: the command, the date, the summary, and every round."""
    print(median_table(rounds))
    rounded = [{key: _rounded(value) for key, value in figures.items()} for figures in rounds]
    write_figures(name, command, {**extra, "summary": summarize(rounds), "rounds": rounded})


def summarize(rounds: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return median, minimum and maximum of every number over the rounds."""
    of = {"median": statistics.median, "min": min, "max": max}
    return {
        name: {what: _rounded(choose([figures[name] for figures in rounds])) for what, choose in of.items()}
        for name in rounds[0]
    }


def median_table(rounds: Sequence[Mapping[str, float]]) -> str:
    lines = [f"{'median of ' + str(len(rounds)):40} {'median':>10} {'min':>10} {'max':>10}"]
    for name, row in summarize(rounds).items():
        lines.append(f"{name:40} {row['median']:10g} {row['min']:10g} {row['max']:10g}")
    return "\n".join(lines)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def shown(interval: Interval, form: str = ".2f") -> str:
    """Return ``mean [low, high]``; one value has no interval."""
    return f"{interval.mean:{form}}" if math.isnan(interval.low) else f"{interval:{form}}"


def mean_text(values: Iterable[float], form: str = ".2f") -> str:
    """Return the mean and interval of values; nothing for none."""
    known = list(values)
    return shown(student_interval(known), form) if known else ""


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join([f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)])


@contextmanager
def drawn(path: Path, rows: int = 1, columns: int = 1, *, dpi: int = 110, **keys: Any) -> Iterator[tuple[Any, Any]]:
    """Yield a figure and its axes (`pyplot.subplots`); write the picture at the end."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(rows, columns, layout="constrained", **keys)
    yield figure, axes
    figure.savefig(path, dpi=dpi)
    pyplot.close(figure)
