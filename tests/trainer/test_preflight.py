"""Recipes are checked, not only loaded: `run.py doctor --config`, over every recipe and every sweep."""

import json
from pathlib import Path
from typing import Any

import pytest
from chat_models import save_chat_model

from rl_agents.algorithms import Settings
from rl_agents.cli import main
from rl_agents.config import load_recipe
from rl_agents.trainer.preflight import KNOWN, check_settings
from rl_agents.tuning.sweep import load_sweep

FOLDER = Path(__file__).parents[2] / "tune_configs"
RECIPES = sorted((FOLDER / "recipes").glob("*.yaml"))
SWEEPS = sorted((FOLDER / "sweeps").glob("*.yaml"))
#: T3's 7B runs: nothing is wrong with it.
GOOD = FOLDER / "recipes" / "guess_numbers_grpo_t3.yaml"


def failures(keys: dict[str, Any]) -> dict[str, str]:
    findings = check_settings(Settings.from_dict(keys))
    return {finding.about: finding.text for finding in findings if finding.status == "fails"}


@pytest.mark.parametrize("file", RECIPES, ids=lambda file: file.stem)
def test_no_recipe_fails(file: Path) -> None:
    assert failures(load_recipe(str(file))) == {}


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


def test_known_models_have_the_size_of_their_names() -> None:
    for name, billions in (("Qwen2.5-3B-Instruct", 3.09), ("Qwen3-4B-Instruct-2507", 4.02), ("Qwen3-14B", 14.8)):
        assert KNOWN[name].parameters / 1e9 == pytest.approx(billions, rel=0.02)
    assert KNOWN["Qwen3-30B-A3B-Thinking-2507"].parameters / 1e9 == pytest.approx(30.5, rel=0.02)


def test_the_command_prints_a_line_for_each_and_says_it_with_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--config", str(GOOD)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["ok", "keys"], ["ok", "batch"], ["ok", "pairs"], ["note", "model"], ["ok", "rates"], ["ok", "lengths"],
    ]  # fmt: skip
    assert main(["doctor", "--config", str(GOOD), "--set", "lr=1e-3", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert not report["fits"] and any("lr=0.001" in finding["text"] for finding in report["findings"])
    assert main(["doctor", "--config", str(GOOD), "--set", "lr=fast"]) == 2
    assert capsys.readouterr().err == "error: lr='fast': must be a valid number\n"
    assert main(["doctor", "--config", "none.yaml"]) == 2
