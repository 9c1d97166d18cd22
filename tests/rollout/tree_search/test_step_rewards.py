"""Eq. 2 from statistics: the worked example, every switch, and both conventions for ends."""

import math
from typing import Any

import pytest
from rollout.tree_search.drawn import settings_of

from rl_agents.algorithms.three_spo import StateStatistics
from rl_agents.rollout.tree_search.states import Outcomes

#: Counts (N_total, N_succ); at depth 2 and 3 with alpha 1.
COUNTS = {"here": (10, 5), "good": (8, 8), "bad": (8, 2), "hopeless": (12, 0)}


def counts_of(counts: dict[str, tuple[int, int]] = COUNTS, **keys: Any) -> StateStatistics:
    states = StateStatistics(settings_of(**keys))
    for key, (total, wins) in counts.items():
        for number in range(total):
            states.finish([key], number < wins)
    return states


def rewards(
    children: list[str], *, ended: str = "", won: str = "", counts: dict[str, tuple[int, int]] = COUNTS, **keys: Any
) -> list[float]:
    """Rewards of children of "here", reached from "start"; ``ended`` and ``won`` name those that end."""
    over, solved = (key in (ended, won) for key in children), (key == won for key in children)
    outcomes = Outcomes(tuple(children), tuple(over), tuple(solved))
    return counts_of(counts, **keys).step_rewards(["start", "here"], outcomes).tolist()


def score(key: str, depth: int, gated: bool = True) -> float:
    total, wins = COUNTS.get(key, (0, 0))
    closed = gated and total - wins >= 10 and wins <= 0.1 * total
    return 0.0 if closed else math.exp(-math.log(depth) * wins / (total + 1e-6))


OMEGA = 0.5 * math.exp(-1.0)


def test_progress_novelty_and_success_add_up() -> None:
    found = rewards(["good", "bad", "here", "won"], won="won")
    progress = [score("here", 2) - score(key, 3) for key in ("good", "bad", "here")] + [score("here", 2)]
    assert found == pytest.approx(
        [
            OMEGA + (0.5 - OMEGA) * progress[0], OMEGA + (0.5 - OMEGA) * progress[1], (0.5 - OMEGA) * progress[2],
            OMEGA + (0.5 - OMEGA) * progress[3] + 0.5,
        ],
        abs=1e-12,
    )  # fmt: skip
    assert rewards(["a", "b", "here", "won"], won="won", counts={}) == [0.5, 0.5, 0.0, 1.0]


def test_every_part_can_be_switched_off_and_what_is_novel() -> None:
    assert rewards(["good", "here"], score_difference="none") == pytest.approx([OMEGA, 0.0])
    half = [0.5 * (score("here", 2) - score(key, 3)) for key in ("good", "here")]
    assert rewards(["good", "here"], novelty="none") == pytest.approx(half)
    fixed = rewards(["good", "here"], novelty_fixed=0.25)
    assert fixed == pytest.approx([0.25 + 0.5 * half[0], 0.5 * half[1]])
    assert rewards(["good"], novelty_decay=0.0)[0] == pytest.approx(0.5)
    readings = {mode: rewards(["good", "start", "new", "here"], score_difference="none", novelty=mode) for mode in
                ("changed", "unseen")}  # fmt: skip
    novel = {mode: [round(value / OMEGA, 9) for value in values] for mode, values in readings.items()}
    assert novel == {"changed": [1, 1, 1, 0], "unseen": [0, 1, 1, 0]}


def test_values_pay_for_what_a_state_is_worth() -> None:
    """V(here) = ½, γ = 0.9: to good ½·(0.9 - ½), to bad ½·(0.9·¼ - ½), solved ½·½, lost -½·½; success is in V."""
    found = rewards(
        ["good", "bad", "won", "lost"], won="won", ended="lost", novelty="none", score_difference="value", gamma=0.9
    )
    assert found == pytest.approx([0.2, -0.1375, 0.25, -0.25], abs=1e-6)


def test_with_the_gate_in_n_alone_a_hopeless_state_is_no_progress() -> None:
    """α = 1: S(here) = 2^-0.5 = 0.70711, S(hopeless) = 1 as if unseen, S(good) = 1/3; half of each difference."""
    found = rewards(["hopeless", "unseen", "good"], novelty="none", score_gate="count")
    assert found == pytest.approx([-0.14645, -0.14645, 0.18689], abs=1e-5)
    by_the_paper = rewards(["hopeless", "unseen", "good"], novelty="none", score_gate="score")
    assert by_the_paper == pytest.approx([0.35355, -0.14645, 0.18689], abs=1e-5)


def test_a_state_that_closed_at_a_low_rate_keeps_the_score_of_its_rate() -> None:
    """(40, 2) is closed at p = 0.05: S = 3^-0.05 = 0.94655 at depth 3."""
    (found,) = rewards(["low"], novelty="none", score_gate="count", counts={**COUNTS, "low": (40, 2)})
    assert found == pytest.approx(0.5 * (2**-0.5 - 0.94655), abs=1e-5)


def test_a_solved_end_has_no_score_left_and_a_lost_one_is_unseen() -> None:
    counted = rewards(["won", "lost"], won="won", ended="lost", novelty="none")
    assert counted == pytest.approx([0.5 * score("here", 2) + 0.5, 0.5 * (score("here", 2) - 1.0)])


def test_novelty_pays_until_the_first_success_anywhere() -> None:
    failed = {"bad": (8, 0)}
    assert rewards(["new", "here"], counts=failed, novelty_until="solved") == [0.5, 0.0], "nothing is solved yet"
    half = [0.5 * (score("here", 2) - score(key, 3)) for key in ("good", "here")]
    found = rewards(["good", "here"], novelty_until="solved")
    assert found == pytest.approx(half), "from then on as with novelty=none"
    assert rewards(["good", "here"], novelty_until="solved", novelty_fixed=0.25) == pytest.approx(half)


@pytest.mark.parametrize(
    ("keys", "state", "expected"),
    [({}, "here", 8 * 2**-0.5), ({}, "hopeless", 0), ({}, "unseen", 8), ({"score_alpha": 50.0}, "here", 1),
     ({"score_gate": "count"}, "hopeless", 0), ({"score_gate": "score"}, "hopeless", 0),
     ({"score_gate": "off"}, "hopeless", 8), ({"score_gate": "count"}, "here", 8 * 2**-0.5),
     ({"search_rollouts": "uniform"}, "hopeless", 8)],
)  # fmt: skip
def test_rollouts_of_a_state(keys: dict, state: str, expected: float) -> None:
    found, rollouts = counts_of(**keys).allocation(state, 2, 8)
    assert rollouts == math.ceil(expected) and 0.0 <= found <= 1.0
