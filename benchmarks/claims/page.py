"""docs/research/claims.md and its pictures, from the results on file."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.claims import starts
from benchmarks.claims.judge import BLIND, CONFIDENCE, LOOKS, MOST_SEEDS, POWER, Finding, find, together
from benchmarks.claims.registry import CLAIMS, OPPOSED, Claim, Comparison
from benchmarks.grid import RESULTS, Run
from benchmarks.report import drawn, load, markdown

DOCS = Path(__file__).parents[2] / "docs"
IMAGES = DOCS / "images" / "claims"
PAGE = DOCS / "research" / "claims.md"
HEAD = f"""# The papers' claims, tested at small scale

This page tests 13 claims of five papers with small models on two CPU cores. The tests cannot refute
a paper: a claim that does not show here may still hold in the paper's setting. So the first table has a
column with the differences between the two settings, and each section gives the smallest effect that its
seeds can detect.

**How to read a verdict**

- *holds*: the whole interval supports the claim
- *holds in direction*: only the mean supports it
- *does not show*: the mean does not support it
- *ahead, but below half of the paper's*: the whole interval supports the claim, and excludes half of the paper's effect
- *contradicted*: the whole interval is against it
- *cannot test it*: in this setting the result is the same, whether the claim is true or not

**How a comparison is judged.** Runs with the same seed are paired. The interval is Student's, over the
paired differences, at {CONFIDENCE:.2%}. Results are judged after {", ".join(map(str, LOOKS))} seeds, until the
first decision. The probability of a wrong decision is 5% for each comparison alone: intervals are not adjusted
for the number of comparisons on this page. All runs of a comparison begin at one warm-start model, so a
verdict is about that start ([how we compare](how-we-compare.md)). In the tables, *detectable* is the effect that
this number of seeds detects in {POWER:.0%} of cases. *Seeds needed* is the number of seeds that detect the
paper's effect as reliably, and their cost.
<!-- no record -->

`python -m benchmarks.claims` writes this page from the results on file and benchmarks/claims/registry.py.
`python -m benchmarks.claims 4 --until 10` runs more seeds of claim 4 until it is decided.
"""
SEVERAL = """## Several starts

The comparisons above have one warm-start model each. Those below have three, and both arms make equally many optimizer
steps on equally many episodes. The difference is that of success after the last iteration, and its interval is over
starts. **Bold** (ahead) and *italics* (behind) mean p < 0.05 after Holm's adjustment for all differences of this
section ([the rules](how-we-compare.md)). *At most* is the smallest margin within which the difference lies by an
equivalence test at 5%.<!-- no record -->

    python -m benchmarks.claims.starts --local
"""
AGAINST = """## Where these data oppose a paper

Positive effects would support the paper. Most of these comparisons have one start and belong to no claim above."""
UNTESTED = """## Not tested

No arm tests T3's table 2 and the rules alpha and beta of its table 3, PRS's tables 2 to 5, StepPO's tables 2 and 3 and
its figure 6, or PivotRL's table 5.
"""
COLUMNS = (
    "compared (benchmarks/results)", "measure", "effect", "paper's", "verdict", "seeds", "detectable",
    "seeds needed (CPU-hours)",
)  # fmt: skip


@dataclass(frozen=True)
class Judged:
    """A comparison and its result; ``per_seed``: CPU-hours of one seed of both arms."""

    comparison: Comparison
    finding: Finding
    per_seed: float


@cache
def results(file: str) -> Mapping[str, Any]:
    return load(file)["arms"] if (RESULTS / f"{file}.json").is_file() else {}


def paired(comparison: Comparison) -> list[tuple[Run, ...]]:
    arms = results(comparison.file)
    runs = [arms.get(name, {}).get("runs", {}) for name in comparison.arms]
    seeds = set.intersection(*(set(own) for own in runs))
    return [tuple(own[seed] for own in runs) for seed in sorted(seeds, key=int)]


def judge(comparison: Comparison) -> Judged:
    pairs = paired(comparison)
    finding = find([comparison.difference(pair) for pair in pairs], comparison.paper)
    hours = [sum(run["cpu_seconds"] for run in pair) / 3600 for pair in pairs]
    return Judged(comparison, finding, fmean(hours) if hours else math.nan)


def write() -> Mapping[int, str]:
    """Write the page and its pictures; return the verdicts by claim."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    judged = {claim.number: [judge(comparison) for comparison in claim.comparisons] for claim in CLAIMS}
    for claim in CLAIMS:
        picture(claim, judged[claim.number], IMAGES / f"{claim.number}.png")
    PAGE.write_text(page(judged), encoding="utf-8")
    return {claim.number: standing(claim, judged[claim.number]) for claim in CLAIMS}


def opposed() -> str:
    """Return the comparisons on file that speak against a paper, with the intervals of the tables above."""
    rows = [(*row(judge(own))[:3], row(judge(own))[5]) for own in OPPOSED]
    return "\n\n".join((AGAINST, markdown((*COLUMNS[:3], "seeds"), rows))) + "\n"


def several_starts() -> str:
    """Return the comparisons that meet all rules, and the arms' costs."""
    return "\n".join((SEVERAL, starts.differences(), "", starts.costs(), ""))


def standing(claim: Claim, judged: Sequence[Judged]) -> str:
    """Return the verdict, or the registry's if the comparisons cannot decide the claim."""
    return claim.standing or together([own.finding.verdict for own in judged])


def page(judged: Mapping[int, Sequence[Judged]]) -> str:
    overview = [
        (
            f"[{claim.number}](#claim-{claim.number}). {claim.said}",
            standing(claim, judged[claim.number]),
            claim.distance,
        )
        for claim in CLAIMS
    ]
    parts = [section(claim, judged[claim.number]) for claim in CLAIMS]
    heads = ("claim", "verdict", "distance from the paper")
    return "\n".join([HEAD, markdown(heads, overview), "", *parts, several_starts(), opposed(), UNTESTED])


def section(claim: Claim, judged: Sequence[Judged]) -> str:
    lines = [
        f"## Claim {claim.number}",
        filled(f"**The claim.** {claim.said} ({claim.source})<!-- no record -->"),
        filled(f"**Verdict: {standing(claim, judged)}.** {claim.reading}"),
        filled(f"**Distance from the paper.** {claim.distance[0].upper()}{claim.distance[1:]}.<!-- no record -->"),
        f"![effects with intervals, compared with the paper's](../images/claims/{claim.number}.png)",
        markdown(COLUMNS, [row(own) for own in judged]),
        *(table() for table in claim.tables),
        f"    {claim.own_command or f'python -m benchmarks.claims {claim.number} --until 10'}",
    ]
    return "\n\n".join(lines) + "\n"


def filled(text: str) -> str:
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def row(judged: Judged) -> tuple[str, ...]:
    """Return the table row of a comparison; positive effects support the claim."""
    comparison, found = judged.comparison, judged.finding
    return (
        named(comparison),
        comparison.measure.name + ("" if comparison.sign > 0 else ", less is better"),
        effect(found),
        "-" if comparison.paper is None else f"{comparison.paper:+.3f}",
        found.verdict if comparison.telling else BLIND,
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
    own = found.effect
    return "-" if math.isnan(own.low) else f"{own.mean:+.3f} [{own.low:+.3f}, {own.high:+.3f}]"


def needed(seeds: int, per_seed: float) -> str:
    most = "or more " if seeds >= MOST_SEEDS else ""
    return f"{seeds} {most}({seeds * per_seed:.1f})"


def picture(claim: Claim, judged: Sequence[Judged], path: Path) -> None:
    """Draw the effects with their intervals, and those of the paper."""
    told = [own for own in judged if not math.isnan(own.finding.effect.low)]
    size = (7, 1.1 + 0.55 * max(1, len(told)))
    with drawn(path, dpi=100, figsize=size) as (_, axis):
        for number, own in enumerate(told):
            found = own.finding.effect
            spread = [[found.mean - found.low], [found.high - found.mean]]
            axis.errorbar([found.mean], [number], xerr=spread, fmt="o", color="#0072B2", capsize=3)
            if own.comparison.paper is not None:
                axis.plot([own.comparison.paper], [number], "D", color="#D55E00", fillstyle="none")
        axis.axvline(0, color="0.6", linewidth=1)
        axis.set_yticks(range(len(told)), [named(own.comparison, "\n") for own in told], fontsize=7)
        axis.set_ylim(max(1, len(told)) - 0.5, -0.5)
        title = f"claim {claim.number}: effect (dot, {CONFIDENCE:.1%} interval), the paper's (diamond)"
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("in favor of the claim is to the right", fontsize=8)
