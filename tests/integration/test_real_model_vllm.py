"""The pretrained model in vLLM: what it samples has the log-probabilities that the learner computes."""

from pathlib import Path

import pytest

from rl_agents.trainer.algorithm import AgentAlgorithm, AgentConfig

pytestmark = [pytest.mark.rllib, pytest.mark.usefixtures("memory_goes_back")]
#: Largest difference of a log-probability in float32.
TOLERANCE = 1e-3


def learned(algo: AgentAlgorithm) -> dict[str, float]:
    metrics = algo.train()["agent"]
    assert metrics["actor/grad_norm"] > 0, "nothing was learned, so nothing was compared"
    return {name: value for name, value in metrics.items() if not name.startswith(("timing_s/", "perf/"))}


def test_vllm_samples_what_the_learner_scores(ray_session: None, smollm2_dir: Path) -> None:
    """Before and after an update of its weights, in its actor."""
    pytest.importorskip("vllm", reason="vLLM is not installed")
    env = "gymnasium:benchmarks.treasure:Treasure"  # which a node finds, too; untrained, it earns nothing there
    keys = {
        "model": str(smollm2_dir), "engine": "vllm", "tasks_per_iteration": 2, "group_size": 2, "lr": 2e-5,
        "max_response_tokens": 6, "max_model_len": 256, "minibatches": 1, "num_env_runners": 1,
        "entropy_coef": 0.01,
    }  # fmt: skip
    algo = AgentConfig().environment(env).training(**keys).build_algo()
    try:
        gaps = [learned(algo)["rollout_corr/logprob_diff_max"] for _ in range(2)]
    finally:
        algo.stop()
    assert max(gaps) < TOLERANCE
