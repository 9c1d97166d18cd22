"""What is counted, under which name, for how long; and the cases of eq. 1 reached by counting."""

import json

import pytest
from rollout.tree_search.drawn import settings_of

from rl_agents.algorithms.three_spo import StateStatistics
from rl_agents.rollout.tree_search.states import Outcomes, state_key


def counted(total: int, wins: int, **keys: object) -> StateStatistics:
    """Counts in which the state "s" has these."""
    states = StateStatistics(settings_of(**keys))
    for number in range(total):
        finish(states, ["s"], number < wins)
    return states


def finish(states: StateStatistics, path: list[str], success: bool) -> None:
    states.finish(path, success)


def look(states: StateStatistics, depth: int, state: str = "s") -> tuple[float, bool]:
    found = states.score([state], depth)
    return float(found.score[0]), bool(found.open[0])


def test_counts_are_of_trajectories_and_fade() -> None:
    states = StateStatistics(settings_of())
    finish(states, ["a", "b", "a"], True)
    assert states.count("a") == states.count("b") == (1, 1) and states.finished == 1
    states = counted(8, 4, state_decay=0.5)
    states.end_iteration()
    assert states.count("s") == (4.0, 2.0) and states.finished == 8, "the run's totals stay"


def test_names_of_states_and_how_many_are_known() -> None:
    everywhere, per_task = settings_of(), settings_of(state_scope="task")
    names = {state_key(task, "You are in a room", everywhere) for task in ("one", "two")}
    assert len(names) == 1 and state_key("one", "Another room", everywhere) not in names
    assert state_key("one", "You are in a room", per_task) != state_key("two", "You are in a room", per_task)
    states = StateStatistics(settings_of(), max_states=2)
    finish(states, ["a", "b"], True)
    finish(states, ["a"], False)
    finish(states, ["c"], True)
    assert [states.count(key) for key in "abc"] == [(2, 1), (0, 0), (1, 1)]
    assert len(states) == 2 and states.finished == 3


def test_counts_and_rates_survive_json() -> None:
    states = StateStatistics(settings_of(), max_states=3)
    for number, path in enumerate((["a", "b"], ["c", "a"], ["b"])):
        finish(states, path, number == 1)
    other = StateStatistics(settings_of(), max_states=3)
    other.load_json(json.loads(json.dumps(states.to_json())))
    for each in (states, other):
        finish(each, ["d"], True)
    assert other.to_json() == states.to_json()
    assert states.count("c") == (0, 0), "the oldest went, in both"
    assert other.solved == states.solved == 2
    states, other = chain_of_three(), StateStatistics(settings_of(score_rate="chain", gamma=0.5))
    finish(states, ["a", "b", "won"], True)
    other.load_json(json.loads(json.dumps(states.to_json())))
    assert other.to_json() == states.to_json()
    assert other.score(["a"], 4).score == pytest.approx(states.score(["a"], 4).score, abs=1e-12)


def chain_of_three(**keys: object) -> StateStatistics:
    """Sampled at a: to b twice, lost once; at b: won once. No trajectory is counted."""
    states = StateStatistics(settings_of(score_rate="chain", gamma=0.5, **keys))
    states.observe("a", Outcomes(("b", "b", "lost"), (False, False, True), (False, False, False)))
    states.observe("b", Outcomes(("won",), (True,), (True,)))
    return states


#: V(b) = (1 + V̄/2)/2 and V(a) = (2·V(b)/2 + V̄/2)/4 with V̄ = (3·V(a) + V(b))/4 = 14/51.
VALUE_A, VALUE_B = 1 / 8 + 3 / 16 * 14 / 51, 1 / 2 + 1 / 4 * 14 / 51


def test_rates_of_the_chain_stand_where_shares_of_trajectories_stood() -> None:
    """S = t^(-α·V): no trajectory is counted here, and yet a and b have rates; an unseen state has S = 1."""
    states = chain_of_three()
    assert states.count("b") == (0, 0) and states.visits("a") == 3.0
    found = states.score(["a", "b", "unseen"], 4)
    assert found.score == pytest.approx([4**-VALUE_A, 4**-VALUE_B, 1.0], abs=1e-4)
    assert found.open.all()


def test_progress_on_rates_of_the_chain() -> None:
    """S(a) at depth 2 less S(s') at depth 3; an unseen state has V(a), a solved end S = 0, a lost one S = 1."""
    outcomes = Outcomes(("b", "unseen", "won", "lost"), (False, False, True, True), (False, False, True, False))
    here = 2**-VALUE_A
    expected = [here - 3**-VALUE_B, here - 3**-VALUE_A, here, here - 1.0]
    assert chain_of_three().score_difference("a", 2, outcomes) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("gate", ["count", "score"])
def test_the_gate_of_rates_of_the_chain_is_that_of_the_counts(gate: str) -> None:
    states = chain_of_three(score_gate=gate)
    for _ in range(10):
        finish(states, ["a"], False)
    found = states.score(["a", "b"], 4)
    assert found.open.tolist() == [False, True]
    assert found.score == pytest.approx([4**-VALUE_A if gate == "count" else 0.0, 4**-VALUE_B], abs=1e-4)


def test_a_path_gains_where_it_went_better_than_the_chain_expected() -> None:
    """γ = ½ over a, b, won: ½ - V(a), 1 - V(b); off: nothing at all."""
    path, states = ["a", "b", "end"], chain_of_three(path_weight=1.0)
    expected = [0.5 - VALUE_A, 1 - VALUE_B]
    assert states.path_gains(path, True, True) == pytest.approx(expected, abs=1e-4)
    assert chain_of_three(path_weight=0.0).path_gains(path, True, True).size == 0


@pytest.mark.parametrize("terminated", [True, False])
def test_steps_of_a_failed_path(terminated: bool) -> None:
    """All: γ = ½, λ = 0.95: A_b = -V(b), A_a = ½·V(b) - V(a) + ½·0.95·A_b; or the last where it ended."""
    path, last = ["a", "b", "end"], -VALUE_B
    whole = chain_of_three(path_weight=1.0).path_gains(path, False, terminated)
    assert whole == pytest.approx([0.5 * VALUE_B - VALUE_A - 0.475 * VALUE_B, last], abs=1e-4)
    found = chain_of_three(path_weight=1.0, path_failures="last").path_gains(path, False, terminated)
    assert found == pytest.approx([last] if terminated else [], abs=1e-4)


def test_the_difference_knows_how_many_turns_are_left() -> None:
    """With 40 turns at most: at depth 39 b may still end solved, at 40 no state is worth anything any more."""
    states, outcomes = chain_of_three(), Outcomes(("b", "won"), (False, True), (False, True))
    early, late = states.value_difference("a", 2, outcomes), states.value_difference("a", 40, outcomes)
    assert early == pytest.approx([0.5 * VALUE_B - VALUE_A, 1 - VALUE_A], abs=1e-4)
    assert late == pytest.approx([0.0, 1.0], abs=1e-4), "no step sampled at a ended solved: V with one turn left is 0"
