"""The runs that test each claim, and how they are compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from benchmarks.equal_steps import curve
from benchmarks.grid import Run
from benchmarks.referee import read_at

# --- measures of runs

#: Success at which two ways of collecting data are compared by cost.
TARGET = 0.8


@dataclass(frozen=True)
class Measure:
    """A number of a run.

    Attributes:
        name: as tables show it.
        of: reads it.
        relative: compare two runs by ``ours / other - 1`` instead of ``ours - other``.
    """

    name: str
    of: Callable[[Run], float]
    relative: bool = False

    def difference(self, ours: Run, other: Run) -> float:
        """Return the difference between ours and the other; NaN if one of them has no value."""
        first, second = self.of(ours), self.of(other)
        return first / second - 1 if self.relative else first - second


def at_steps(steps: int) -> Measure:
    """Success after ``steps`` environment steps, interpolated between evaluations; raises as `read_at`."""
    return Measure(f"success after {steps // 1000} k environment steps", lambda run: read_at(steps, *curve(run)))


def at_tokens(tokens: int) -> Measure:
    """Success after ``tokens`` sampled tokens, interpolated between evaluations; raises as `read_at`."""

    def read(run: Run) -> float:
        return read_at(tokens, *(list(run[key].values()) for key in ("tokens", "success")))

    return Measure(f"success after {tokens // 1000} k sampled tokens", read)


def turns_to_target(run: Run) -> float:
    """Return the turns until the evaluated success reaches `TARGET`, interpolated; NaN: never."""
    return until_target(run, [run["rollout_turns"][i] for i in run["success"]])


def updates_to_target(run: Run) -> float:
    """Return the iterations until the evaluated success reaches `TARGET`, interpolated; NaN: never."""
    return until_target(run, [int(i) for i in run["success"]])


def until_target(run: Run, cost: Sequence[float]) -> float:
    rates = list(run["success"].values())
    for (before, after), (spent, more) in zip(pairwise(rates), pairwise(cost), strict=True):
        if after >= TARGET:
            return spent + (more - spent) * max(0.0, (TARGET - before) / (after - before))
    return math.nan


SUCCESS = Measure("success on the test tasks", lambda run: list(run["success"].values())[-1])
ON_THE_WAY = Measure("mean success of all evaluations", lambda run: fmean(run["success"].values()))
TOKENS = Measure("sampled tokens, relative", lambda run: float(run["sampled_tokens"]), relative=True)
SILENT = Measure("share of tasks without an advantage", lambda run: fmean(run["zero_advantage"]))
CPU_PER_TOKEN = Measure(
    "CPU-seconds per sampled token, relative", lambda run: run["cpu_seconds"] / run["sampled_tokens"], relative=True
)
KEPT_FOUR = Measure("mean success on four other domains", lambda run: list(run["retained"].values())[-1])
TURNS = Measure(f"turns until success {TARGET}, relative", turns_to_target, relative=True)
UPDATES = Measure(f"updates until success {TARGET}, relative", updates_to_target, relative=True)


# --- claims

BUDGET, SHOPPED = at_steps(44_000), at_steps(20_000)


@dataclass(frozen=True)
class Comparison:
    """Two arms of one file of results.

    Attributes:
        file: benchmarks/results/FILE.json.
        ours: the arm that the claim says is better.
        other: the arm that it is compared with.
        measure: what is compared.
        sign: 1 where more of it is better, -1 where less is.
        paper: the paper's effect in the unit of ``measure``, in favor of the claim; None: it gives none in that unit.
        since: arms that ours and the other one are each compared with first: then the two changes are compared.
        telling: whether the claim's truth can show in this setting; if not, the verdict leaves the comparison out.
    """

    file: str
    ours: str
    other: str
    measure: Measure = SUCCESS
    sign: int = 1
    paper: float | None = None
    since: tuple[str, str] | None = None
    telling: bool = True

    @property
    def arms(self) -> tuple[str, ...]:
        """All arms of the comparison."""
        return (self.ours, self.other, *(self.since or ()))

    def difference(self, runs: Sequence[Run]) -> float:
        """Return the difference in favor of the claim; ``runs`` are those of one seed, in the order of `arms`."""
        change = self.measure.difference(runs[0], runs[1])
        return self.sign * (change - self.measure.difference(runs[2], runs[3]) if self.since else change)


def t3(file: str, ending: str, measure: Measure, sign: int, **paper: float | None) -> tuple[Comparison, ...]:
    """Return comparisons of T3 with each algorithm alone."""
    return tuple(
        Comparison(file, f"{algo} + T3, {ending}", algo, measure, sign, effect) for algo, effect in paper.items()
    )


GN, GN_T3 = "t3", "consistent, force_answer, k=1"
PE, LOST = "t3_preference_estimation", "t3_lost_threads"
CD, CD_T3 = "t3_circuit_decoding", "force_answer, k=3"
STEPPO_ROOMS = "steppo_rooms"
PANEL = "pivotrl_panel"
LONG_ANSWERS = "prs_long_form"
SAVING = {"grpo": 0.34, "ppo": 0.34, "gspo": 0.34}

#: The comparisons of each claim; docs/research/claims.md says what the paper reports, and how to read them.
CLAIMS: Mapping[int, tuple[Comparison, ...]] = {
    1: (
        *t3(GN, GN_T3, SUCCESS, 1, grpo=0.301, ppo=0.024, gspo=0.037),
        *t3(CD, CD_T3, SUCCESS, 1, grpo=0.020, ppo=0.162, gspo=0.033),
        *t3(LOST, GN_T3, SUCCESS, 1, grpo=0.301, ppo=0.024, gspo=0.037),
        *t3(LOST, GN_T3, at_tokens(100_000), 1, grpo=None, ppo=None, gspo=None),
    ),
    2: (
        *t3(GN, GN_T3, TOKENS, -1, **SAVING),
        *t3(CD, CD_T3, TOKENS, -1, **SAVING),
        *t3(LOST, GN_T3, TOKENS, -1, **SAVING),
    ),
    3: (
        Comparison(GN, f"grpo + T3, {GN_T3}", "grpo + T3, consistent, force_answer, k=4"),
        Comparison(GN, f"ppo + T3, {GN_T3}", "ppo + T3, consistent, force_answer, k=4"),
        Comparison(CD, f"grpo + T3, {CD_T3}", "grpo + T3, force_answer, k=1"),
        Comparison(CD, f"ppo + T3, {CD_T3}", "ppo + T3, force_answer, k=1"),
        Comparison(PE, "grpo + T3, force_answer, k=2", "grpo + T3, force_answer, k=1"),
        Comparison(PE, "grpo + T3, force_answer, k=2", "grpo + T3, force_answer, k=4", paper=0.047, telling=False),
    ),
    4: (
        Comparison("vspo_mixed", "vspo", "grpo", paper=0.039),
        Comparison("vspo_mixed", "vspo", "grpo", ON_THE_WAY),
        Comparison("vspo_mixed", "vspo", "vspo, random draws", paper=0.1355),
        Comparison("vspo_mixed", "vspo", "vspo, no clip", paper=0.0493),
        Comparison("vspo_mixed", "vspo, random draws", "vspo, random draws, no clip", paper=0.3235),
    ),
    5: (
        Comparison("prs", "grpo + prs", "grpo", SILENT, -1, telling=False),
        Comparison("multihop_qa_prs", "grpo + prs", "grpo", SILENT, -1, telling=False),
        Comparison("multihop_qa_prs_beginner", "grpo + prs", "grpo", SILENT, -1),
        Comparison("prs_long_form", "grpo, prs", "grpo, 0-1", SILENT, -1),
    ),
    6: (
        Comparison(STEPPO_ROOMS, "steppo, gamma 0.99", "ppo, gamma 0.99", paper=0.0786),
        Comparison(STEPPO_ROOMS, "steppo, gamma 0.95", "ppo, gamma 0.95", paper=0.1055),
        Comparison(
            STEPPO_ROOMS, "steppo, gamma 0.95", "ppo, gamma 0.95", paper=0.0515,
            since=("steppo, gamma 0.99", "ppo, gamma 0.99"),
        ),
        Comparison("steppo", "steppo", "ppo, gamma 0.99", paper=0.0786),
    ),
    7: (Comparison("steppo", "steppo", "ppo, gamma 0.99", CPU_PER_TOKEN, -1, 0.07, telling=False),),
    8: (
        Comparison(STEPPO_ROOMS, "steppo, gamma 0.99", "token GAE"),
        Comparison(STEPPO_ROOMS, "steppo, gamma 0.99", "token ratio", telling=False),
        Comparison(STEPPO_ROOMS, "steppo, gamma 0.99", "ppo, gamma 0.99"),
    ),
    9: (
        Comparison("equal_steps_alfworld", "3spo", "grpo", BUDGET, paper=0.226),
        Comparison("equal_steps_alfworld", "3spo", "gigpo", BUDGET, paper=0.052),
        Comparison("equal_steps_alfworld", "3spo", "hgpo", BUDGET, paper=0.026),
    ),
    10: (
        Comparison("equal_steps_webshop", "3spo", "3spo, w/o novelty", SHOPPED, paper=0.074),
        Comparison("equal_steps_webshop", "3spo", "3spo, w/o difference", SHOPPED, paper=0.070),
        Comparison("equal_steps_webshop", "3spo", "3spo, fixed omega", SHOPPED, paper=0.016),
        Comparison("equal_steps_webshop", "3spo, 4 paths a task", "3spo", SHOPPED, paper=0.053),
        Comparison("equal_steps_webshop", "3spo, uniform n", "3spo", SHOPPED, paper=0.004),
    ),
    11: (
        Comparison("pivotrl", "PivotRL", "end-to-end GRPO", TURNS, -1, 0.75),
        Comparison("pivotrl", "random turns", "end-to-end GRPO", TURNS, -1),
        Comparison("pivotrl", "PivotRL", "end-to-end GRPO", UPDATES, -1),
    ),
    12: (
        Comparison(PANEL, "PivotRL", "sft", KEPT_FOUR, paper=0.1004),
        Comparison(PANEL, "PivotRL, foreign expert", "sft, foreign expert", KEPT_FOUR, paper=0.1004),
    ),
    13: (
        Comparison(LONG_ANSWERS, "grpo, prs", "grpo, 0-1", paper=0.0045),
        Comparison(LONG_ANSWERS, "vspo, prs", "vspo, 0-1"),
        Comparison(f"{LONG_ANSWERS}_weak", "grpo, prs", "grpo, 0-1", paper=0.0066),
    ),
}  # fmt: skip
#: Claims whose arms on file are no plain command lines; the page has their commands.
ELSEWHERE = (9, 10, 11, 12)

ALFWORLD, WEBSHOP = "equal_steps_alfworld", "equal_steps_webshop"
#: Results on file that speak against a paper.
OPPOSED = (
    Comparison("prs_long_form", "grpo, prs", "grpo, 0-1"),
    Comparison(ALFWORLD, "steppo", "ppo", BUDGET, paper=0.0786),
    Comparison(WEBSHOP, "steppo", "gigpo", at_steps(17_500)),
)
