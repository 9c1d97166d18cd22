"""Tables of runs in the documentation: ``python -m benchmarks.doc_tables`` writes them all from the results on file.

A page has a table between two marks, the first of which names it. A test compares every page with the results:

    <!-- table: t3 -->
    ...
    <!-- end of table -->
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks import gpu_memory, grid, page_figures
from benchmarks.equal_steps import at_budget, unique_states
from benchmarks.experiments import right, silent, truncated, turns, updates
from benchmarks.grid import Column, Run, mean_of
from benchmarks.long_thoughts import ROOMS
from benchmarks.model_families.page import TABLES as MODELS
from benchmarks.report import load, markdown, mean_text

ROOT = Path(__file__).parents[1]
SHOP, PUZZLES = "webshop", "situation_puzzles"
MARKED = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- end of table -->)", re.DOTALL)
Runs = list[Run]


def named(page: str) -> list[str]:
    return [name for _, name, _ in MARKED.findall(page)]


def on_file(file: str) -> dict[str, Runs]:
    """Return the runs of each arm, in the order of the seeds."""
    return {name: list(arm["runs"].values()) for name, arm in load(file)["arms"].items()}


def lasts(runs: Runs, key: str) -> list[float]:
    return [list(run[key].values())[-1] for run in runs]


def thousands(number: float) -> str:
    return f"{number / 1000:.1f} k" if number else "0"


def turns_until(runs: Runs, level: float = 0.85) -> str:
    """Thousands of rollout turns until the mean success reaches a level, interpolated; "-": never, or no rollouts."""
    success, turns = ([fmean(at) for at in zip(*(run[key].values() for run in runs), strict=True)]
                      for key in ("success", "rollout_turns"))  # fmt: skip
    for (low, spent), (high, more) in pairwise(zip(success, turns, strict=True)):
        if low < level <= high and more:
            return thousands(spent + (level - low) / (high - low) * (more - spent))
    return "-"


#: Columns of every grid, and further ones of some tables.
COLUMNS: Mapping[str, Column] = {
    **grid.COLUMNS,
    "seeds": lambda runs: str(len(runs)),
    "environment steps": lambda runs: f"{fmean(sum(run['steps']) for run in runs):,.0f}",
    "largest logprob difference": lambda runs: f"{max(run['engine_logprob_gap_max'] for run in runs):.2f}",
    "truncated": truncated,
    SHOP: lambda runs: mean_text(lasts(runs, "success")),
    PUZZLES: lambda runs: mean_text(lasts(runs, "retained")),
    "rollout turns": lambda runs: thousands(fmean(lasts(runs, "rollout_turns"))),
    "until 0.85": lambda runs: turns_until(runs),
    "turns": turns,
    "updates to 0.70": updates,
    "silent at the start": silent,
    "silent in training": mean_of(lambda run: fmean(run["zero_advantage"])),
    "unique states per 100 steps": unique_states,
    "after 22 k steps": lambda runs: at_budget(runs, 22_000),
    **{f"after {n}": mean_of(lambda run, n=n: run["success"][str(n)]) for n in (10, 20, 30)},
    **{f"right in the {room}": right(room) for room in ROOMS},
}
CURVE = ("seeds", "start", "end", "sampled tokens", "CPU-s a run")
PRETRAINED = (*CURVE[:3], "environment steps", *CURVE[3:], "largest logprob difference")
GROUPS = (*CURVE, "zero-advantage share")
CUT = (*CURVE, "truncated", "turns")


@dataclass(frozen=True)
class Table:
    """A table with one line per arm; calling it returns the text.

    Attributes:
        columns: of `COLUMNS`.
        sources: results/FILE.json -> its arms; empty: all.
        dropped: parts of arms' names that the table omits because the page has them.
        head: title of the column of arms.
    """

    columns: tuple[str, ...]
    sources: Mapping[str, tuple[str, ...]]
    dropped: tuple[str, ...] = ()
    head: str = "arm"

    def __call__(self) -> str:
        return grid.table(dict(self.arms()), {name: COLUMNS[name] for name in self.columns}, self.head)

    def arms(self) -> Iterable[tuple[str, Runs]]:
        for file, wanted in self.sources.items():
            stored = on_file(file)
            for name in wanted or stored:
                yield self.shown(name), stored[name]

    def shown(self, name: str) -> str:
        for part in self.dropped:
            name = name.replace(part, "")
        return name


LOST_THREADS = Table(CUT, {"t3_lost_threads": ()}, ("consistent, force_answer, ",), "arm of t3_lost_threads")
#: Environment as benchmarks.md names it -> file with runs of GRPO and StepPO.
EVERYWHERE = {
    "guess_numbers": "family",
    "circuit_decoding": "active_circuit_decoding",
    "situation_puzzles": "active_situation_puzzles",
    "preference_estimation": "active_preference_estimation",
    "movie_recommendation": "active_movie_recommendation",
    "[alfworld](../environments/alfworld.md#results)": "alfworld",
    "[webshop](../environments/webshop.md#results)": "webshop",
    "[paper_search](../environments/question_answering.md#paper_search)": "paper_search",
    "[long_form_qa](../environments/question_answering.md#long_form_qa)": "long_form_qa",
    "[multihop_qa](../environments/question_answering.md#multihop_qa), 60 iterations": "multihop_qa",
}


def everywhere() -> str:
    rows = []
    for environment, file in EVERYWHERE.items():
        grpo, steppo = (on_file(file)[arm] for arm in ("grpo", "steppo"))
        cells = (COLUMNS["start"](grpo), COLUMNS["end"](grpo), COLUMNS["end"](steppo), COLUMNS["CPU-s a run"](grpo))
        rows.append((environment, *cells))
    return markdown(("environment", "start", "grpo", "steppo", "CPU-s a run (grpo)"), rows)


def panel() -> str:
    """The success of every arm of PivotRL in other domains, relative to the base."""
    arms = on_file("pivotrl_panel")
    base, rows = arms["base"], []
    for name, runs in arms.items():
        kept = lasts(runs, "retained")
        lost = [after - before for after, before in zip(kept, lasts(base, "retained"), strict=False)]
        change = "" if name == "base" else mean_text(lost)
        others = (f"{fmean(run['panel'][env] for run in runs):.2f}" for env in base[0]["panel"])
        rows.append((name, str(len(runs)), mean_text(lasts(runs, "success")), mean_text(kept), change, *others))
    head = ("arm", "seeds", "in its domain", "mean of the others", "change of it", *base[0]["panel"])
    return markdown(head, rows)


def by(module: str, function: str, *args: Any) -> Callable[[], str]:
    """Return a table that a module makes, which is imported only then: some import Ray, and some this module."""
    return lambda: getattr(importlib.import_module(f"benchmarks.{module}"), function)(*args)


def three_spo_unit() -> str:
    """3SPO by task: success after the budget with the divisor of before and of now, seeds side by side."""
    rows = [
        (task, *(" ".join(f"{list(run['success'].values())[-1]:.2f}" for run in arms[arm].values()) for arm in arms))
        for task, arms in load("three_spo_unit")["tasks"].items()
    ]
    return markdown(("task", "running deviation", "½ (now)"), rows)


#: Name in the mark -> function that makes the table.
TABLES: Mapping[str, Callable[[], str]] = {
    **{f"real methods, {world}": by("real_methods", "table", world) for world in ("treasure", "clerk")},
    **{f"figure {name}": partial(page_figures.sentence, name) for name in page_figures.CALLS},
    **MODELS,
    "3spo unit": three_spo_unit,
    "env runners": by("env_runner_curve", "table_on_file"),
    "scale": by("scale_simulation", "table_on_file"),
    "curriculum": by("curriculum", "table"),
    "self_play": by("self_play", "table"),
    "several environments": by("several_environments", "table"),
    **{f"claim {number}": by("claims.__main__", "table", number) for number in range(1, 14)},
    "opposed": by("claims.__main__", "opposed"),
    "claims from several starts": by("claims.starts", "differences"),
    "costs of several starts": by("claims.starts", "costs"),
    "silent groups": Table(
        ("start", "end", "silent at the start", "silent in training"), {"vspo_mixed": ()}, head="arm of vspo_mixed"
    ),
    "doors": Table(
        ("start", "end", *(f"right in the {room}" for room in ROOMS)), {"steppo_rooms": ()}, head="arm of steppo_rooms"
    ),
    "pivotrl panel": panel,
    **{
        name: by("equal_steps_page", function)
        for name, function in (
            ("several starts", "several_starts"), ("equal steps, summary", "summary"), ("equal steps", "overview"),
            ("equal steps, parts", "parts"), ("3spo, parts", "search_parts"), ("equal steps, tasks", "sections"),
            ("webshop again", "repetition"),
        )
    },
    "every environment": everywhere,
    "gpu memory": gpu_memory.fits,
    "host memory": gpu_memory.host,
    "family": Table(GROUPS, {"family": ()}),
    "vspo": Table((*GROUPS, "updates to 0.70"), {"vspo": ()}),
    "prs": Table(GROUPS, {"prs": ()}),
    "steppo": Table(CURVE, {"steppo": ()}),
    "t3": Table(CUT, {"t3": ()}, ("consistent, ", "force_answer, ")),
    "t3_lost_threads": LOST_THREADS,
    "pivotrl": Table(("seeds", SHOP, PUZZLES, "rollout turns", "until 0.85", "CPU-s a run"), {"pivotrl": ()}),
    "treasure": Table(PRETRAINED, {"real_model_treasure": ()}, head="method"),
    "distill": Table(CURVE, {"real_model_treasure": ("grpo",), "distill_treasure": ()}, head="method"),
    "clerk": Table(PRETRAINED, {"real_model_clerk": ()}, head="method"),
    "airline": Table(PRETRAINED, {"real_model_airline": ()}, head="method"),
    **{
        environment: Table(CUT, {f"active_{environment}": ()}, ("force_answer, ",))
        for environment in (
            "circuit_decoding", "movie_recommendation", "preference_estimation", "situation_puzzles",
        )
    },
    "alfworld": Table((*CURVE, "after 10", "after 20", "after 30"), {"alfworld": ()}),
    "webshop": Table((*CURVE, "after 20"), {"webshop": ()}),
    "paper_search": Table((*CURVE, "after 20"), {"paper_search": (), "paper_search_baselines": ()}),
    "multihop_qa": Table(GROUPS, {"multihop_qa_prs": (), "multihop_qa": ("steppo",)}),
    "multihop_qa_prs_beginner7": Table(GROUPS, {"multihop_qa_prs_beginner7": ()}),
    "long_form_qa": Table(GROUPS, {"long_form_qa": ()}),
    "prs_long_form": Table(GROUPS, {"prs_long_form": ()}),
    "prs_long_form_weak": Table(GROUPS, {"prs_long_form_weak": ()}),
}  # fmt: skip


def main() -> None:
    for path in pages():
        path.write_text(filled(path.read_text(encoding="utf-8"), TABLES), encoding="utf-8")


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def filled(page: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """Return the page with current tables between its marks; those that ``tables`` lacks stay unchanged."""

    def today(mark: re.Match[str]) -> str:
        begin, name, end = mark.groups()
        return f"{begin}{tables[name]()}\n{end}" if name in tables else mark.group()

    return MARKED.sub(today, page)


if __name__ == "__main__":
    main()
