"""Recipes are checked, not only loaded: `run.py doctor --config`, over every recipe and every sweep."""

import json
from pathlib import Path
from typing import Any

import pytest
from chat_models import save_chat_model

from rl_agents.algorithms import Settings
from rl_agents.cli import main
from rl_agents.config import load_recipe
from rl_agents.inference.model_shape import ModelShape
from rl_agents.learner.gpu_memory_estimate import KNOWN, fewest_learners, learner_memory
from rl_agents.trainer.preflight import LIBRARIES, check_settings, local_memory
from rl_agents.tuning.sweep import load_sweep

FOLDER = Path(__file__).parents[2] / "tune_configs"
RECIPES = sorted((FOLDER / "recipes").glob("*.yaml"))
SWEEPS = sorted((FOLDER / "sweeps").glob("*.yaml"))
#: GB of the GPUs that a recipe says it wants; 80 otherwise.
GPU_GB = {"math_dapo_32b": 96.0, "pivot_pivotrl": 141.0}
#: T3's 7B runs: nothing is wrong with it.
GOOD = FOLDER / "recipes" / "guess_numbers_grpo_t3.yaml"


def failures(keys: dict[str, Any], gpu_gb: float = 80.0) -> dict[str, str]:
    findings = check_settings(Settings.from_dict(keys), gpu_gb)
    return {finding.about: finding.text for finding in findings if finding.status == "fails"}


@pytest.mark.parametrize("file", RECIPES, ids=lambda file: file.stem)
def test_no_recipe_fails(file: Path) -> None:
    assert failures(load_recipe(str(file)), GPU_GB.get(file.stem, 80.0)) == {}


@pytest.mark.parametrize("file", SWEEPS, ids=lambda file: file.stem)
def test_no_trial_of_a_sweep_fails(file: Path) -> None:
    sweep = load_sweep(file)
    for trial in (sweep.trials[0], sweep.trials[-1]):
        settings = sweep.settings(trial)
        settings.model = str(sweep.keys.get("model", "starter"))
        assert not [finding for finding in check_settings(settings) if finding.status == "fails"]


CASES = [
    ({"max_model_len": 4096}, "lengths", "episodes are cut by the context"),
    ({"lr": 3e-4}, "rates", "lr=0.0003 is beyond 1e-05"),
    ({"clip_low": 3e-4, "old_logprobs": "engine", "top_p": 1.0}, "pairs", "set old_logprobs=learner"),
    ({"activation_checkpointing": "none"}, "learner", "fit no number of GPUs of 80 GB"),
    ({"kv_cache_gb": 0.1}, "engine", "kv_cache_gb=0.1 does not hold it"),
]


@pytest.mark.parametrize(("changed", "about", "words"), CASES, ids=[" ".join(case[0]) for case in CASES])
def test_what_is_wrong_is_named(changed: dict[str, Any], about: str, words: str) -> None:
    good = load_recipe(str(GOOD))
    assert failures(good) == {}
    if changed.get("algo") == "ppo":
        good.pop("loss_agg_mode")
    found = failures({**good, **changed})
    assert list(found) == [about] and words in found[about]


def test_a_model_at_hand_is_measured_with_its_own_tokenizer(tmp_path: Path) -> None:
    folder = save_chat_model(tmp_path)
    keys = {"env": "guess_numbers", "model": str(folder), "engine": "torch", "max_response_tokens": 128}
    assert failures({**keys, "max_model_len": 16384}) == {}
    assert "cut by the context" in failures({**keys, "max_model_len": 2048})["lengths"]
    open_length = check_settings(Settings.from_dict(keys))
    assert "measured on" in next(finding.text for finding in open_length if finding.about == "lengths")


def test_memory_is_that_of_the_documentation() -> None:
    """docs/how-to/scale.md: the table of three sizes, within its rounding."""
    settings = Settings.from_dict({"algo": "grpo", "dtype": "bfloat16", "kl_coef": 0.001, "max_model_len": 8192})
    settings.update({"tokens_per_microbatch": 8192, "activation_checkpointing": "full"})
    for name, states in (("Qwen2.5-1.5B-Instruct", (28, 14, 7)), ("Qwen2.5-7B-Instruct", (137, 69, 34))):
        for learners, wanted in zip((1, 2, 4), states, strict=True):
            assert learner_memory(settings, KNOWN[name], learners, 1024).state == pytest.approx(
                wanted, rel=0.03, abs=0.6
            )
    alone = Settings.from_dict({**settings.to_dict(), "kl_coef": 0.0})
    totals = [round(learner_memory(alone, KNOWN["Qwen2.5-7B-Instruct"], n, 1024).total) for n in (1, 2, 4, 8)]
    assert totals == [127, 71, 40, 25]
    adapters = learner_memory(
        Settings.from_dict({**alone.to_dict(), "lora_rank": 32}), KNOWN["Qwen2.5-7B-Instruct"], 1, 1024
    )
    assert (round(adapters.state, 1), round(adapters.passing, 1)) == (16.5, 5.2)
    passing = learner_memory(settings, KNOWN["Qwen2.5-7B-Instruct"], 1, 1024).passing
    assert passing == pytest.approx(5.2, rel=0.05)
    settings.update({"activation_checkpointing": "selective"})
    kept = learner_memory(settings, KNOWN["Qwen2.5-7B-Instruct"], 1, 1024).passing - passing
    assert kept == pytest.approx(2 * 8192 * 28 * (3584 + 2 * 3584 + 2 * 18_944) / 1e9, rel=1e-3)
    settings.update({"activation_checkpointing": "full"})
    assert KNOWN["Qwen2.5-7B-Instruct"].kv_bytes("bfloat16") == 56 * 1024
    assert KNOWN["Qwen2.5-32B"].kv_bytes("bfloat16") == 256 * 1024
    assert fewest_learners(settings, KNOWN["Qwen2.5-7B-Instruct"], 1024, 80.0) == 4
    assert fewest_learners(settings, KNOWN["Qwen2.5-7B-Instruct"], 1024, 1.0) is None


def test_memory_of_one_process_without_a_gpu() -> None:
    """SmolLM2-135M on treasure: the largest that was measured is 5.9 GB (docs/tutorials/real-model-on-a-laptop.md)."""
    shape = ModelShape(30, 576, 1536, 9, 3, 64, 49_152, 8192, True)
    keys = {"algo": "grpo", "dtype": "bfloat16", "max_model_len": 320, "tokens_per_microbatch": 2048}
    settings = Settings.from_dict({**keys, "tasks_per_iteration": 10, "group_size": 8, "eval_episodes": 64})
    parts = (16 * 134.5e6, 2 * 2 * 134.5e6, 80 * 320 * shape.kv_bytes("bfloat16"))
    assert 5.2 < local_memory(settings, shape, 154) < 5.5
    assert local_memory(settings, shape, 154) > sum(parts) / 1e9 + LIBRARIES


def test_known_models_have_the_size_of_their_names() -> None:
    for name, billions in (("Qwen2.5-3B-Instruct", 3.09), ("Qwen3-4B-Instruct-2507", 4.02), ("Qwen3-14B", 14.8)):
        assert KNOWN[name].parameters / 1e9 == pytest.approx(billions, rel=0.02)
    assert KNOWN["Qwen3-30B-A3B-Thinking-2507"].parameters / 1e9 == pytest.approx(30.5, rel=0.02)


def test_the_command_prints_a_line_for_each_and_says_it_with_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--config", str(GOOD)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["ok", "keys"], ["ok", "batch"], ["ok", "pairs"], ["note", "model"], ["ok", "rates"], ["ok", "lengths"],
        ["note", "learner"], ["ok", "engine"],
    ]  # fmt: skip
    assert main(["doctor", "--config", str(GOOD), "--set", "lr=1e-3", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert not report["fits"] and any("lr=0.001" in finding["text"] for finding in report["findings"])
    assert main(["doctor", "--config", str(GOOD), "--set", "lr=fast"]) == 2
    assert capsys.readouterr().err == "error: lr='fast': must be a valid number\n"
    assert main(["doctor", "--config", "none.yaml"]) == 2
    assert main(["doctor", "--config", str(GOOD), "--gpu-memory", "0"]) == 2
