"""The exact worlds: values worked by hand, gradients against differences, samplers against probabilities."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from algorithms.handmade import per_step, settings_of

from benchmarks.exact_worlds.__main__ import kept
from benchmarks.exact_worlds.arms import ARMS
from benchmarks.exact_worlds.learn import budget_of
from benchmarks.exact_worlds.methods import ChainCritic, chain_of
from benchmarks.exact_worlds.walks import Budget, Sampler, Steps, episodes
from benchmarks.exact_worlds.world import (
    LOST,
    WON,
    World,
    build,
    exact_gradient,
    gradient,
    occupancy,
    policy,
    success,
    values,
)
from benchmarks.exact_worlds.worlds import WORLDS
from rl_agents.algorithms.chain_gae import ChainCritic as Memory
from rl_agents.data.samples import build_samples
from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.rollout.tree_search.states import Outcomes, StateChain


def three_states() -> World:
    """0: a gamble on 1, or 2 for sure; 1: won or lost; 2: won in one of five times, or round again."""

    def step(state: tuple[int, ...], action: int) -> object:
        if state == (0,):
            return [(0.5, (1,)), (0.5, LOST)] if action == 0 else (2,)
        if state == (1,):
            return WON if action == 0 else LOST
        return [(0.2, WON), (0.8, LOST)] if action == 0 else state

    return build("three", [(0,)], 2, step, horizon=3, start=0.3)  # type: ignore[arg-type]


def even(world: World, runs: int = 1) -> np.ndarray:
    return np.full((runs, world.states, world.actions), 1 / world.actions)


def test_values_by_hand() -> None:
    """π = 1/2: V_2 = (0, .5, .1), V_1 = (.., .5, .5·.2 + .5·.1), V_0(0) = .5·(.5·.5) + .5·.15."""
    world = three_states()
    found = values(world, even(world))
    assert found.values[2, 0] == pytest.approx([0.0, 0.5, 0.1])
    assert found.values[1, 0, 1:] == pytest.approx([0.5, 0.15])
    assert found.values[0, 0, 0] == pytest.approx(0.2)
    assert found.advantages[0, 0, 0] == pytest.approx([0.05, -0.05])
    assert success(world, even(world)) == pytest.approx([0.2])
    assert occupancy(world, even(world))[:, 0] == pytest.approx(np.array([[1, 0, 0], [0, 0.25, 0.5], [0, 0, 0.25]]))


def test_the_gradient_is_that_of_success() -> None:
    world = WORLDS["loops"]()
    exact = exact_gradient(world, policy(world, world.weights[None]))[0]
    for part, action in ((0, 0), (3, 1), (12, 3)):
        nudge = np.zeros_like(world.weights)
        nudge[part, action] = 1e-4
        up, down = (success(world, policy(world, (world.weights + sign * nudge)[None]))[0] for sign in (1, -1))
        assert exact[part, action] == pytest.approx((up - down) / 2e-4, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("name", list(WORLDS))
def test_first_policies_succeed_as_often_as_they_should(name: str) -> None:
    world = WORLDS[name]()
    assert world.chances.sum(axis=-1) == pytest.approx(np.ones((world.states, world.actions)))
    start = success(world, policy(world, world.weights[None]))[0]
    assert start == pytest.approx({"deduction": 0.35, "taxi": 0.6}.get(name, start), abs=1e-3)
    assert name == "taxi" or 0.015 < start < 0.36


def test_sampled_gradients_have_the_exact_one_as_their_mean() -> None:
    """Σ (R - V_0)·∇log π over whole episodes is unbiased."""
    world, runs = three_states(), 4000
    chosen = policy(world, np.repeat(world.weights[None], runs, axis=0))
    steps = Sampler(world, chosen, np.random.default_rng(0)).one_group(np.arange(runs), 8)
    ends = np.flatnonzero(steps.following < 0)
    won = steps.solved(world)[ends][np.searchsorted(ends, np.arange(len(steps)))]
    ascents = gradient(world, chosen, steps.run, steps.state, steps.action, (won - 0.3) / 8)
    exact = exact_gradient(world, chosen[:1])[0]
    error = ascents.std(axis=0) / np.sqrt(runs)
    assert (np.abs(ascents.mean(axis=0) - exact) < 4 * error + 1e-12).all()
    assert np.abs(exact).max() > 10 * error.max()


def test_the_critic_is_the_products_chain() -> None:
    world = WORLDS["slippery"]()
    chosen = policy(world, world.weights[None])
    budget = Budget(500, np.full(1, 500.0))
    steps = episodes(Sampler(world, chosen, np.random.default_rng(2)), budget, 4)
    critic, chain = ChainCritic(world, 1, gamma=0.95, keep=1.0), StateChain(0.95)
    critic.count(steps)
    _observe(chain, world, steps)
    met = np.unique(steps.state)
    found = critic.values(np.zeros(met.size, dtype=np.int64), met)
    assert found == pytest.approx(chain.values([str(state) for state in met]), abs=1e-4)
    assert found.max() > found.min() + 0.01


def _observe(chain: StateChain, world: World, steps: Steps) -> None:
    for i in range(len(steps)):
        outcome = Outcomes((str(steps.after[i]),), (bool(steps.ended[i]),), (bool(steps.solved(world)[i]),))
        chain.observe(str(steps.state[i]), outcome)


def test_curves_move_and_the_budget_is_kept() -> None:
    world = WORLDS["traps"]()
    curve = ARMS["chain λ=0.9"].curve(world, seeds=6, iterations=15)
    assert curve.success[0] == pytest.approx(np.full(6, 0.1), abs=1e-3)
    assert (curve.success[-1] > 0.5).all()
    assert curve.steps[-1] == 15 * budget_of(world)


def test_3spo_learns_where_its_published_reading_does_not() -> None:
    """traps: success starts at 0.1; dividing by the siblings' deviation and rewarding closed states ends lower."""
    world = WORLDS["traps"]()
    learned, published = (
        ARMS[name].curve(world, seeds=1, iterations=8).success[-1, 0] for name in ("3spo", "published")
    )
    assert learned > 0.4 > published


def test_results_are_added_to_and_seeds_are_not_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.exact_worlds.__main__.RESULTS", tmp_path)
    assert kept("none", 4) == {}
    (tmp_path / "some.json").write_text('{"seeds": 4, "worlds": {"traps": {}}}')
    assert kept("some", 4)["worlds"] == {"traps": {}}
    with pytest.raises(SystemExit, match=r"some\.json has 4 seeds, not 8: --seeds 4, or another --name"):
        kept("some", 8)


def played(world: World, steps: Steps) -> list[Trajectory]:
    """Convert episodes to those of a run."""
    found: dict[int, Trajectory] = {}
    names, solved = world.names.tolist(), steps.solved(world)
    for n, (group, number, state) in enumerate(zip(steps.group, steps.episode, steps.state, strict=True)):
        trajectory = found.setdefault(int(number), Trajectory("task", int(group), 0, 0, terminated=True))
        name, step = str(names[state]), len(trajectory.steps)
        trajectory.steps.append(Step([step], [1], [0.0], 0, "stop", name, name, "", float(solved[n])))
        trajectory.success |= bool(solved[n])
    return list(found.values())


@pytest.mark.parametrize(
    ("name", "imitate", "iterations", "lam", "corrected"),
    [("slippery", 0.0, 3, 0.95, 0.0), ("key-door", 0.0, 3, 0.95, 0.0), ("slippery", 0.3, 7, 0.95, 0.0),
     ("key-door", 0.3, 7, 0.95, 0.0), ("slippery", 0.0, 3, 0.7, 2.0), ("key-door", 0.3, 7, 0.7, 2.0)],
)  # fmt: skip
def test_the_chain_as_critic_is_that_of_the_algorithm(
    name: str, imitate: float, iterations: int, lam: float, corrected: float
) -> None:
    """The advantages of episodes, and of replayed successes from the last four iterations, are equal."""
    world = WORLDS[name]()
    sampler = Sampler(world, policy(world, world.weights[None]), np.random.default_rng(0))
    again = {"success_replay": 4, "success_replay_weight": imitate} if imitate else {"success_replay": 0}
    method, critic = (
        chain_of(lam=lam, imitate=imitate, corrected=corrected)(world, 1),
        Memory(settings_of("chain-gae", whiten=False, gae_lambda=lam, transition_prior=corrected, **again)),
    )
    budget, largest, solved = Budget(5 * budget_of(world), np.zeros(1)), 0.0, list[int]()
    for iteration in range(iterations):
        budget.renew()
        batch = method(sampler, budget)
        episodes_ = played(world, batch.steps)
        own = len(episodes_) - (old := len(critic.again(iteration)))
        assert old == sum(solved[-4:])
        solved.append(sum(trajectory.success for trajectory in episodes_[:own]) if imitate else 0)
        rows = build_samples([*episodes_[:own], *(kept.trajectory for kept in critic.again(iteration))], "merged")
        for row in rows:
            row.again = row.trajectory >= own
        critic.credit(rows, [*episodes_[:own], *(kept.trajectory for kept in critic.again(iteration))])
        critic.keep(iteration, [""] * own)
        assert np.array(per_step(rows)) == pytest.approx(batch.advantages * batch.steps.reach, abs=2e-3)
        largest = max(largest, np.abs(batch.advantages).max())
    assert largest > 0.1 and (sum(solved[:2]) > 0) == bool(imitate)
