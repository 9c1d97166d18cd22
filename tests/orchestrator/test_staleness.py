"""How many updates ago the steps were sampled that an update learns from."""

from collections import Counter

import pytest
from algorithms.handmade import episode

from rl_agents.data.samples import build_samples
from rl_agents.orchestrator.rollout_batch import staleness_metrics, updates_behind


@pytest.mark.parametrize("layout", ["merged", "per_step"])
def test_every_learned_step_counts_once_from_the_version_of_its_first_token(layout: str) -> None:
    episodes = [episode(0, [0.0, 1.0, 0.0], lengths=[2, 3, 1]), episode(0, [0.0], lengths=[4])]
    for step, version in zip([*episodes[0].steps, *episodes[1].steps], [5, 6, 7, 3], strict=True):
        step.policy_version = version
    assert updates_behind(build_samples(episodes, layout), episodes, 7) == Counter({2: 1, 1: 1, 0: 1, 4: 1})
    assert updates_behind(build_samples(episodes[1:], layout), episodes[1:], 7) == Counter({4: 1})


def test_mean_percentile_and_maximum() -> None:
    metrics = staleness_metrics(Counter({0: 90, 1: 4, 3: 6}))
    assert metrics["rollout/staleness_mean"] == pytest.approx(0.22)
    assert (metrics["rollout/staleness_p95"], metrics["rollout/staleness_max"]) == (3.0, 3.0)
    assert staleness_metrics(Counter()) == {}
