"""The papers' claims: ``python -m benchmarks.claims`` writes the tables and pictures of docs/research/claims.md.

    python -m benchmarks.claims 4 --until 10 --jobs 2     # more seeds of claim 4 first, until it is decided

Seeds are added to the files in benchmarks/results; finished runs are not repeated.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import fmean

from benchmarks import doc_tables
from benchmarks.claims.judge import BLIND, CONFIDENCE, CONTRADICTED, HOLDS, LOOKS, MOST_SEEDS, Finding, find, together
from benchmarks.claims.registry import CLAIMS, ELSEWHERE, OPPOSED, Comparison
from benchmarks.grid import Arm, Run, run_grid
from benchmarks.referee import holm
from benchmarks.report import command_line, drawn, load, markdown, part_of

IMAGES = Path(__file__).parents[2] / "docs" / "images" / "claims"
COLUMNS = (
    "compared (benchmarks/results)", "measure", "effect", "paper's", "verdict", "seeds", "detectable",
    "seeds needed (CPU-hours)",
)  # fmt: skip


def main() -> None:
    parser = command_line(__doc__, {"jobs": 1})
    parser.add_argument("claims", nargs="*", type=int, help="claims to run more seeds of; none: only write the page")
    parser.add_argument("--until", type=int, default=10, choices=LOOKS, help="most seeds")
    args = parser.parse_args()
    for number in args.claims:
        if number not in CLAIMS or number in ELSEWHERE:
            parser.error(f"claim {number}: {', '.join(str(n) for n in CLAIMS if n not in ELSEWHERE)} have plain arms")
        run(CLAIMS[number], args.until, args.jobs)
    adjusted.cache_clear()
    IMAGES.mkdir(parents=True, exist_ok=True)
    for number, comparisons in CLAIMS.items():
        picture(number, [judge(own) for own in comparisons], IMAGES / f"{number}.png")
        print(f"{number:3}  {verdict(number)}")
    doc_tables.main()


def run(comparisons: Sequence[Comparison], until: int, jobs: int) -> None:
    """Add seeds, in steps of `LOOKS`, until every comparison is decided."""
    for seeds in (look for look in LOOKS if look <= until):
        adjusted.cache_clear()
        open_ones = [c for c in comparisons if verdict_of(c) not in (HOLDS, CONTRADICTED)]
        for file in dict.fromkeys(comparison.file for comparison in open_ones):
            wanted, stored = {arm for c in open_ones if c.file == file for arm in c.arms}, load(file)["arms"]
            arms = [Arm(name, tuple(stored[name]["flags"])) for name in stored if name in wanted]
            run_grid(arms, Namespace(name=file, seeds=seeds, first_seed=0, set=[], local=False, jobs=jobs))


@dataclass(frozen=True)
class Judged:
    """A comparison and its result; ``per_seed``: CPU-hours of one seed of both arms."""

    comparison: Comparison
    finding: Finding
    per_seed: float


def paired(comparison: Comparison) -> list[tuple[Run, ...]]:
    arms = part_of(comparison.file)
    runs = [arms.get(name, {}).get("runs", {}) for name in comparison.arms]
    seeds = set.intersection(*(set(own) for own in runs))
    return [tuple(own[seed] for own in runs) for seed in sorted(seeds, key=int)]


def judge(comparison: Comparison) -> Judged:
    pairs = paired(comparison)
    finding = find([comparison.difference(pair) for pair in pairs], comparison.paper)
    hours = [sum(run["cpu_seconds"] for run in pair) / 3600 for pair in pairs]
    return Judged(comparison, finding, fmean(hours) if hours else math.nan)


@cache
def adjusted() -> dict[str, float]:
    """Return Holm's p of every comparison of the page, by name and measure."""
    found = {key_of(own): judge(own).finding.p for own in (*chain(*CLAIMS.values()), *OPPOSED)}
    return dict(zip(found, holm(list(found.values())), strict=True))


def key_of(comparison: Comparison) -> str:
    return f"{named(comparison)}, {comparison.measure.name}"


def verdict_of(comparison: Comparison) -> str:
    return judge(comparison).finding.verdict(adjusted()[key_of(comparison)])


def verdict(number: int) -> str:
    """Return the comparisons' verdict on a claim; the page may say that they cannot decide it."""
    return together([verdict_of(own) for own in CLAIMS[number]])


def table(number: int) -> str:
    return markdown(COLUMNS, [row(judge(own)) for own in CLAIMS[number]])


def opposed() -> str:
    """Return the comparisons on file that speak against a paper, with the intervals of the tables above."""
    rows = [row(judge(own)) for own in OPPOSED]
    return markdown((*COLUMNS[:3], "seeds"), [(*own[:3], own[5]) for own in rows])


def row(judged: Judged) -> tuple[str, ...]:
    """Return the table row of a comparison; positive effects support the claim."""
    comparison, found = judged.comparison, judged.finding
    return (
        named(comparison),
        comparison.measure.name + ("" if comparison.sign > 0 else ", less is better"),
        effect(found),
        "-" if comparison.paper is None else f"{comparison.paper:+.3f}",
        verdict_of(comparison) if comparison.telling else BLIND,
        str(found.effect.n),
        "-" if math.isnan(found.resolution) else f"{found.resolution:.3f}",
        "-" if found.wanted is None else needed(found.wanted, judged.per_seed),
    )


def named(comparison: Comparison, between: str = " ") -> str:
    ours, other = comparison.ours, comparison.other
    if comparison.since:
        ours, other = (f"{now} since {before}" for now, before in zip((ours, other), comparison.since, strict=True))
    return f"{ours}{between}against {other}{between}({comparison.file})"


def effect(found: Finding) -> str:
    return "-" if math.isnan(found.effect.low) else f"{found.effect:+.3f}"


def needed(seeds: int, per_seed: float) -> str:
    most = "or more " if seeds >= MOST_SEEDS else ""
    return f"{seeds} {most}({seeds * per_seed:.1f})"


def picture(number: int, judged: Sequence[Judged], path: Path) -> None:
    """Draw the effects with their intervals, and those of the paper."""
    told = [own for own in judged if not math.isnan(own.finding.effect.low)]
    size = (7, 1.1 + 0.55 * max(1, len(told)))
    with drawn(path, dpi=100, figsize=size) as (_, axis):
        for place, own in enumerate(told):
            found = own.finding.effect
            spread = [[found.mean - found.low], [found.high - found.mean]]
            axis.errorbar([found.mean], [place], xerr=spread, fmt="o", color="#0072B2", capsize=3)
            if own.comparison.paper is not None:
                axis.plot([own.comparison.paper], [place], "D", color="#D55E00", fillstyle="none")
        axis.axvline(0, color="0.6", linewidth=1)
        axis.set_yticks(range(len(told)), [named(own.comparison, "\n") for own in told], fontsize=7)
        axis.set_ylim(max(1, len(told)) - 0.5, -0.5)
        title = f"claim {number}: effect (dot, {CONFIDENCE:.1%} interval), the paper's (diamond)"
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("in favor of the claim is to the right", fontsize=8)


if __name__ == "__main__":
    main()
