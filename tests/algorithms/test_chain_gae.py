"""chain-gae: its numbers by hand, names of states, trees of calls, and what it remembers when."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trained
from algorithms.call_trees import step_advantage, trees, with_a_subagent
from algorithms.handmade import credited, episode, per_step, settings_of
from hypothesis import given, settings
from hypothesis import strategies as st
from trained import equal, policy_weights, train

from rl_agents.advantages import whiten_steps
from rl_agents.algorithms.chain_gae import ChainCritic, TransitionMeans, _joined, state_names
from rl_agents.data.samples import Row, build_samples
from rl_agents.data.step_table import StepTable
from rl_agents.data.trajectory import Trajectory
from rl_agents.errors import InputError
from rl_agents.store.reader import PoolReader, StoreQuery
from rl_agents.trainer import training_step
from rl_agents.trainer.algorithm import AgentAlgorithm

LAYOUTS = pytest.mark.parametrize("layout", ["merged", "per_step"])
KEYS: dict[str, Any] = {"gamma": 0.9, "gae_lambda": 0.5, "whiten": False, "transition_prior": 0.0}
#: a -> b -> c -> won; a -> b -> lost.
WON, LOST = episode(0, [0, 0, 1], anchors="abc"), episode(1, [0, 0], anchors="ab")
#: One prior step, V̄ = m: Vc = (1 + .9m)/2, Vb = (.9·Vc + .9m)/3, Va = (.9·2·Vb + .9m)/3, 5m = 2·Va + 2·Vb + Vc.
VALUES = {"a": 0.304926, "b": 0.316654, "c": 0.672400}
#: δ = -.019937, .288506, .3276 and -.019937, -.316654; A = δ + .45·A'.
ADVANTAGES = [0.176230, 0.435926, 0.3276, -0.162431, -0.316654]
#: What the chain's sweeps leave.
NEAR = 2e-4


def learned(critic: ChainCritic, episodes: list[Trajectory], layout: str = "merged", iteration: int = 0) -> list[Row]:
    """Learn from these episodes, and again from those that the critic remembers."""
    everything = [*episodes, *(kept.trajectory for kept in critic.again(iteration))]
    rows = build_samples(everything, layout)
    for row in rows:
        row.again = row.trajectory >= len(episodes)
    critic.credit(rows, everything)
    critic.keep(iteration, [f"i{iteration}.{n}" for n in range(len(episodes))])
    return rows


@LAYOUTS
def test_numbers_by_hand(layout: str) -> None:
    rows = credited("chain-gae", [WON, LOST], layout, **KEYS)
    assert per_step(rows) == pytest.approx(ADVANTAGES, abs=NEAR)
    found = {(row.trajectory, int(row.segments[j])): (row.values[j], row.returns[j]) for row in rows
             for j in np.flatnonzero(row.mask)}  # fmt: skip
    assert [found[0, step][0] for step in range(3)] == pytest.approx([VALUES[name] for name in "abc"], abs=NEAR)
    assert found[0, 1][1] == pytest.approx(VALUES["b"] + ADVANTAGES[1], abs=NEAR), "what the value should have been"


@LAYOUTS
def test_what_returns_said_beyond_is_added_by_transition(layout: str) -> None:
    """A^1 - A^.5: .328844 and -.142495 from a to b, .147420 from b to c;  b = .186349/(2 + 2), .147420/(1 + 2)."""
    rows = credited("chain-gae", [WON, LOST], layout, **{**KEYS, "transition_prior": 2.0})
    added = [0.046587, 0.049140, 0, 0.046587, 0]
    assert per_step(rows) == pytest.approx(np.add(ADVANTAGES, added), abs=NEAR)


def test_transitions_fade_and_steps_that_come_again_are_not_counted() -> None:
    critic = ChainCritic(
        settings_of("chain-gae", state_decay=0.5, success_replay=2, **{**KEYS, "transition_prior": 2.0})
    )
    learned(critic, [WON, LOST])
    learned(critic, [LOST], iteration=1)
    visits = [visits for _, _, visits, _ in critic.to_json()["transitions"]]
    assert visits == [0.5, 2.0], "from b to c once before, faded by half; from a to b twice before, and once"


def test_transitions_least_recently_visited_are_forgotten() -> None:
    means = TransitionMeans(prior=1.0, most=2)
    means.count([("a", "b"), ("b", "c"), ("a", "b"), ("c", "d")], [1.0, 1.0, 2.0, 4.0])
    assert means.corrections([("a", "b"), ("b", "c"), ("c", "d")]).tolist() == [1.0, 0.0, 2.0]


@LAYOUTS
def test_earlier_steps_fade_and_solved_episodes_come_again_and_are_not_counted_again(layout: str) -> None:
    """Half of the first batch, and one lost step at c, of 0 - V(c); G = .81, .9, 1 of the solved one.

    Vc = (.5 + .9m)/2.5 = .275567, Vb = (.45·Vc + .9m)/2 = .156461, Va = (.9·Vb + .9m)/2 = .164866, 3.5m = Va + Vb +
    1.5·Vc.
    """
    critic = ChainCritic(settings_of("chain-gae", state_decay=0.5, success_replay=1, **KEYS))
    learned(critic, [WON, LOST], layout)
    rows = learned(critic, [episode(2, [0], anchors="c")], layout, 1)
    expected = [-0.275567, *(0.3 * gain for gain in (0.645134, 0.743539, 0.724433))]
    assert per_step(rows) == pytest.approx(expected, abs=NEAR)
    assert critic.metrics() == {"chain/states_known": 3, "chain/visits_mean": 1.5, "success_replay/gain_share": 1}
    assert sum(weight for weight, *_ in critic.to_json()["states"].values()) == 3.5, "5 faded by half, and one"
    assert not any(row.again for row in learned(critic, [LOST], layout, 2)), "one iteration later it is forgotten"


def test_what_comes_again_is_in_the_unit_of_the_batch_and_never_pushed_down() -> None:
    """A/σ, without the mean that the batch's own steps lose."""
    plain, white = (
        ChainCritic(settings_of("chain-gae", success_replay=2, success_replay_weight=1.0, **{**KEYS, "whiten": whiten}))
        for whiten in (False, True)
    )
    batch = [LOST, episode(2, [0], anchors="c")]
    for critic in (plain, white):
        learned(critic, [WON, LOST])
    bare, scaled = (per_step(learned(critic, batch, iteration=1)) for critic in (plain, white))
    assert scaled[:3] == pytest.approx(whiten_steps(bare[:3]), abs=1e-5)
    assert scaled[3:] == pytest.approx(np.array(bare[3:]) / np.std(bare[:3], ddof=1), abs=1e-4) and min(bare[3:]) > 0


@pytest.mark.parametrize(
    ("own", "gained", "advantages"),
    [
        ([-1, 1], [0.5], [0.3 * 0.5 / np.sqrt(2)]),  # the deviation of -1 and 1
        ([0.0, 0.02], [0.5, 1.0], [0.3 * 0.5 / 0.04, 7.5]),  # 0.0141: at least 0.04
        ([0.0, 0.02], [5.0, 1.0], [7.5, 1.5]),  # rewards of another scale: at least 0.04·5
        ([0.0, 1e-3], [0.5], [0.15]),  # equal: not divided
        ([0.3], [0.5], [0.15]),
    ],
)
def test_the_deviation_of_what_comes_again_has_a_bound(own, gained, advantages) -> None:
    again = np.array([False] * len(own) + [True] * len(gained))
    parts = np.array([*own, *np.zeros(len(gained))]), np.array([*np.zeros(len(own)), *gained])
    found = _joined(*parts, again, settings_of("chain-gae"))[again]
    assert found == pytest.approx(advantages, rel=1e-6)


@given(st.lists(st.floats(-9, 9), max_size=4), st.lists(st.floats(0, 1e6), min_size=1, max_size=4))
def test_what_comes_again_is_bounded_whatever_the_batch(own: list[float], gained: list[float]) -> None:
    again = np.array([False] * len(own) + [True] * len(gained))
    parts = np.array([*own, *gained]), np.array([*own, *gained])
    found = _joined(*parts, again, settings_of("chain-gae"))[again]
    assert np.abs(found).max() <= 0.3 * max(25.0, max(gained)) + 1e-6


def test_what_went_worse_than_v_teaches_nothing() -> None:
    """A detour a, a, a, c is worth .9^3 at first; once a has led to the end at once for long, V(a) is above it."""
    critic = ChainCritic(settings_of("chain-gae", success_replay=1, **KEYS))
    short = [episode(n, [1], anchors="a") for n in range(40)]
    learned(critic, [*short, episode(40, [0, 0, 0, 1], anchors="aaac")])
    rows = learned(critic, short, iteration=1)
    found = per_step(rows)[len(short) :][-4:]
    assert found[0] == found[1] == 0.0 < found[3]
    assert 0 < critic.metrics()["success_replay/gain_share"] < 1


def test_sessions_of_a_pool_come_again_by_themselves() -> None:
    critic = ChainCritic(settings_of("chain-gae", success_replay=2, pool="runs/other/pool.sqlite", **KEYS))
    learned(critic, [WON, LOST])
    assert critic.again(1) == []


def test_what_is_not_kept_leaves_no_trace() -> None:
    critic = ChainCritic(settings_of("chain-gae", **{**KEYS, "transition_prior": 1e9}))
    rows = build_samples([WON, LOST], "merged")
    for _ in range(3):
        critic.credit(rows, [WON, LOST])
        assert per_step(rows) == pytest.approx(ADVANTAGES, abs=NEAR) and len(critic.chain) == 0
        assert critic.to_json()["transitions"] == []
    critic.keep(0, ["", ""])
    assert len(critic.chain) == 3


def test_what_is_remembered_travels_as_json() -> None:
    keys = {"state_decay": 0.7, "success_replay": 2, **KEYS, "transition_prior": 2.0}
    one, other = (ChainCritic(settings_of("chain-gae", **keys)) for _ in range(2))
    learned(one, [WON, LOST])
    other.load_json(json.loads(json.dumps(one.to_json())))
    again, there = (
        learned(critic, [LOST, episode(2, [0.25, 0.5], anchors="cb")], iteration=1) for critic in (one, other)
    )
    assert [row.again for row in there] == [False, False, True]
    assert [row.advantages.tobytes() for row in again] == [row.advantages.tobytes() for row in there]
    assert json.dumps(one.to_json()) == json.dumps(other.to_json())


def test_an_episode_that_was_cut() -> None:
    """It ended with nothing: Vb = (1 + .9m)/2, Va = (.9·Vb + .9m)/2, m = .807799.

    Or it goes on, from a state as good as b: Vb = (1 + .9·Vb + .9m)/2, m = 3.625.
    """
    cut = episode(0, [0, 1], anchors="ab", terminated=False, truncated=True)
    assert per_step(credited("chain-gae", [cut], **KEYS)) == pytest.approx([0.086491, 0.13649], abs=NEAR)
    on = credited("chain-gae", [cut], bootstrap_on_truncation=True, **KEYS)
    assert per_step(on) == pytest.approx([0.388125, 0.6125], abs=5 * NEAR)


def test_rewards_of_any_size_and_prices_enter_the_values() -> None:
    """One state, one step of reward 3 that could not be parsed, for 1: V = (2 + .9·V)/2, V = 1.818182; A = 2 - V."""
    found = episode(0, [3.0], anchors="a")
    found.steps[0].valid = False
    rows = credited("chain-gae", [found], invalid_action_penalty=1.0, **KEYS)
    assert per_step(rows) == pytest.approx([2 - 2 / 1.1], abs=NEAR)


def test_names_of_states() -> None:
    one, two = episode(0, [0, 1], anchors="ab"), episode(1, [0], anchors="a", task_id="other")
    two.steps[0].observation = "seen"
    rows = build_samples([one, two], "merged")
    table = StepTable.build(rows, [one, two])

    def names(**keys: str) -> list[str]:
        return state_names(table, [one, two], settings_of("chain-gae", **keys))

    first, second, third = names()
    assert first == third != second, "the anchor, whatever the task"
    assert len(set(names(state_scope="task"))) == 3
    assert names(state_key="observation")[2] != first == names(state_key="observation")[0]


@LAYOUTS
def test_a_tree_goes_on_where_a_report_is_read(layout: str) -> None:
    """A retry that was given up is not counted; a subagent's last state leads to the one that reads its report."""
    tree = with_a_subagent()
    for step, name in zip(tree.steps, "stxabc", strict=True):
        step.anchor = name
    critic = ChainCritic(settings_of("chain-gae", **KEYS))
    learned(critic, [tree], layout)
    states = critic.to_json()["states"].values()
    assert len(critic.chain) == 5 and sum(weight for weight, *_ in states) == 5
    ends = [rewards for _, rewards, following in states if not following]
    assert ends == [1.0], "only the last word ends"


@LAYOUTS
@settings(max_examples=30, deadline=None)
@given(st.lists(trees(), min_size=1, max_size=3), st.booleans())
def test_it_is_step_gae_over_the_chains_values(layout: str, found: list[Trajectory], bootstrap: bool) -> None:
    rows = credited("chain-gae", found, layout, bootstrap_on_truncation=bootstrap, invalid_action_penalty=0.3, **KEYS)
    values = {(row.trajectory, int(row.segments[j])): float(row.values[j]) for row in rows
              for j in np.flatnonzero(row.mask)}  # fmt: skip
    expected = []
    for number, trajectory in enumerate(found):
        own = [values.get((number, t), 0.0) for t in range(len(trajectory.steps))]
        expected += [
            step_advantage(trajectory, t, own, 0.9, 0.5, bootstrap, 0.3, own.__getitem__)
            for t in range(len(trajectory.steps)) if (number, t) in values
        ]  # fmt: skip
    assert per_step(rows) == pytest.approx(expected, abs=1e-5)


# --- in a run -----------------------------------------------------------------------------------------------------


def running(model_dir: Path, **keys: Any) -> Any:
    return trained.running(model_dir, **{"tasks_per_iteration": 6, "minibatches": 1, **keys, "algo": "chain-gae"})


def remembered(algo: AgentAlgorithm) -> ChainCritic:
    assert isinstance(algo.memory, ChainCritic)
    return algo.memory


def test_a_checkpoint_holds_what_is_remembered(beginner_model_dir: Path, tmp_path: Path) -> None:
    with running(beginner_model_dir) as algo:
        algo.train()
        algo.save_run_checkpoint(tmp_path / "000001")
        before = remembered(algo).to_json()
        algo.train()
        assert remembered(algo).to_json() != before
        algo.restore_run_checkpoint(tmp_path / "000001")
        assert remembered(algo).to_json() == before
        algo.restart_learners(None)
        assert len(remembered(algo).chain) == 0 and algo.iteration == 0, "learners that start over remember nothing"
        (tmp_path / "000001" / "memory.json").unlink()
        with pytest.raises(InputError, match=r"memory\.json is missing"):
            algo.restore_run_checkpoint(tmp_path / "000001")


SOLVED: dict[str, Any] = {"success_replay": 2, "tasks_per_iteration": 16}


def test_a_resumed_run_learns_from_the_same_episodes_again(beginner_model_dir: Path, tmp_path: Path) -> None:
    """One behind. Equal bit for bit, and the pool names what was learned from again without holding it twice."""
    keys = {"async_level": 1, "rollout_correction": "none", "old_logprobs": "engine"}
    with running(beginner_model_dir, **SOLVED, **keys) as whole:
        whole.open_pool(tmp_path / "pool.sqlite")
        train(whole, 2)
        whole.save_run_checkpoint(tmp_path / "000002")
        expected, weights = train(whole, 2), policy_weights(whole)
    assert all(metrics["success_replay/episodes"] > 0 for metrics in expected)

    second = AgentAlgorithm.from_checkpoint(tmp_path / "000002")
    second.open_pool(tmp_path / "pool.sqlite")
    assert train(second, 2) == expected and equal(policy_weights(second), weights)
    second.save_run_checkpoint(tmp_path / "000004")
    second.stop()
    with PoolReader(tmp_path / "pool.sqlite") as pool:
        born = {session.id: session.iteration for session in pool.sessions()}
        solved = {session.id for session in pool.sessions(StoreQuery(success=True))}
        batches = pool.batches()
    again = [batch for batch in batches if born[batch.session] < batch.iteration]
    assert len(born) == 4 * SOLVED["tasks_per_iteration"], "every episode is there once"
    assert {batch.session for batch in again} <= solved and again
    assert {batch.iteration - born[batch.session] for batch in again} == {1, 2}
    assert len([batch for batch in again if batch.iteration >= 2]) == sum(
        m["success_replay/episodes"] for m in expected
    )


def test_rollout_metrics_are_of_new_episodes_alone(beginner_model_dir: Path) -> None:
    """The second iteration, from the same weights in effect: with a rate of 0 both runs sample the same."""
    keys = {"lr": 0.0, "old_logprobs": "learner", "rollout_correction": "token_tis", "kl_coef": 0.01}
    found, solved = [], []
    for replay in (0, 2):
        with running(beginner_model_dir, **{**SOLVED, "success_replay": replay}, **keys) as algo:
            algo.train()
            solved = remembered(algo).again(1)
            found.append(algo.train()["agent"])
    one, other = found
    more = {name for name in other.keys() - one.keys() if not name.startswith("success_replay/")}
    shared = {name for name in one if name.startswith(("rollout/", "rollout_corr/", "chain/", "end_cause/", "env/"))}
    assert not more and shared and all(one[name] == other[name] for name in shared)
    for name in ("rollout_corr/logprob_diff_max", "actor/ratio_mean", "actor/entropy", "critic/explained_variance"):
        assert one[name] == pytest.approx(other[name], abs=1e-6), name
    tokens = sum(t.trajectory.response_tokens for t in solved)
    assert other["success_replay/episodes"] == len(solved) > 0
    assert other["success_replay/token_share"] == pytest.approx(tokens / (tokens + other["rollout/response_tokens"]))
    assert other["success_replay/staleness_mean"] == other["success_replay/staleness_max"] == 1
    assert other["rollout/staleness_max"] == 0


@pytest.mark.parametrize("old", ["engine", "learner"])
def test_the_ratio_of_what_comes_again_is_against_the_policy_that_sampled_it(beginner_model_dir, old, monkeypatch):
    """One large step in between: the ratio of the old tokens is what it made of them; that of the new ones is 1."""
    seen: list[tuple[list[Row], list[Trajectory]]] = []
    with running(beginner_model_dir, **SOLVED, lr=3e-3, old_logprobs=old, rollout_correction="none") as algo:
        keep = training_step.keep_batch

        def looked_at(run: Any, rows: Any, trajectories: Any, *rest: Any) -> None:
            seen.append((list(rows), list(trajectories)))
            keep(run, rows, trajectories, *rest)

        monkeypatch.setattr(training_step, "keep_batch", looked_at)
        algo.train()
        metrics = algo.train()["agent"]
    rows, trajectories = seen[1]
    before = {id(step): step for t in seen[0][1] for step in t.steps}
    for row in (row for row in rows if row.again):
        for step in trajectories[row.trajectory].steps:
            assert step is before[id(step)] and step.policy_version == 0
        told = [logprob for step in trajectories[row.trajectory].steps for logprob in step.logprobs]
        denominator = row.logprobs if row.old_logprobs is None else row.old_logprobs
        assert denominator[row.mask > 0].tolist() == pytest.approx(told, abs=1e-7)
    assert abs(metrics["actor/ppo_kl"]) < 1e-4 < abs(metrics["success_replay/ppo_kl"])
    assert metrics["rollout_corr/logprob_diff_max"] < 1e-4, "which is the engine's, and of new tokens"
