"""Claims from several starts, under the rules of `benchmarks.referee`: ``python -m benchmarks.claims.starts --local``.

Every arm of a test begins at each of three warm-start models, which imitate demonstrations of their own seeds, and
plays as many episodes with as many optimizer steps as the others. A stopped command continues. The page is written by
``python -m benchmarks.claims``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.equal_steps import sets
from benchmarks.experiments import LONG_STEP_KEYS, SPAN, STEP_RATIO, TOKEN_GAE, truncated, vspo_keys
from benchmarks.grid import COLUMNS, Arm, grid_parser, imitated, run_grid
from benchmarks.referee import ERROR, Cell, over_starts, page_of, paired, start_means
from benchmarks.report import markdown
from benchmarks.several_starts import changed, runs_on_file

STARTS = 3
Keys = tuple[str, ...]


@dataclass(frozen=True)
class Compared:
    """Two arms; ``since``: arms with which each is compared first, then the two changes are compared."""

    claim: int
    ours: str
    other: str
    paper: float | None = None
    since: tuple[str, str] | None = None

    def __str__(self) -> str:
        names = [self.ours, self.other]
        if self.since:
            names = [f"{now} since {before}" for now, before in zip(names, self.since, strict=True)]
        return " against ".join(names)


@dataclass(frozen=True)
class Test:
    """An environment with its arms.

    Attributes:
        env: its name.
        sft: keys of the imitation that makes a start.
        arms: name -> keys.
    """

    env: str
    sft: Keys
    arms: Mapping[str, Keys]
    compared: tuple[Compared, ...]


def t3(window: int) -> Keys:
    return ("truncation=t3", f"truncation_window={window}", "truncation_after=force_answer")


VSPO, ROOMS = "gymnasium:benchmarks.mixed_doors:Doors", "gymnasium:benchmarks.long_thoughts:Rooms"
PUZZLES: Keys = (
    "algo=grpo", "tasks_per_iteration=16", "group_size=8", "eval_episodes=300", "env=situation_puzzles",
    "iterations=20", "eval_interval=10",
)  # fmt: skip
TESTS: Mapping[str, Test] = {
    "vspo_span": Test(
        VSPO, ("iterations=4",),
        {name: vspo_keys()[name] for name in ("grpo", SPAN, f"{SPAN}, no clip", "vspo, random draws")},
        (
            Compared(4, SPAN, "grpo", 0.039),
            Compared(4, SPAN, "vspo, random draws", 0.1355),
            Compared(4, SPAN, f"{SPAN}, no clip", 0.0493),
        ),
    ),
    "gae_level": Test(
        ROOMS, ("iterations=8",),
        {
            **{name: LONG_STEP_KEYS[name] for name in ("steppo, gamma 0.99", "steppo, gamma 0.95")},
            **{f"token GAE, gamma {g}": (*STEP_RATIO, *TOKEN_GAE, f"gamma={g}") for g in ("0.99", "0.95")},
        },
        (
            Compared(6, "steppo, gamma 0.95", "token GAE, gamma 0.95", 0.1055),
            Compared(
                6, "steppo, gamma 0.95", "token GAE, gamma 0.95", 0.0515,
                ("steppo, gamma 0.99", "token GAE, gamma 0.99"),
            ),
        ),
    ),
    "puzzle_window": Test(
        "situation_puzzles", ("iterations=10",),
        {"grpo": PUZZLES, **{f"grpo + T3, k={k}": (*PUZZLES, *t3(k)) for k in (3, 5, 9)}},
        (Compared(3, "grpo + T3, k=5", "grpo + T3, k=3"), Compared(3, "grpo + T3, k=5", "grpo + T3, k=9")),
    ),
}  # fmt: skip


def main() -> None:
    """Run the missing cells and print the differences."""
    parser = grid_parser(__doc__, "")
    parser.add_argument("--tests", nargs="+", default=list(TESTS), choices=list(TESTS))
    parser.set_defaults(seeds=2)
    args = parser.parse_args()
    for name in args.tests:
        for number in range(STARTS):
            test, folder = TESTS[name], Path("runs") / "starts" / f"claims-{name}-{number}"
            start = imitated(folder, test.env, "--seed", str(number), *sets(test.sft))
            run_grid(arms_of(name, number, start), changed(args, name=file_of(name)))
    print(differences())


def file_of(name: str) -> str:
    return f"claims_{name}"


def arms_of(name: str, number: int, start: Path) -> list[Arm]:
    test = TESTS[name]
    model = (f"env={test.env}", f"model={start}")
    left_out = ("starter_iterations=", "env=")
    return [
        Arm(f"{arm}, start {number}", sets([*(key for key in keys if not key.startswith(left_out)), *model]))
        for arm, keys in test.arms.items()
    ]


def complete() -> dict[str, Test]:
    """Return the tests whose arms have all been run from all starts."""
    return {
        name: test
        for name, test in TESTS.items()
        if all(len(start_means(ends(name).get(arm, {}))) == STARTS for arm in test.arms)
    }


def ends(name: str) -> dict[str, dict[Cell, float]]:
    """Return the success after the last iteration by arm, start and seed."""
    return {
        arm: {cell: list(run["success"].values())[-1] for cell, run in runs.items()}
        for arm, runs in runs_on_file(file_of(name)).items()
    }


def compared() -> dict[Compared, dict[Cell, float]]:
    """Return the paired differences of all comparisons."""
    found = {}
    for name, test in complete().items():
        success = ends(name)
        for own in test.compared:
            change = paired(success[own.ours], success[own.other])
            if own.since:
                before = paired(success[own.since[0]], success[own.since[1]])
                change = paired(change, before)
            found[own] = change
    return found


def differences() -> str:
    """The comparisons, adjusted together."""
    cells = compared()
    shown = page_of({f"{own.claim} {own}": values for own, values in cells.items()})
    rows = [
        (
            str(own.claim), str(own), str(difference), f"{difference.adjusted:.2f}",
            margin(values), "-" if own.paper is None else f"{own.paper:+.3f}", str(difference.interval.n),
            str(len(values)),
        )
        for (own, values), difference in zip(cells.items(), shown.values(), strict=True)
    ]  # fmt: skip
    return markdown(("claim", "compared", "difference", "p (Holm)", "at most", "paper's", "starts", "runs"), rows)


def margin(values: Mapping[Cell, float]) -> str:
    """Return the smallest margin at which `benchmarks.referee.equivalent` holds."""
    interval = over_starts(values, 1 - 2 * ERROR)
    most = max(abs(interval.low), abs(interval.high))
    return "-" if math.isnan(most) else f"{math.ceil(100 * most) / 100:.2f}"


def costs() -> str:
    """Success and costs of every arm."""
    rows = []
    for name in complete():
        for arm, runs in runs_on_file(file_of(name)).items():
            own = list(runs.values())
            before = over_starts({cell: next(iter(run["success"].values())) for cell, run in runs.items()})
            rows.append((
                file_of(name), arm, f"{before.mean:.2f}", f"{over_starts(ends(name)[arm]).mean:.2f}",
                f"{fmean(sum(run['steps']) for run in own):,.0f}", COLUMNS["sampled tokens"](own),
                COLUMNS["CPU-s a run"](own),
                truncated(own) if "T3" in arm else "",
            ))  # fmt: skip
    heads = ("file", "arm", "start", "end", "environment steps", "sampled tokens", "CPU-s a run", "truncated")
    return markdown(heads, rows)


if __name__ == "__main__":
    main()
