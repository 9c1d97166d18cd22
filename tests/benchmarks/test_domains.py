"""The environments that one small model plays: a joint vocabulary, and equal numbers of tasks and demonstrations."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import gymnasium
import pytest

from benchmarks import domains, pivotrl
from benchmarks.grid import shared_keys
from rl_agents.envs import base


@pytest.mark.parametrize("panel", list(domains.PANELS))
def test_every_domain_is_demonstrated_in_words_of_the_one_vocabulary(panel: str) -> None:
    options, starter = domains.Panel(panel=panel), domains.STARTERS[panel]  # type: ignore[arg-type]
    tasks = domains.task_ids("train", options)
    assert len(set(Counter(task.partition(":")[0] for task in tasks).values())) == 1
    tokenizer = starter.build_tokenizer()
    for name in domains.PANELS[panel]:
        task = next(task for task in tasks if task.startswith(f"{name}:"))
        for observation, action in starter.demonstrate(task, random.Random(0), options):
            assert tokenizer.unk_token_id not in tokenizer(f"{observation} {action}")["input_ids"], (name, observation)


def test_a_task_is_played_in_its_own_environment() -> None:
    env = domains.make(domains.Panel(panel="five_domains"), 15)
    seen = {}
    for name in domains.PANELS["five_domains"]:
        task = next(task for task in domains.task_ids("test", domains.Panel(panel="five_domains")) if name in task)
        own = base.make_env(name, domains.DOMAINS[name].options, 15)
        seen[name] = env.reset(seed=3, options={"task_id": task})[0]
        assert seen[name] == own.reset(seed=3, options={"task_id": task.partition(":")[2]})[0]
    assert len(set(seen.values())) == 5


@pytest.fixture
def registered() -> Iterator[None]:
    domains.register()
    yield
    del base.ENVIRONMENTS[domains.SPEC.name]
    gymnasium.registry.pop(domains.SPEC.gym_id)


@pytest.mark.usefixtures("registered")
def test_the_starter_is_that_of_the_panel() -> None:
    for panel in domains.PANELS:
        assert base.starter_spec("domains", {"panel": panel}).defaults["env.panel"] == panel
    assert base.starter_spec("domains", {}).defaults["env.panel"] == "two_domains"


def test_the_arms_of_pivotrl_are_command_lines() -> None:
    arms = [*pivotrl.END_TO_END, *(arm for expert in pivotrl.EXPERTS for arm in pivotrl.expert_arms(expert, True))]
    assert shared_keys(arms, ["lr=1e-3"]) == {arm.name: ["lr=1e-3"] for arm in arms}
    assert all(pivotrl.DATA in " ".join(arm.flags) for arm in arms)
