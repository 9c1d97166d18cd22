"""The claims: what each paper reports, which of our runs stand for it, and what we make of the outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.claims import evidence
from benchmarks.claims.measures import (
    CPU_PER_TOKEN,
    KEPT_FOUR,
    ON_THE_WAY,
    SILENT,
    SUCCESS,
    TOKENS,
    TURNS,
    Measure,
    at_steps,
    at_tokens,
)
from benchmarks.doc_tables import LOST_THREADS
from benchmarks.grid import Run

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
    """

    file: str
    ours: str
    other: str
    measure: Measure = SUCCESS
    sign: int = 1
    paper: float | None = None
    since: tuple[str, str] | None = None

    @property
    def arms(self) -> tuple[str, ...]:
        """Every arm that it needs."""
        return (self.ours, self.other, *(self.since or ()))

    def difference(self, runs: Sequence[Run]) -> float:
        """In favor of the claim; ``runs`` of one seed, as `arms` orders them."""
        change = self.measure.difference(runs[0], runs[1])
        return self.sign * (change - self.measure.difference(runs[2], runs[3]) if self.since else change)


@dataclass(frozen=True)
class Claim:
    """One claim.

    Attributes:
        said: the claim in one sentence.
        source: paper and place.
        reading: what we make of the outcome; no figures that stand in the table.
        own_command: how further seeds are run, where the arms on file are no plain command lines.
        tables: what else the page shows, each made from the results on file.
    """

    number: int
    said: str
    source: str
    comparisons: tuple[Comparison, ...]
    reading: str
    own_command: str = ""
    tables: tuple[Callable[[], str], ...] = ()


def t3(file: str, ending: str, measure: Measure, sign: int, **paper: float | None) -> tuple[Comparison, ...]:
    """T3 against each algorithm alone."""
    return tuple(
        Comparison(file, f"{algo} + T3, {ending}", algo, measure, sign, effect) for algo, effect in paper.items()
    )


GN, GN_T3 = "t3", "consistent, force_answer, k=1"
PE, LOST = "t3_preference_estimation", "t3_lost_threads"
CD, CD_T3 = "t3_circuit_decoding", "force_answer, k=3"
ROOMS = "steppo_rooms"
PANEL = "pivotrl_panel"
SAVING = {"grpo": 0.34, "ppo": 0.34, "gspo": 0.34}

CLAIMS = (
    Claim(
        1,
        "T3 raises the final success of GRPO, PPO and GSPO on GuessNumbers and CircuitDecoding.",
        "T3, table 1",
        (
            *t3(GN, GN_T3, SUCCESS, 1, grpo=0.301, ppo=0.024, gspo=0.037),
            *t3(CD, CD_T3, SUCCESS, 1, grpo=0.020, ppo=0.162, gspo=0.033),
            *t3(LOST, GN_T3, SUCCESS, 1, grpo=0.301, ppo=0.024, gspo=0.037),
            *t3(LOST, GN_T3, at_tokens(100_000), 1, grpo=None, ppo=None, gspo=None),
        ),
        "GuessNumbers' own starter ends after three guesses, so that there is little tail to cut. t3_lost_threads has "
        "the same games and rules and a starter at 0.07 that loses the thread sooner or later and then repeats itself "
        "to the limit (benchmarks/lost_threads.py): the tail that T3 is about. There T3 saves tokens, and so "
        "is ahead at equal tokens; at equal iterations it is not: what led into the trap is punished with the tail or "
        "without it.",
    ),
    Claim(
        2,
        "T3 saves about a third of the sampled tokens.",
        "T3, abstract and section 3.3",
        (
            *t3(GN, GN_T3, TOKENS, -1, **SAVING),
            *t3(CD, CD_T3, TOKENS, -1, **SAVING),
            *t3(LOST, GN_T3, TOKENS, -1, **SAVING),
        ),
        "The saving grows with the turns that an episode may have left when it is cut: little in CircuitDecoding, "
        "whose window of 3 fires late, and the paper's third where a trapped belief goes on to the limit "
        "(t3_lost_threads).",
        tables=(LOST_THREADS,),
    ),
    Claim(
        3,
        "T3's window k has an optimum inside its range: 1 for GuessNumbers, 3 to 4 for CircuitDecoding, 2 for "
        "PreferenceEstimation.",
        "T3, table 3",
        (
            Comparison(GN, f"grpo + T3, {GN_T3}", "grpo + T3, consistent, force_answer, k=4"),
            Comparison(GN, f"ppo + T3, {GN_T3}", "ppo + T3, consistent, force_answer, k=4"),
            Comparison(CD, f"grpo + T3, {CD_T3}", "grpo + T3, force_answer, k=1"),
            Comparison(CD, f"ppo + T3, {CD_T3}", "ppo + T3, force_answer, k=1"),
            Comparison(PE, "grpo + T3, force_answer, k=2", "grpo + T3, force_answer, k=1"),
            Comparison(PE, "grpo + T3, force_answer, k=2", "grpo + T3, force_answer, k=4", paper=0.047),
        ),
        "The paper varies k from 2 to 4 on CircuitDecoding; k=1 stands here for a window that is too small. The other "
        "side is no window at all: claim 1. Episodes of PreferenceEstimation have four turns here, so that a window "
        "of 4 hardly ever fires.",
    ),
    Claim(
        4,
        "VSPO is ahead of GRPO, value-based draws are ahead of random ones, and the clip matters.",
        "PRS and VSPO, table 8",
        (
            Comparison("vspo_mixed", "vspo", "grpo", paper=0.039),
            Comparison("vspo_mixed", "vspo", "grpo", ON_THE_WAY),
            Comparison("vspo_mixed", "vspo", "vspo, random draws", paper=0.1355),
            Comparison("vspo_mixed", "vspo", "vspo, no clip", paper=0.0493),
            Comparison("vspo_mixed", "vspo, random draws", "vspo, random draws, no clip", paper=0.3235),
        ),
        "vspo_mixed is the paper's case: mixed difficulty, more than half of the groups silent. GRPO, VSPO and its "
        "parts end alike there, and within a narrow interval. AdamW and the bound on the gradient's norm take out a "
        "factor that all advantages share; what is left is the weight of one task against another, which the clip "
        "keeps below alpha, and every task that can be learned is learned in the end. That random draws or no clip "
        "make training collapse did not show, either.",
        tables=(evidence.SILENT_GROUPS,),
    ),
    Claim(
        5,
        "PRS cuts the share of tasks that teach nothing.",
        "PRS and VSPO, figure 4",
        (
            Comparison("prs", "grpo + prs", "grpo", SILENT, -1),
            Comparison("multihop_qa_prs", "grpo + prs", "grpo", SILENT, -1),
            Comparison("multihop_qa_prs_beginner", "grpo + prs", "grpo", SILENT, -1),
            Comparison("prs_long_form", "grpo, prs", "grpo, 0-1", SILENT, -1),
        ),
        "Fewer silent tasks are not more success: docs/negative-results.md has the case of the long answers.",
    ),
    Claim(
        6,
        "StepPO is ahead of PPO, and loses less when gamma falls from 0.99 to 0.95.",
        "StepPO, tables 2 and 4",
        (
            Comparison(ROOMS, "steppo, gamma 0.99", "ppo, gamma 0.99", paper=0.0786),
            Comparison(ROOMS, "steppo, gamma 0.95", "ppo, gamma 0.95", paper=0.1055),
            Comparison(
                ROOMS, "steppo, gamma 0.95", "ppo, gamma 0.95", paper=0.0515,
                since=("steppo, gamma 0.99", "ppo, gamma 0.99"),
            ),
            Comparison("steppo", "steppo", "ppo, gamma 0.99", paper=0.0786),
        ),
        "The mechanism is the number of tokens over which a reward is discounted. In steppo_rooms three steps of sixty "
        "tokens lie before one reward (the paper: four to five of 140 to 280). By tokens little of it reaches the "
        "first step's choice at the larger gamma and nothing at the smaller one, where PPO learns little but the "
        "last room's doors; by steps nearly all of it does. A discount by "
        "tokens pays for brevity, too: PPO's thoughts became shorter. steppo: guess_numbers, a dozen tokens a step.",
        tables=(evidence.DOORS, evidence.credit),
    ),
    Claim(
        7,
        "StepPO's training costs no more than PPO's.",
        "StepPO, table 6",
        (Comparison("steppo", "steppo", "ppo, gamma 0.99", CPU_PER_TOKEN, -1, 0.07),),
        "Rows for each step repeat the prompt; our preset merges them where the dialogue grows. Then both cost the "
        "same, within the interval.",
    ),
    Claim(
        8,
        "StepPO needs both: advantages and ratios of steps.",
        "StepPO, section 3, figure 5",
        (
            Comparison(ROOMS, "steppo, gamma 0.99", "token GAE"),
            Comparison(ROOMS, "steppo, gamma 0.99", "token ratio"),
            Comparison(ROOMS, "steppo, gamma 0.99", "ppo, gamma 0.99"),
        ),
        "Advantages of steps matter: a step's ratio spreads each token's advantage over all tokens of the step, so "
        "that those of the thought, further from the reward, may drown the choice's; token GAE with it is worse than "
        "PPO. Ratios of steps did not matter: so close to the policy that sampled, either kind is near 1. Without "
        "both it is PPO, to the last bit.",
    ),
    Claim(
        9,
        "3SPO is ahead of GRPO, GiGPO and HGPO on ALFWorld.",
        "3SPO, table 1",
        (
            Comparison("equal_steps_alfworld", "3spo", "grpo", BUDGET, paper=0.226),
            Comparison("equal_steps_alfworld", "3spo", "gigpo", BUDGET, paper=0.052),
            Comparison("equal_steps_alfworld", "3spo", "hgpo", BUDGET, paper=0.026),
        ),
        "The reading that learns, not the printed equations: docs/algorithms/3spo.md lists the differences. The "
        "setting is far from the paper's: a model of 0.2 M parameters, generated houses, state keys of ours "
        "(env.anchor=role), 64 tasks side by side. The printed equations were not tested at the paper's setting.",
        "python -m benchmarks.equal_steps --local --jobs 2 --set eval_interval=4 --seeds N",
    ),
    Claim(
        10,
        "3SPO needs novelty, the difference of scores, and backtracking; adaptive n(s) hardly matters.",
        "3SPO, table 2",
        (
            Comparison("three_spo_ablations", "3spo", "3spo, w/o novelty", SHOPPED, paper=0.070),
            Comparison("three_spo_ablations", "3spo", "3spo, w/o difference", SHOPPED, paper=0.081),
        ),
        "Ablations of the reading that learns, with a constant learning rate, on webshop. It leaves a task when the "
        "path that it follows ends, so that it does not backtrack; with more paths it fails there "
        "(docs/algorithms/3spo.md).",
        "python -m benchmarks.equal_steps --local --world webshop --name three_spo_ablations --set eval_interval=4 "
        "--seeds N --arms 3spo ...",
    ),
    Claim(
        11,
        "PivotRL reaches end-to-end RL's success with a quarter of the turns.",
        "PivotRL, figure 1",
        (Comparison("pivotrl", "PivotRL", "end-to-end GRPO", TURNS, -1, 0.75),),
        "Turns of training; the traces that pivots are taken from were there before.",
        "python -m benchmarks.pivotrl --local --jobs 2 --seeds N",
    ),
    Claim(
        12,
        "PivotRL keeps what the model could do elsewhere, where SFT forgets it.",
        "PivotRL, table 2",
        (
            Comparison(PANEL, "PivotRL", "sft", KEPT_FOUR, paper=0.1004),
            Comparison(PANEL, "PivotRL, foreign expert", "sft, foreign expert", KEPT_FOUR, paper=0.1004),
        ),
        "A base that plays five environments is trained on webshop; what counts is the mean of the other four (the "
        "paper has eight domains). SFT loses 0.03 of it with an expert who writes like the base and 0.06 with one "
        "who does not, most in multihop_qa and situation_puzzles; PivotRL a hundredth at most. With one other domain "
        "and three seeds (docs/benchmarks.md) the effect was of this direction and within the noise.",
        "python -m benchmarks.pivotrl_panel --local --jobs 2 --seeds N",
        tables=(evidence.panel,),
    ),
)  # fmt: skip
