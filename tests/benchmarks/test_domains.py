"""The environments that one small model plays: a joint vocabulary, and equal numbers of tasks and demonstrations."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from benchmarks import domains
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
