"""docs/research/equal-steps.md, its pictures and its short table elsewhere, from the results on file.

python -m benchmarks.equal_steps_page
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np

from benchmarks import referee
from benchmarks import several_starts as starts
from benchmarks.claims.registry import Measure, at_steps
from benchmarks.doc_tables import filled
from benchmarks.equal_steps import ABLATIONS, METHODS, WORLDS, World, curve, mean_of_curve
from benchmarks.grid import RESULTS, Run, text
from rl_agents.reporting.statistics import Interval, student_interval

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGE = DOCS / "research" / "equal-steps.md"
BASELINE = "grpo"
#: Those that get solid lines.
FIRST = ("grpo", "hgpo", "gigpo", "ppo", "steppo", "3spo", "chain-gae (ours)", "3spo, published")
#: Safe for the color-blind (Okabe and Ito); methods beyond the eighth begin again, dashed and then dotted.
COLORS = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#0072B2", "#D55E00", "#999999")
STYLES = ("-", "--", ":")
HEAD = """# Methods at equal environment steps

This page shows 13 methods from the same start, with the same number of environment steps. Not every method was run
on every task. [Several starts](#several-starts) has the comparisons that meet all rules.

- **Equal for all methods:** learning rate (except 3spo, which updates after every tick and has a lower one), penalty
  for invalid actions, episodes per iteration, and state keys.
- **Different:** each method keeps the clip range, gamma and critic of its small recipe.
- **Success** is that of the plain policy at temperature 1 on test tasks, which are not trained on.
- **One start per task.** The runs of each task begin at one warm-start model, and intervals (Student, 95%) are over
  seeds of training alone. Another start can turn a lead into none: on *webshop* one did
  ([below](#webshop-without-shared-requests-and-from-another-start)). So nothing on this page is a lead, and nothing is
  bold. [How we compare](how-we-compare.md) has the rules that a lead must meet.
- **Budget.** A table compares after as many steps as its shortest run has, at most the budget for which the runs were
  made. Where that is less, 3spo is read before its learning rate has reached its last value.
- **Not equal.** 3spo updates after every tick: it makes 5 to 15 times as many optimizer steps as the other methods,
  and only its learning rate falls. Learning rates were not tuned for each method.
- **Starts.** Methods whose mean starts differ by more than 0.03 are not compared. On circuit_decoding, 3spo, chain-gae,
  gigpo and grpo share a warm-start model (0.24), and the other rows another one (0.19).<!-- record: two starts -->
- **Sampled tokens and CPU seconds** are those of the whole run, which may be longer than the budget: on lake, 3spo took
  44 k steps and the other methods 72 k to 93 k. The runs of 3spo are from a faster machine than most
  others.<!-- record: longest runs -->
- **3spo** had its [former advantages](../algorithms/3spo.md), without a bound, in all of these runs.

| name in the tables | keys |
|---|---|
| 3spo | `--algo 3spo`: `reading=learned`, `path_failures=all` |
| chain-gae (ours) | defaults: `gae_lambda=0.7`, `transition_prior=2`, `success_replay=4`; a method of this project |
| lambda 0.95 | `gae_lambda=0.95`, no `transition_prior` |
| each episode once | `success_replay=0` |

The warm-start model is trained on every machine with the same demonstrations in the same order. Its weights differ
between machines in the last digits. So methods with the same seed on different machines start with success rates that
differ by up to {spread:.2f}.
<!-- record: start spread -->

To repeat the runs of a task, replace TASK by its name. `python -m benchmarks.equal_steps_page` writes this page.

    python -m benchmarks.equal_steps --local --jobs 2 --world TASK --set eval_interval=4 --seeds 10
"""
#: What the summary compares; methods of this project, which are no baselines of a paper.
OURS = "3spo"
CHAIN = "chain-gae (ours)"
BEFORE = f"{CHAIN}, lambda 0.95"
KIN = (OURS, "3spo, published", CHAIN, BEFORE, f"{BEFORE}, each episode once", f"{CHAIN}, lambda 0.7, no correction",
       *ABLATIONS)  # fmt: skip
SUMMARY = """## Summary

The table compares 3spo with the other methods. *Best baseline* is the published method with the highest mean on that
task. This is a harder comparison than one with a baseline that was chosen beforehand. The form of 3spo was
chosen on the first six tasks, with up to four of the seeds in this table. Its last change, `path_failures=all`, was
tried on *errand*, and with one to three seeds on *guess_numbers*, *webshop*, *lake*, *taxi*, *alfworld* and *blocks*.
The other tasks were first run with it for this table. `taxi_complete` is taxi with the destination in every state key.
The tasks after it are those of benchmarks/unseen_tasks.py.
"""
HEADS = (
    "| task | seeds | start | success | over its start | best baseline | ahead of it | ahead of GRPO "
    "| ahead of chain-gae (ours) |"
)
STARTS = """## Several starts

Every method was tuned alike: six settings (learning rate times 0.5, 1 and 2, few or many updates) on a start and a seed
that are not reported. The best one was run from three other warm-start models, with two seeds each, to the last step of
the budget. Intervals are over starts. **Bold** (ahead) and *italics* (behind) mean p < 0.05 after Holm's adjustment for
all differences of this section ([the rules](how-we-compare.md)).
<!-- no record -->

    python -m benchmarks.several_starts --world WORLD --local --jobs 2
"""
STARTS_COLUMNS = (
    "| method | tuned to | starts | runs | start | success | over GRPO | over 3spo | sampled tokens (k) | CPU-s a run |"
)
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
SEARCH_PARTS = """## Ablations of 3spo

Each row changes one part of 3spo. *Ahead* is the lead of 3spo, paired by seed. *Mean over training* is the mean success
from the start to the budget. *States* is the number of different states at which a run sampled, from its start to its
end. *Unique states* is the number of different states of an iteration per step. With `reading=learned` the search
leaves a task after one followed path, so it never returns to a waiting state. With *4 paths a task* it backtracks.
"""
SEARCH_HEADS = (
    "| variant | seeds | success | ahead | mean over training | steps to 0.6 | states | unique states | CPU-s a run |"
)
#: What the search's table counts steps to.
ENOUGH = 0.6
#: Pages that have the short table, the name in its mark, and its methods, as their heads call them.
WITH_OVERVIEW = (DOCS / "algorithms" / "3spo.md",)
OVERVIEW = "equal steps"
SHORT = {
    "grpo": "GRPO", "gigpo": "GiGPO", "hgpo": "HGPO", "ppo": "PPO", "steppo": "StepPO",
    OURS: "3SPO", CHAIN: "chain-gae (ours)",
}  # fmt: skip
#: The world that was repeated.
REPEATED = "webshop"
REPETITION = """## webshop: without shared requests, and from another start

In the runs of [webshop](#webshop), 15 of the 120 test requests were also training requests. The environment has
excluded these training tasks since. Without them, from the same start, no method changes by more than 0.03. *Another
start* imitates other demonstrations of the same player, and has a success of 0.12 at first, instead of 0.14. From it,
all four methods end lower and closer together: the lead of 3spo over grpo is -0.00 [-0.07, +0.07], and that of
chain-gae +0.09 [+0.02, +0.17].
<!-- record: another start -->

| method | seeds | [webshop](#webshop) | without shared requests | seeds | also from another start |
|---|---|---|---|---|---|
"""
OTHER = "another start"
COLUMNS = "| method | seeds | start | success | over its start | over GRPO | sampled tokens | CPU-s a run |"
Runs = Mapping[str, Run]


def main() -> None:
    """Write the page and its pictures."""
    found = on_file()
    for name, arms in found.items():
        picture(arms, WORLDS[name], RESULTS / f"equal_steps_{name}.png", name)
    PAGE.write_text(page(found), encoding="utf-8")
    for path in WITH_OVERVIEW:
        path.write_text(with_overview(path.read_text(encoding="utf-8"), found), encoding="utf-8")


def on_file() -> dict[str, dict[str, Runs]]:
    """Runs by world and method."""
    paths = {name: RESULTS / f"equal_steps_{name}.json" for name in WORLDS}
    return {
        name: {arm: own["runs"] for arm, own in json.loads(path.read_text(encoding="utf-8"))["arms"].items()}
        for name, path in paths.items()
        if path.is_file()
    }


def page(found: Mapping[str, Mapping[str, Runs]]) -> str:
    """The page's text."""
    told = {name: arms for name, arms in found.items() if arms.get(OURS, {}).keys() & arms[BASELINE].keys()}
    lines = (verdict(name, OURS, arms, (CHAIN,)) for name, arms in told.items())
    summary = "\n".join((SUMMARY, HEADS, f"|{'---|' * 9}", *lines, ""))
    return "\n".join(
        (
            HEAD.format(spread=start_spread(found)),
            several_starts(),
            summary,
            parts(found),
            search_parts(found),
            *(section(name, arms) for name, arms in found.items()),
            repetition(found[REPEATED]),
        )
    )


def several_starts() -> str:
    """The comparisons that meet all rules: a table for each task, adjusted together."""
    runs = {world: own for world in WORLDS if (own := starts.on_file(world))}
    if not runs:
        return f"{STARTS}\nNo task has been run under all of these rules yet.\n"
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
    return "\n".join((STARTS, *(starts_table(world, own, ends, differences) for world, own in runs.items())))


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
        rows.append(f"| {' | '.join(cells)} |")
    head = f"On {world}, after {WORLDS[world].budget // 1000} k environment steps:"
    return "\n".join((head, "", STARTS_COLUMNS, f"|{'---|' * 10}", *rows, ""))


def with_overview(text: str, found: Mapping[str, Mapping[str, Runs]]) -> str:
    """The text with today's short table between its marks."""
    return filled(text, {OVERVIEW: lambda: overview(found)})


def overview(found: Mapping[str, Mapping[str, Runs]]) -> str:
    """Success of the methods by task: means over their seeds, then ours against GRPO."""
    lines = [f"| task | start | {' | '.join(SHORT.values())} | ahead of GRPO |", f"|{'---|' * (3 + len(SHORT))}"]
    for name, arms in found.items():
        measure, ours, grpo = at_steps(budget_of(name, arms)), arms.get(OURS, {}), arms[BASELINE]
        means = {arm: fmean(measure.of(run) for run in arms[arm].values()) for arm in SHORT if arm in arms}
        rates = [f"{means[arm]:.2f}" if arm in means else "" for arm in SHORT]
        pairs = leads(ours, grpo, measure)
        cells = (
            f"{name} ({len(ours)})",
            f"{fmean(run['success']['0'] for run in (ours or grpo).values()):.2f}",
            *rates,
            shown(student_interval(pairs), "+") if pairs else "",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def start_spread(found: Mapping[str, Mapping[str, Runs]]) -> float:
    """Largest difference between the starts of two arms of one world and seed."""
    starts: dict[tuple[str, str], list[float]] = {}
    for name, arms in found.items():
        for seed, run in (item for runs in arms.values() for item in runs.items()):
            starts.setdefault((name, seed), []).append(run["success"]["0"])
    return max(max(own) - min(own) for own in starts.values())


def parts(found: Mapping[str, Mapping[str, Runs]]) -> str:
    """What each part of a method is worth, where it was run with and without it."""
    lines = ["## Ablations\n", "| part | task | seeds | difference in success |", "|---|---|---|---|"]
    for part, (own, other) in PARTS.items():
        for name, arms in found.items():
            if values := leads(arms.get(own, {}), arms.get(other, {}), at_steps(budget_of(name, arms))):
                lines.append(f"| {part} | [{name}](#{name}) | {len(values)} | {difference(values)} |")
    return "\n".join((*lines, ""))


def search_parts(found: Mapping[str, Mapping[str, Runs]]) -> str:
    """3spo whole, and with one part changed each, on the worlds where parts were changed."""
    told = {name: arms for name, arms in found.items() if len(ABLATIONS.keys() & arms.keys()) > 1}
    parts = [SEARCH_PARTS] if told else []
    for name, arms in told.items():
        budget = min(budget_of(name, {arm: arms[arm]}) for arm in (OURS, *ABLATIONS) if arm in arms)
        rows = [search_part(arm, arms, at_steps(budget), budget) for arm in (OURS, *ABLATIONS) if arm in arms]
        head = f"On [{name}](#{name}), after {budget / 1000:.1f} k environment steps:"
        parts.append("\n".join((head, "", SEARCH_HEADS, f"|{'---|' * 9}", *rows, "")))
    return "\n".join(parts)


def search_part(arm: str, arms: Mapping[str, Runs], measure: Measure, budget: int) -> str:
    """A variant's line."""
    whole, own = arms[OURS], arms[arm]
    runs = list(own.values())
    states = [run["run_states"] for run in runs if "run_states" in run]
    cells = (
        arm,
        str(len(runs)),
        shown(student_interval([measure.of(run) for run in runs])),
        difference(leads(whole, own, measure)) if arm != OURS else "",
        text(mean_of_curve(runs, budget)),
        steps_to(runs, budget),
        f"{fmean(states):,.0f}" if states else "",
        shown(student_interval([run["unique_states"] for run in runs])),
        f"{fmean(run['cpu_seconds'] for run in runs):.0f}",
    )
    return f"| {' | '.join(cells)} |"


def steps_to(runs: Sequence[Run], budget: int) -> str:
    """Median environment steps of the runs until success is `ENOUGH` in their curve, and how many runs got there."""
    grid = np.linspace(0, budget, 400)
    reached = [np.interp(grid, *curve(run)) >= ENOUGH for run in runs]
    steps = [float(grid[own.argmax()]) for own in reached if own.any()]
    return f"{np.median(steps) / 1000:.1f} k ({len(steps)} of {len(runs)} runs)" if steps else f"0 of {len(runs)} runs"


def verdict(name: str, ours: str, arms: Mapping[str, Runs], others: Sequence[str] = ()) -> str:
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
    start, end = [run["success"]["0"] for run in own.values()], [measure.of(run) for run in own.values()]
    cells = (
        f"[{name}](#{name})",
        str(most),
        f"{fmean(start):.2f}",
        shown(student_interval(end)),
        difference([after - before for before, after in zip(start, end, strict=True)]),
        f"{best} {fmean(measure.of(arms[best][seed]) for seed in shared[best]):.2f}",
        *(difference(leads(own, arms.get(arm, {}), measure)) for arm in (best, BASELINE, *others)),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


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


def section(name: str, arms: Mapping[str, Runs]) -> str:
    """A world's heading, table and picture."""
    budget = budget_of(name, arms)
    measure = at_steps(budget)
    means = {arm: fmean(map(measure.of, runs.values())) for arm, runs in arms.items() if arm not in ABLATIONS}
    best_first = sorted(means, key=lambda arm: -means[arm])
    rows = "\n".join(row(arm, arms[arm], arms.get(BASELINE, {}), measure) for arm in best_first)
    return (
        f"## {name}\n\nAfter {budget / 1000:.1f} k environment steps.\n\n{COLUMNS}\n|{'---|' * 8}\n{rows}\n\n"
        f"![success over environment steps](../../benchmarks/results/equal_steps_{name}.png)\n"
    )


def repetition(above: Mapping[str, Runs]) -> str:
    """The last section: the same methods and seeds without shared requests, and from another start."""
    measure = at_steps(budget_of(REPEATED, above))
    stored = json.loads((RESULTS / f"equal_steps_{REPEATED}_unseen.json").read_text(encoding="utf-8"))["arms"]
    lines = []
    for arm in (arm for arm in stored if OTHER not in arm):
        again, other = stored[arm]["runs"], stored[f"{arm}, {OTHER}"]["runs"]
        same = {seed: above[arm][seed] for seed in again}
        means = [f"{fmean(map(measure.of, runs.values())):.2f}" for runs in (same, again, other)]
        lines.append(f"| {arm} | {len(again)} | {means[0]} | {means[1]} | {len(other)} | {means[2]} |")
    return REPETITION + "\n".join((*lines, ""))


def row(arm: str, runs: Runs, baseline: Runs, measure: Measure) -> str:
    """A method's line."""
    started = Measure("start", lambda run: run["success"]["0"])
    own, start = [measure.of(run) for run in runs.values()], [started.of(run) for run in runs.values()]
    cells = (
        arm,
        str(len(runs)),
        f"{fmean(start):.2f}",
        shown(student_interval(own)),
        difference([after - before for after, before in zip(own, start, strict=True)]),
        difference(leads(runs, baseline, measure)) if arm != BASELINE else "",
        f"{fmean(run['sampled_tokens'] for run in runs.values()) / 1000:.0f} k",
        f"{fmean(run['cpu_seconds'] for run in runs.values()):.0f}",
    )
    return f"| {' | '.join(cells)} |"


def shown(interval: Interval, sign: str = "") -> str:
    """Mean and interval; one seed has none."""
    if interval.n < 2:
        return f"{interval.mean:{sign}.2f}"
    return f"{interval.mean:{sign}.2f} [{interval.low:{sign}.2f}, {interval.high:{sign}.2f}]"


def difference(values: Sequence[float]) -> str:
    """Mean and interval with their signs."""
    return shown(student_interval(list(values)), "+") if values else ""


def picture(arms: Mapping[str, Runs], world: World, path: Path, name: str) -> None:
    """Mean success over environment steps, a line for each method; the legend has the best one first."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(8.5, 4.6), layout="constrained")
    order = [*FIRST, *(method for method in METHODS if method not in FIRST)]
    ends = {}
    for arm, runs in ((arm, runs) for arm, runs in arms.items() if arm not in ABLATIONS):
        number = order.index(arm)
        curves = [curve(run) for run in runs.values()]
        grid = np.linspace(0, min(world.budget, *(steps[-1] for steps, _ in curves)), 60)
        mean = np.mean([np.interp(grid, steps, success) for steps, success in curves], axis=0)
        style = STYLES[number // len(COLORS) % len(STYLES)]
        (line,) = axis.plot(grid / 1000, mean, style, color=COLORS[number % len(COLORS)], linewidth=1.8)
        ends[f"{arm} ({len(runs)})"] = (mean[-1], line)
    labels = sorted(ends, key=lambda label: -ends[label][0])
    axis.legend([ends[label][1] for label in labels], labels, title="method (seeds)", fontsize=8, loc="upper left",
                bbox_to_anchor=(1.01, 1), frameon=False)  # fmt: skip
    axis.set(
        xlabel="thousand environment steps",
        ylabel="success on the test tasks",
        title=f"{name}: equal except clip, gamma and critic",
    )
    axis.set_ylim(0)
    axis.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
