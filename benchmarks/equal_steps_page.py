"""The tables and pictures of docs/research/equal-steps.md, from the results on file.

python -m benchmarks.equal_steps_page
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np

from benchmarks import doc_tables, referee
from benchmarks import several_starts as starts
from benchmarks.claims.registry import Measure, at_steps
from benchmarks.equal_steps import ABLATIONS, WORLDS, curve, mean_of_curve, plot
from benchmarks.grid import COLUMNS as COLUMNS_OF_GRIDS
from benchmarks.grid import Run
from benchmarks.report import RESULTS, markdown, mean_text, part_of, shown

BASELINE = "grpo"
#: What the summary compares; methods of this project, which are no baselines of a paper.
OURS = "3spo"
CHAIN = "chain-gae (ours)"
BEFORE = f"{CHAIN}, lambda 0.95"
KIN = (OURS, "3spo, published", CHAIN, BEFORE, f"{BEFORE}, each episode once", f"{CHAIN}, lambda 0.7, no correction",
       *ABLATIONS)  # fmt: skip
HEADS = (
    "task", "seeds", "start", "success", "over its start", "best baseline", "ahead of it", "ahead of GRPO",
    "ahead of chain-gae (ours)",
)  # fmt: skip
STARTS_COLUMNS = (
    "method", "tuned to", "starts", "runs", "start", "success", "over GRPO", "over 3spo", "sampled tokens (k)",
    "CPU-s a run",
)  # fmt: skip
COSTS = (("sampled_tokens", 1000), ("cpu_seconds", 1))
#: Largest difference between the mean starts of two methods that the summary compares.
SAME_START = 0.03
#: What is added in the first arm to the second one.
PARTS = {
    "3spo: all steps of failed paths instead of the last": (OURS, f"{OURS}, last steps of failures"),
    "chain-gae: replay of successful episodes": (BEFORE, f"{BEFORE}, each episode once"),
    "chain-gae: λ = 0.7 instead of 0.95": (f"{CHAIN}, lambda 0.7, no correction", BEFORE),
    "chain-gae: λ = 0.7 with the transition correction": (CHAIN, BEFORE),
    "chain-gae: the transition correction alone": (CHAIN, f"{CHAIN}, lambda 0.7, no correction"),
}
SEARCH_HEADS = (
    "variant", "seeds", "success", "ahead", "mean over training", "steps to 0.6", "states", "unique states",
    "CPU-s a run",
)  # fmt: skip
#: What the search's table counts steps to.
ENOUGH = 0.6
#: The methods of the short table, as its head calls them.
SHORT = {
    "grpo": "GRPO", "gigpo": "GiGPO", "hgpo": "HGPO", "ppo": "PPO", "steppo": "StepPO",
    OURS: "3SPO", CHAIN: "chain-gae (ours)",
}  # fmt: skip
#: The world that was repeated.
REPEATED = "webshop"
REPETITION_HEADS = (
    "method", "seeds", "[webshop](#webshop)", "without shared requests", "seeds", "also from another start",
)  # fmt: skip
OTHER = "another start"
COLUMNS = (
    "method", "seeds", "start", "success", "over its start", "over GRPO", "sampled tokens", "CPU-s a run",
)  # fmt: skip
Runs = Mapping[str, Run]
Row = tuple[str, ...]


def main() -> None:
    """Draw the pictures, and write the tables of all pages."""
    for name, arms in on_file().items():
        whole = {arm: list(runs.values()) for arm, runs in arms.items() if arm not in ABLATIONS}
        title = f"{name}: equal except clip, gamma and critic"
        plot(whole, RESULTS / f"equal_steps_{name}.png", title, WORLDS[name].budget)
    doc_tables.main()


def on_file() -> dict[str, dict[str, Runs]]:
    """Runs by world and method."""
    arms = {name: own for name in WORLDS if (own := part_of(f"equal_steps_{name}"))}
    return {name: {arm: found["runs"] for arm, found in own.items()} for name, own in arms.items()}


def summary() -> str:
    """3spo beside the other methods, task by task."""
    told = {name: arms for name, arms in on_file().items() if arms.get(OURS, {}).keys() & arms[BASELINE].keys()}
    return markdown(HEADS, [verdict(name, OURS, arms, (CHAIN,)) for name, arms in told.items()])


def several_starts() -> str:
    """The comparisons that meet all rules: a table for each task, adjusted together."""
    runs = {world: own for world in WORLDS if (own := starts.on_file(world))}
    if not runs:
        return "No task has been run under all of these rules yet."
    ends = {
        (world, arm): starts.at_budget(cells, WORLDS[world].budget, arm)
        for world, arms in runs.items()
        for arm, cells in arms.items()
    }
    pairs = {
        f"{world}: {arm} - {other}": referee.paired(ends[world, arm], ends[world, other])
        for world, arm in ends
        for other in (OURS, BASELINE)
        if arm != other and (arm, other) != (BASELINE, OURS)
    }
    differences = referee.page_of(pairs)
    return "\n\n".join(starts_table(world, own, ends, differences) for world, own in runs.items())


def starts_table(
    world: str,
    runs: Mapping[str, Mapping[referee.Cell, Run]],
    ends: Mapping[tuple[str, str], Mapping[referee.Cell, float]],
    differences: Mapping[str, referee.Difference],
) -> str:
    """A task's table: the best method first."""
    rows = []
    for arm in sorted(runs, key=lambda arm: -referee.over_starts(ends[world, arm]).mean):
        begun = referee.over_starts({cell: run["success"]["0"] for cell, run in runs[arm].items()})
        cells = [
            arm, starts.best_on_file(world)[arm], str(begun.n), str(len(runs[arm])), f"{begun.mean:.2f}",
            shown(referee.over_starts(ends[world, arm])),
            *(str(differences.get(f"{world}: {arm} - {other}", "")) for other in (BASELINE, OURS)),
            *(f"{fmean(run[key] for run in runs[arm].values()) / scale:,.0f}" for key, scale in COSTS),
        ]  # fmt: skip
        rows.append(cells)
    head = f"On {world}, after {WORLDS[world].budget // 1000} k environment steps:"
    return f"{head}\n\n{markdown(STARTS_COLUMNS, rows)}"


def overview() -> str:
    """Success of the methods by task: means over their seeds, then ours against GRPO."""
    rows = []
    for name, arms in on_file().items():
        measure, ours, grpo = at_steps(budget_of(name, arms)), arms.get(OURS, {}), arms[BASELINE]
        means = {arm: fmean(measure.of(run) for run in arms[arm].values()) for arm in SHORT if arm in arms}
        rates = [f"{means[arm]:.2f}" if arm in means else "" for arm in SHORT]
        start = f"{fmean(run['success']['0'] for run in (ours or grpo).values()):.2f}"
        rows.append((f"{name} ({len(ours)})", start, *rates, difference(leads(ours, grpo, measure))))
    return markdown(("task", "start", *SHORT.values(), "ahead of GRPO"), rows)


def start_spread(found: Mapping[str, Mapping[str, Runs]]) -> float:
    """Largest difference between the starts of two arms of one world and seed."""
    starts: dict[tuple[str, str], list[float]] = {}
    for name, arms in found.items():
        for seed, run in (item for runs in arms.values() for item in runs.items()):
            starts.setdefault((name, seed), []).append(run["success"]["0"])
    return max(max(own) - min(own) for own in starts.values())


def parts() -> str:
    """What each part of a method is worth, where it was run with and without it."""
    rows, found = [], on_file()
    for part, (own, other) in PARTS.items():
        for name, arms in found.items():
            if values := leads(arms.get(own, {}), arms.get(other, {}), at_steps(budget_of(name, arms))):
                rows.append((part, f"[{name}](#{name})", str(len(values)), difference(values)))
    return markdown(("part", "task", "seeds", "difference in success"), rows)


def search_parts() -> str:
    """3spo whole, and with one part changed each, on the worlds where parts were changed."""
    told = {name: arms for name, arms in on_file().items() if len(ABLATIONS.keys() & arms.keys()) > 1}
    parts = []
    for name, arms in told.items():
        budget = min(budget_of(name, {arm: arms[arm]}) for arm in (OURS, *ABLATIONS) if arm in arms)
        rows = [search_part(arm, arms, at_steps(budget), budget) for arm in (OURS, *ABLATIONS) if arm in arms]
        head = f"On [{name}](#{name}), after {budget / 1000:.1f} k environment steps:"
        parts.append(f"{head}\n\n{markdown(SEARCH_HEADS, rows)}")
    return "\n\n".join(parts)


def search_part(arm: str, arms: Mapping[str, Runs], measure: Measure, budget: int) -> Row:
    """A variant's line."""
    whole, own = arms[OURS], arms[arm]
    runs = list(own.values())
    states = [run["run_states"] for run in runs if "run_states" in run]
    return (
        arm, str(len(runs)), mean_text(map(measure.of, runs)),
        difference(leads(whole, own, measure)) if arm != OURS else "",
        mean_of_curve(runs, budget), steps_to(runs, budget), f"{fmean(states):,.0f}" if states else "",
        mean_text(run["unique_states"] for run in runs),
        f"{fmean(run['cpu_seconds'] for run in runs):.0f}",
    )  # fmt: skip


def steps_to(runs: Sequence[Run], budget: int) -> str:
    """Median environment steps of the runs until success is `ENOUGH` in their curve, and how many runs got there."""
    grid = np.linspace(0, budget, 400)
    reached = [np.interp(grid, *curve(run)) >= ENOUGH for run in runs]
    steps = [float(grid[own.argmax()]) for own in reached if own.any()]
    return f"{np.median(steps) / 1000:.1f} k ({len(steps)} of {len(runs)} runs)" if steps else f"0 of {len(runs)} runs"


def verdict(name: str, ours: str, arms: Mapping[str, Runs], others: Sequence[str] = ()) -> Row:
    """A world's line: ours beside its start, the best baseline, GRPO and ``others``, over the seeds of ours."""
    measure, own = at_steps(budget_of(name, arms)), arms[ours]
    shared = {
        arm: sorted(runs.keys() & own.keys(), key=int)
        for arm, runs in arms.items()
        if arm not in KIN and comparable(runs, own)
    }
    most = max(len(seeds) for seeds in shared.values())
    best = max(
        (arm for arm, seeds in shared.items() if len(seeds) == most),
        key=lambda arm: fmean(measure.of(arms[arm][seed]) for seed in shared[arm]),
    )
    return (
        f"[{name}](#{name})", str(most), *outcome(own, measure),
        f"{best} {fmean(measure.of(arms[best][seed]) for seed in shared[best]):.2f}",
        *(difference(leads(own, arms.get(arm, {}), measure)) for arm in (best, BASELINE, *others)),
    )  # fmt: skip


def leads(ours: Runs, other: Runs, measure: Measure) -> list[float]:
    """Differences at the common seeds; none if the two are not comparable."""
    seeds = sorted(ours.keys() & other.keys(), key=int) if comparable(ours, other) else []
    return [measure.difference(ours[seed], other[seed]) for seed in seeds]


def comparable(ours: Runs, other: Runs) -> bool:
    """Whether both have runs, from starts that are alike."""
    starts = [[run["success"]["0"] for run in runs.values()] for runs in (ours, other)]
    return all(starts) and abs(fmean(starts[0]) - fmean(starts[1])) <= SAME_START


def budget_of(name: str, arms: Mapping[str, Runs]) -> int:
    """Environment steps at which a world's runs can be compared: all of them reached these."""
    return min(WORLDS[name].budget, *(curve(run)[0][-1] for runs in arms.values() for run in runs.values()))


def sections() -> str:
    return "\n\n".join(section(name, arms) for name, arms in on_file().items())


def section(name: str, arms: Mapping[str, Runs]) -> str:
    """A world's heading, table and picture."""
    budget = budget_of(name, arms)
    measure = at_steps(budget)
    means = {arm: fmean(map(measure.of, runs.values())) for arm, runs in arms.items() if arm not in ABLATIONS}
    best_first = sorted(means, key=lambda arm: -means[arm])
    rows = [row(arm, arms[arm], arms.get(BASELINE, {}), measure) for arm in best_first]
    return (
        f"## {name}\n\nAfter {budget / 1000:.1f} k environment steps.\n\n{markdown(COLUMNS, rows)}\n\n"
        f"![success over environment steps](../../benchmarks/results/equal_steps_{name}.png)"
    )


def repetition() -> str:
    """The same methods and seeds without shared requests, and from another start."""
    above = on_file()[REPEATED]
    measure = at_steps(budget_of(REPEATED, above))
    stored, rows = part_of(f"equal_steps_{REPEATED}_unseen"), []
    for arm in (arm for arm in stored if OTHER not in arm):
        again, other = stored[arm]["runs"], stored[f"{arm}, {OTHER}"]["runs"]
        same = {seed: above[arm][seed] for seed in again}
        means = [f"{fmean(map(measure.of, runs.values())):.2f}" for runs in (same, again, other)]
        rows.append((arm, str(len(again)), *means[:2], str(len(other)), means[2]))
    return markdown(REPETITION_HEADS, rows)


def row(arm: str, runs: Runs, baseline: Runs, measure: Measure) -> Row:
    """A method's line."""
    return (
        arm, str(len(runs)), *outcome(runs, measure),
        difference(leads(runs, baseline, measure)) if arm != BASELINE else "",
        *(COLUMNS_OF_GRIDS[name](list(runs.values())) for name in COLUMNS[-2:]),
    )  # fmt: skip


def outcome(runs: Runs, measure: Measure) -> Row:
    """Success at the start, at the end, and what was gained."""
    starts, ends = [run["success"]["0"] for run in runs.values()], list(map(measure.of, runs.values()))
    gains = [end - start for start, end in zip(starts, ends, strict=True)]
    return f"{fmean(starts):.2f}", mean_text(ends), difference(gains)


def difference(values: Sequence[float]) -> str:
    """Mean and interval with their signs."""
    return mean_text(values, "+.2f")


if __name__ == "__main__":
    main()
