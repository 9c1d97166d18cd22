"""``engine=auto`` follows the measurements: it picks torch only for model and context sizes where torch was faster."""

import json

from benchmarks.engine_choice import ENVS
from benchmarks.report import RESULTS
from rl_agents.envs.base import starter_spec
from rl_agents.trainer.engine_choice import TORCH_CONTEXT, TORCH_PARAMETERS


def test_the_rule_ends_where_the_measurement_does() -> None:
    cases = json.loads((RESULTS / "engine_choice.json").read_text(encoding="utf-8"))["cases"]
    for env in ENVS:
        assert {f"{env}, {size}" for size in ("2 M", "6 M", "20 M")} <= cases.keys()
    assert all(figures["vllm over torch"]["min"] > 1 for figures in cases.values())
    largest = max(figures["parameters"] or 0 for figures in cases.values())
    assert largest <= TORCH_PARAMETERS < 1.05 * largest
    assert max(starter_spec(env).defaults["max_model_len"] for env in ENVS) == TORCH_CONTEXT
