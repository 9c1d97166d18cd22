"""The exact worlds: values worked by hand, gradients against differences, samplers against probabilities."""

import numpy as np
import pytest
from algorithms.handmade import per_step, settings_of

from benchmarks.exact_worlds.__main__ import ARMS, step_cosine
from benchmarks.exact_worlds.learn import budget_of
from benchmarks.exact_worlds.methods import chain_of
from benchmarks.exact_worlds.walks import Budget, Sampler, Steps
from benchmarks.exact_worlds.world import World, policy
from benchmarks.exact_worlds.worlds import WORLDS
from benchmarks.report import load
from rl_agents.algorithms.chain_gae import ChainCritic as Memory
from rl_agents.data.samples import build_samples
from rl_agents.data.trajectory import Step, Trajectory


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
    [("slippery", 0.0, 3, 0.95, 0.0), ("key-door", 0.3, 7, 0.95, 0.0), ("key-door", 0.3, 7, 0.7, 2.0)],
)
def test_the_chain_as_critic_is_that_of_the_algorithm(name, imitate, iterations, lam, corrected) -> None:
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


@pytest.mark.parametrize("name", ["grpo", "gigpo", "hgpo", "steppo", "chain λ=0", "chain λ=0.95, solved again"])
def test_the_accuracy_on_file_is_that_of_the_code(name: str) -> None:
    recorded = load("exact_worlds")
    found = step_cosine(WORLDS["traps"](), ARMS[name].method, runs=recorded["seeds"])
    assert found == pytest.approx(recorded["worlds"]["traps"][name]["step_cosine"], abs=1e-3)
