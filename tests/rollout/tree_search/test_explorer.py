"""The search on a hand-drawn world, node by node: order, counts, scores, rewards, bounds, and going on after a stop."""

import dataclasses
import json
import math
from typing import ClassVar

import pytest
from rollout.tree_search.drawn import CONTEXT, LIMITS, Copied, Drawn, World, explorer_of

from rl_agents.algorithms.three_spo import StateStatistics
from rl_agents.rollout.tree_search import explorer as explorers
from rl_agents.rollout.tree_search.explorer import Explorer, SearchError
from rl_agents.rollout.tree_search.iteration import run_iteration
from rl_agents.rollout.tree_search.saved import explorer_to_json, load_explorer
from rl_agents.rollout.tree_search.states import Outcomes, state_key
from rl_agents.rollout.tree_search.tree import Search


def place(search: Search) -> str:
    return search.current.answer.observation if search.current else "-"


def waiting(search: Search) -> list[str]:
    return [f"{node.answer.observation}@{node.depth}" for node in search.frontier]


def counts(explorer: Explorer, *states: str) -> list[tuple[float, float]]:
    known = explorer.states
    assert isinstance(known, StateStatistics)
    return [known.count(named(explorer, state)) for state in states]


def named(explorer: Explorer, state: str) -> str:
    return state_key("house", state, explorer.settings)


def finish(explorer: Explorer, *states: str, success: bool, times: int = 10) -> None:
    for state in states:
        for _ in range(times):
            explorer.states.finish([named(explorer, state)], success)


def rewards(samples: list) -> list[float]:
    return [t.steps[0].reward for t in samples]


def test_the_hand_drawn_world_node_by_node() -> None:
    explorer, world = explorer_of(), World()

    (request,), tick = world.tick(explorer)  # hall, depth 1, unseen: S = 1, n = 3; left, loop, right
    (search,) = explorer.searches
    assert (request.score, request.rollouts, len(request.spec.seeds)) == (1.0, 3, 3)
    # omega(0) = 1/2: novelty alone; the loop back to the hall is not novel.
    assert rewards(tick.samples) == [0.5, 0.5, 0.0]
    assert [t.steps[0].action for t in tick.samples] == ["left", "right", "loop"]
    assert {(t.group_id, t.terminated) for t in tick.samples} == {(request.spec.group_id, True)}
    assert not tick.finished and place(search) == "attic"
    assert waiting(search) == ["hall@2", "barn@2"]  # the better one is popped first

    (request,), tick = world.tick(explorer)  # attic, depth 2, unseen: jump, door, wait
    assert (request.score, request.rollouts) == (1.0, 3)
    assert [t.steps[0].action for t in tick.samples] == ["door", "jump", "wait"]
    assert rewards(tick.samples) == [1.0, 0.5, 0.0]
    assert [t.facts["search"] for t in tick.samples] == [{"score": 1.0, "rollouts": 3}] * 3, "for the pool"
    assert tick.finished[0].facts["search"] == {"scores": [1.0, 1.0], "rollouts": [3, 3]}
    assert [(t.success, t.end_cause, len(t.steps)) for t in tick.finished] == [
        (True, "terminated", 2),
        (False, "terminated", 2),
    ]
    assert [step.action for step in tick.finished[0].steps] == ["left", "door"]
    assert tick.finished[0].episode_return == 1.0, "paths keep the environment's rewards"
    assert counts(explorer, "hall", "attic", "won", "lost", "barn") == [(2, 1), (2, 1), (1, 1), (1, 0), (0, 0)]
    assert place(search) == "attic" and search.current is not None and search.current.depth == 3

    (request,), tick = world.tick(explorer)  # attic again, depth 3, (2, 1): S = 3^-1/2, n = ceil(3 S) = 2
    score = math.exp(-math.log(3) * 1 / (2 + 1e-6))
    assert (request.score, request.rollouts) == (pytest.approx(score, abs=1e-12), 2)
    assert tick.finished[0].facts["search"]["scores"] == [1.0, 1.0, request.score]
    omega = 0.5 * math.exp(-0.1 * 2)
    expected = [omega + (0.5 - omega) * score + 0.5, omega + (0.5 - omega) * (score - 1.0)]
    assert rewards(tick.samples) == pytest.approx(expected, abs=1e-12)
    assert counts(explorer, "hall", "attic", "won", "lost") == [(4, 2), (4, 2), (2, 2), (2, 0)]
    assert place(search) == "barn" and waiting(search) == ["hall@2"], "backtracked to the better state"
    assert explorer.counts.backtracks == 1

    (request,), tick = world.tick(explorer)  # barn, unseen: left, left, jump; all are new states for it
    assert request.rollouts == 3 and rewards(tick.samples) == [0.5, 0.5, 0.5]
    assert explorer.counts.skipped == 1 and waiting(search) == ["hall@2"], "the second left is not entered"
    assert place(search) == "attic"
    assert counts(explorer, "barn", "hall", "lost") == [(1, 0), (5, 2), (3, 0)]

    (request,), tick = world.tick(explorer)  # attic, depth 3, (4, 2)
    assert request.rollouts == 2 and [t.success for t in tick.finished] == [True, False]
    assert [t.member for t in tick.finished] == [5, 6]
    assert place(search) == "hall" and explorer.counts.backtracks == 2


def test_replay_and_snapshot_give_the_same_tree() -> None:
    runs = []
    for make_env, branching in ((Copied, "snapshot"), (Copied, "replay"), (Drawn, "auto")):
        explorer, world = explorer_of(), World(make_env, branching)  # type: ignore[arg-type]
        seen = []
        for _ in range(8):
            requests, tick = world.tick(explorer)
            seen.append(([(r.spec.point.actions, r.spec.seeds) for r in requests], tick))
        runs.append((seen, explorer_to_json(explorer)))
        replayed = explorer.counts.replayed_steps
        assert (replayed == 0) == (branching == "snapshot"), "only replay walks again"
    assert runs[0] == runs[1] == runs[2]


@pytest.mark.parametrize("keys", [{}, {"reading": "learned", "group_size": 3, "search_max_finished": 8}])
def test_a_search_goes_on_exactly_after_a_stop_between_any_two_ticks(keys: dict) -> None:
    def ticks(explorer: Explorer, number: int) -> list:
        # A world remembers what it said to a prompt; a fresh one for every tick has nothing to remember.
        return [World().tick(explorer)[1] for _ in range(number)]

    whole = explorer_of(("house", "home"), tasks_per_iteration=2, **keys)
    straight = ticks(whole, 9)
    for stop in range(1, 9):
        first = explorer_of(("house", "home"), tasks_per_iteration=2, **keys)
        before = ticks(first, stop)
        saved = json.loads(json.dumps(explorer_to_json(first)))
        second = explorer_of(("house", "home"), tasks_per_iteration=2, **keys)
        load_explorer(second, saved)
        assert explorer_to_json(second) == explorer_to_json(first)
        assert before + ticks(second, 9 - stop) == straight, stop
        assert explorer_to_json(second) == explorer_to_json(whole)
    finished = [t for tick in straight for t in tick.finished]
    assert whole.states.finished == len(finished), "no trajectory is counted twice"
    assert len({(t.group_id, t.member) for t in finished}) == len(finished)


def test_a_state_with_one_rollout_is_walked_through_without_an_update() -> None:
    explorer, world = explorer_of(score_alpha=50.0), World(says={"hall": ["left"], "attic": ["door"]})
    finish(explorer, "hall", "attic", success=True)
    (first,), root = world.tick(explorer)
    assert (first.score, first.rollouts) == (1.0, 3), "at depth 1 S is 0 or 1"
    (second,), tick = world.tick(explorer)
    assert second.rollouts == 1 and len(second.spec.seeds) == 1
    assert root.samples and not tick.samples, "no update"
    assert [t.success for t in tick.finished] == [True]
    assert explorer.metrics()["search/rollouts_1"] == 0.5


def learned(**keys: object) -> Explorer:
    return explorer_of(reading="learned", group_size=3, gamma=1.0, search_max_finished=8, **keys)


def test_the_chain_counts_every_sample_whether_or_not_it_is_followed() -> None:
    explorer, world = learned(novelty="none"), World()
    world.tick(explorer)  # hall: left, loop, right
    world.tick(explorer)  # attic: jump, door, wait
    known, attic = explorer.states, named(explorer, "attic")
    assert isinstance(known, StateStatistics) and known.chain is not None
    assert known.visits(attic) == 3.0, "sampled steps, not trajectories"
    assert known.rates([attic], 1)[0] == pytest.approx(0.5, abs=0.01), "two of three steps end, one of them solved"
    (_,), tick = world.tick(explorer)  # attic again, n = 2: door and jump, half of 1 - V and 0 - V
    assert rewards(tick.samples)[:2] == pytest.approx([0.25, -0.25], abs=0.01)


@pytest.mark.parametrize(("gate", "mean"), [("score", 2 / 3), ("count", 1.0)])
def test_a_closed_state_is_dropped_and_the_next_one_taken(gate: str, mean: float) -> None:
    explorer, world = explorer_of(score_gate=gate), World()
    finish(explorer, "attic", success=False)
    world.tick(explorer)
    (search,) = explorer.searches
    assert place(search) == "attic"
    (request,), _ = world.tick(explorer)
    assert request.spec.point.anchor == "barn"
    assert explorer.counts.rollouts == [3, 0, 3] and explorer.counts.backtracks == 1
    assert explorer.metrics()["search/score_mean"] == pytest.approx(mean), "S of a closed state is 0, by equation 1"


def test_a_dropped_path_has_not_ended_and_no_state_counts_it() -> None:
    """(25, 20) at depth 4: S = 4^-0.8 = 0.330; as a failure, the dropped path would have made it 4^-(20/26) = 0.344."""
    explorer, world = explorer_of(search_max_finished=1), World()
    finish(explorer, "hall", success=True, times=20)
    finish(explorer, "hall", success=False, times=5)
    finish(explorer, "attic", success=False)
    known, finished = explorer.states, explorer.states.finished
    assert isinstance(known, StateStatistics)
    world.tick(explorer)  # hall: left leads to the attic, which is closed
    explorer.select(world.expand)
    assert explorer.counts.rollouts == [3, 0] and explorer.counts.backtracks == 1, "of what was decided so far"
    assert known.score([named(explorer, "hall")], 4).score[0] == pytest.approx(0.330, abs=5e-4)
    assert counts(explorer, "hall") == [(25, 20)] and known.finished == finished


def test_without_backtracking_a_search_is_one_path() -> None:
    explorer, world = explorer_of(("house", "home"), search_backtrack=False), World()
    for _ in range(3):
        world.tick(explorer)
        assert not explorer.searches[0].frontier
    world.tick(explorer)
    assert explorer.searches[0].number == 1 and explorer.counts.backtracks == 0


def test_of_equal_siblings_one_is_entered() -> None:
    says = {"hall": ["left", "left", "right"], "attic": ["wait", "wait", "wait"], "barn": ["left"]}
    explorer, world = learned(novelty="none"), World(says=says)
    for expected in (["barn@2"], ["barn@2"], ["barn@2"]):
        world.tick(explorer)
        assert waiting(explorer.searches[0]) == expected, "one attic of two, and one of three"
    assert explorer.counts.skipped == 5 and place(explorer.searches[0]) == "attic", "the same pair, one step deeper"


@pytest.mark.parametrize(("ends", "ticks"), [(1, 2), (2, 3)])
def test_a_task_is_left_when_the_paths_that_were_followed_have_ended(ends: int, ticks: int) -> None:
    explorer, world = explorer_of(("house", "home"), search_max_finished=ends), World()
    for _ in range(ticks):
        assert world.tick(explorer)[0][0].search.number == 0
    assert world.tick(explorer)[0][0].search.number == 1
    assert explorer.counts.tasks_ended == 1


def test_a_sibling_that_ended_does_not_end_the_path_of_a_better_one() -> None:
    says = {"hall": ["left"], "attic": ["jump", "wait", "wait"]}
    explorer, world = learned(novelty="none", search_steps=50), World(says=says)
    explorer.settings.search_max_finished = 1
    explorer.states.observe(named(explorer, "attic"), Outcomes(("won",), (True,), (True,)))
    world.tick(explorer)
    _, tick = world.tick(explorer)
    assert [t.success for t in tick.finished] == [False], "somebody jumped"
    (search,) = explorer.searches
    assert place(search) == "attic" and search.ends == 0, "waiting is worth more than to be lost"


def test_limits_end_a_path_as_a_failure() -> None:
    says = {"hall": ["loop"], "attic": ["wait"]}
    explorer, world = explorer_of(), World(says=says, limits=dataclasses.replace(LIMITS, max_turns=2))
    world.tick(explorer)
    _, tick = world.tick(explorer)
    assert [(t.end_cause, t.truncated, t.success) for t in tick.finished] == [("max_turns", True, False)] * 3
    assert counts(explorer, "hall") == [(3, 0)]
    room = len(CONTEXT.template.opening("hall")) + 8
    world = World(says={"hall": ["left"]}, limits=dataclasses.replace(LIMITS, max_model_len=room))
    explorer = explorer_of()
    world.tick(explorer)
    _, tick = world.tick(explorer)
    assert [(t.end_cause, len(t.steps)) for t in tick.finished] == [("context_length", 1)]
    assert counts(explorer, "hall", "attic") == [(1, 0), (1, 0)] and not tick.samples, "the attic would go on"


def test_a_broken_action_ends_its_own_child_and_is_never_counted() -> None:
    says = {"hall": ["left", "fall", "right"], "attic": ["door"]}
    explorer, world = explorer_of(), World(says=says)
    _, tick = world.tick(explorer)
    assert [t.steps[0].action for t in tick.samples] == ["left", "right"]
    (broken,) = tick.finished
    assert broken.failed and broken.end_cause.startswith("env_error: KeyError") and not explorer.states.finished
    assert place(explorer.searches[0]) == "attic" and waiting(explorer.searches[0]) == ["barn@2"]


def test_all_tasks_of_a_tick_are_rewarded_before_any_is_counted() -> None:
    explorer, world = (
        explorer_of(("house", "home"), tasks_per_iteration=2),
        World(says={"hall": ["left"], "attic": ["door"]}),
    )
    for _ in range(2):
        requests, tick = world.tick(explorer)
    assert {request.search.task_id for request in requests} == {"house", "home"}
    assert rewards(tick.samples) == [1.0] * 6, "the second task did not see what the first one's children changed"
    assert counts(explorer, "attic") == [(6, 6)], "and the state is one for both tasks"


def test_the_budget_counts_sampled_actions_and_carries_over() -> None:
    explorer, world = explorer_of(search_steps=7), World()
    spent = []
    for _ in range(3):
        explorer.begin_iteration()
        while explorer.has_budget():
            world.tick(explorer)
        spent.append(len(explorer.counts.steps))
        explorer.end_iteration()
    assert sum(spent) - explorer.overdraft == 21 and 0 <= explorer.overdraft < 3
    assert explorer.iteration == 3


def test_when_every_start_state_is_closed_the_run_says_so() -> None:
    explorer, world = explorer_of(("house", "home")), World()
    finish(explorer, "hall", success=False)
    with pytest.raises(SearchError, match=r"start states of 4 tasks in a row are closed .* raise score_xi"):
        world.tick(explorer)


class Unbuilt(Drawn):
    def reset(self, **_: object) -> tuple[str, dict]:
        raise OSError("no such game file")


def test_when_start_states_break_in_a_row_the_iteration_gives_up_and_their_causes_are_kept() -> None:
    tasks = [f"house {number}" for number in range(1000)]
    explorer = explorer_of(tasks, tasks_per_iteration=2)
    for iteration in (1, 2):
        finished, metrics = run_iteration(explorer, lambda: False, World(Unbuilt).expand, lambda *_: {})
        assert len(finished) == explorers.PATIENCE and all(t.failed for t in finished), "not a thousand tasks"
        assert {t.end_cause.partition(" (")[0] for t in finished} == {"env_error: OSError: no such game file"}
        assert len({t.task_id for t in finished}) == explorers.PATIENCE and explorer.iteration == iteration
        assert metrics["actor/skipped_iterations"] == 1.0 and explorer.metrics()["search/sampled_steps"] == 0.0


class Moody(Copied):
    """Its first resets break."""

    left = 0

    def reset(self, **kwargs: object) -> tuple[str, dict]:
        Moody.left -= 1
        if Moody.left >= 0:
            raise OSError("the server is not up yet")
        return super().reset(**kwargs)  # type: ignore[arg-type]


def test_a_few_broken_start_states_only_cost_their_tasks() -> None:
    Moody.left = explorers.PATIENCE - 1
    explorer = explorer_of(["house", "home"], search_steps=6)
    finished, _ = run_iteration(explorer, lambda: False, World(Moody).expand, lambda *_: {})
    assert sum(t.failed for t in finished) == explorers.PATIENCE - 1 and explorer.metrics()["search/sampled_steps"] >= 6
    explorer = explorer_of([f"house {number}" for number in range(100)], tasks_per_iteration=2)
    finished, _ = run_iteration(explorer, lambda: False, World(Once).expand, lambda *_: {})
    assert explorers.PATIENCE <= len(finished) <= explorers.PATIENCE + 2 and all(t.failed for t in finished)


class Once(Drawn):
    """Can be looked at, and breaks as soon as somebody comes back to sample."""

    seen: ClassVar[set[int]] = set()

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[str, dict]:
        if seed in self.seen:
            raise OSError("gone")
        self.seen.add(seed or 0)
        return super().reset(seed=seed, options=options)


def test_metrics_say_what_the_search_did() -> None:
    explorer, world = explorer_of(), World()
    explorer.begin_iteration()
    for _ in range(4):
        world.tick(explorer)
    metrics = explorer.metrics()
    assert metrics["search/sampled_steps"] == 11 and metrics["search/env_steps"] == 10, "the two lefts ran once"
    assert metrics["search/states_known"] == 5 and metrics["search/frontier_size"] == 1
    assert metrics["search/unique_states_per_rollout"] == pytest.approx(5 / 11)
    assert metrics["search/rollouts_more"] == 1.0 and metrics["search/rollouts_0"] == 0.0
    assert metrics["search/score_mean"] == pytest.approx((3 + 3**-0.5) / 4, abs=1e-4)
    assert metrics["rollout/response_length_mean"] > 0
