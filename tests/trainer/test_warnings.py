"""What spoils a run without breaking it: refused, or said in its first lines."""

from pathlib import Path
from typing import Any

import pytest

from rl_agents.algorithms import Settings
from rl_agents.config import load_recipe
from rl_agents.errors import InputError
from rl_agents.inference.model_shape import ModelShape
from rl_agents.trainer.doubtful_keys import cautions, rate_caution
from rl_agents.trainer.model_note import usual_rates
from rl_agents.trainer.resolve import resolve

PRESETS = sorted((Path(__file__).parents[2] / "tune_configs" / "recipes").glob("*.yaml"))


def resolved(**keys: Any) -> Settings:
    return resolve(Settings.from_dict({"env": "guess_numbers", **keys}))


def test_a_checkpoint_is_evaluated_with_any_nucleus() -> None:
    old = {**resolved(algo="grpo").to_dict(), "top_p": 0.95}
    assert resolve(Settings.restored(old)).top_p == 0.95


NARROW = {"algo": "gspo", "dtype": "bfloat16", "clip_low": 3e-4, "clip_high": 4e-4}
STREAM = {"stream": True, "num_env_runners": 1}
#: Keys, and the beginning and another part of the only line; none for keys that are fine.
CAUTIONS: list[tuple[dict[str, Any], str, str]] = [
    (NARROW, "", "old_logprobs=learner"),
    ({**NARROW, "algo": "steppo"}, "", "old_logprobs=learner"),
    ({**NARROW, "old_logprobs": "learner"}, "", ""),
    ({**NARROW, "dtype": "float32"}, "", ""),
    ({"algo": "ppo", "lr": 1e-6}, "critic_lr=0.001 is more than 100 times lr=1e-06", ""),
    ({"algo": "ppo", "lr": 1e-6, "critic_lr": 1e-5}, "", ""),
    ({"algo": "grpo", "lr": 1e-6}, "", ""),  # it has no critic
    ({"async_level": 2, "old_logprobs": "engine"},
     "async_level=2 with old_logprobs=engine: ratios are against the weights that sampled",
     "old_logprobs=learner rollout_correction=token_tis corrects instead"),
    ({**STREAM, "rollout_correction": "none"}, "stream with max_staleness=2 with rollout_correction=none", ""),
    ({"async_level": 4}, "", ""),
    ({"old_logprobs": "engine"}, "", ""),
    ({"async_level": 5}, "async_level=5 with rollout_correction=token_tis: beyond 4, truncated weights lost",
     "old_logprobs=engine rollout_correction=none"),
    ({"async_level": 5, "old_logprobs": "engine"}, "", ""),
    ({**STREAM, "algo": "steppo", "max_staleness": 8},
     "stream with max_staleness=8 with rollout_correction=step_tis: beyond 4", ""),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "begins", "part"), CAUTIONS, ids=str)
def test_what_spoils_a_run_is_named_and_what_does_not_is_not(keys: dict[str, Any], begins: str, part: str) -> None:
    lines = cautions(resolved(**{"algo": "grpo", **keys}))
    assert any(line.startswith(begins) and part in line for line in lines) if begins or part else not lines


@pytest.mark.parametrize(
    ("algo", "keys", "correction"),
    [
        ("grpo", {}, "token_tis"),
        ("gspo", {}, "step_tis"),
        ("steppo", {}, "step_tis"),
        ("steppo", {"ratio_level": "token"}, "token_tis"),
    ],
)
def test_stale_rollouts_are_corrected_on_the_level_of_the_ratio(algo, keys, correction) -> None:
    settings = resolved(algo=algo, async_level=1, **keys)
    assert (settings.old_logprobs, settings.rollout_correction) == ("learner", correction)
    assert (resolved(algo=algo, **keys).old_logprobs, resolved(algo=algo, **keys).rollout_correction) == (
        "engine",
        "none",
    )


@pytest.mark.parametrize("correction", ["step_tis", "sequence_tis", "seq_mis", "geo_rs", "icepop"])
def test_a_nucleus_has_no_correction(correction: str) -> None:
    keys = {"algo": "grpo", "top_p": 0.9, "old_logprobs": "learner"}
    with pytest.raises(InputError, match=rf"^top_p=0.9 .* rollout_correction={correction}: .*set top_p=1 or"):
        resolved(**keys, rollout_correction=correction)
    stale = resolved(algo="grpo", top_p=0.9, async_level=1)
    assert (stale.old_logprobs, stale.rollout_correction) == ("learner", "none"), "no default is refused"
    assert "top_p=1 rollout_correction=token_tis corrects them" in cautions(stale)[0]


@pytest.mark.parametrize("name", ["webshop_steppo", "webshop_ppo", "webshop_steppo_grpo", "alfworld_steppo"])
def test_steppos_presets_rebuild_the_prompt_at_every_step(name: str) -> None:
    keys = load_recipe(str(PRESETS[0].with_name(f"{name}.yaml")))
    assert keys["context"] == f"window({keys['max_turns']})", "StepPO, appendix B.2"


#: Of SmolLM2-135M, of Qwen2.5-1.5B, and of a starter.
SMALL = ModelShape(30, 576, 1536, 9, 3, 64, 49152, 8192, True)
LARGE = ModelShape(28, 1536, 8960, 12, 2, 128, 151936, 32768, True)
STARTER = ModelShape(2, 64, 256, 2, 2, 32, 200, 1024, True)


@pytest.mark.parametrize(
    ("shape", "keys", "usual", "most"),
    [(SMALL, {}, 2e-5, 5e-5), (LARGE, {}, 1e-6, 1e-5), (LARGE, {"lora_rank": 8}, 1e-4, 1e-3)],
)
def test_a_pretrained_models_learning_rate(shape: ModelShape, keys: dict[str, Any], usual: float, most: float) -> None:
    assert usual_rates(Settings.from_dict(keys), shape)["lr"] == usual
    assert not rate_caution(Settings.from_dict({**keys, "lr": most}), shape)
    assert f"is beyond {most:g}" in rate_caution(Settings.from_dict({**keys, "lr": 1.1 * most}), shape)


def test_a_starters_learning_rate_is_its_own() -> None:
    assert not usual_rates(Settings(), STARTER) and not rate_caution(Settings.from_dict({"lr": 1e-2}), STARTER)


def test_training_warns_as_doctor_does(smollm2_dir: Path) -> None:
    keys = {"model": str(smollm2_dir), "engine": "torch", "max_response_tokens": 8, "max_model_len": 512}
    assert resolved(**keys).lr == 2e-5 and not cautions(resolved(**keys))
    assert any(line.startswith("lr=0.0003 is beyond 5e-05") for line in cautions(resolved(**keys, lr=3e-4)))


def test_evaluations_sample_as_training_does_unless_somebody_chose() -> None:
    assert resolved().eval_temperature == 1.0
    assert resolved(temperature=0.8).eval_temperature == 0.8
    assert resolved(temperature=0.8, eval_temperature=0).eval_temperature == 0
