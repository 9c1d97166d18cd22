"""Recipes and sweeps by name, from any folder."""

from pathlib import Path

import pytest

from rl_agents.cli import main
from rl_agents.config.loading import load_preset, preset_files, preset_path
from rl_agents.errors import InputError

FOLDER = Path(__file__).parents[2] / "tune_configs"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "text", ["guess_numbers_grpo", "guess_numbers_grpo.yaml", "tune_configs/recipes/guess_numbers_grpo.yaml"]
)
def test_a_recipe_has_one_name_everywhere(text: str) -> None:
    assert Path(preset_path(text)) == FOLDER / "recipes" / "guess_numbers_grpo.yaml"
    assert load_preset(text)["algo"] == "grpo"


def test_sweeps_have_names_too() -> None:
    assert Path(preset_path("vspo_small", "sweeps")) == FOLDER / "sweeps" / "vspo_small.yaml"
    assert len(preset_files()) > 90 and "vspo_small" not in preset_files()


def test_a_file_comes_before_a_name(tmp_path: Path) -> None:
    Path("guess_numbers_grpo.yaml").write_text("algo: ppo\n", encoding="utf-8")
    assert load_preset("guess_numbers_grpo.yaml") == {"algo": "ppo"}
    Path("guess_numbers_grpo").mkdir()
    assert load_preset("guess_numbers_grpo")["algo"] == "grpo", "not a folder that happens to be called so"


@pytest.mark.parametrize(
    "text, message",
    [
        ("gues_numbers_grpo", "unknown recipe 'gues_numbers_grpo': did you mean 'guess_numbers_grpo'?"),
        ("zzzz", "unknown recipe 'zzzz': `run.py list recipes` shows all"),
        ("guess_number_grpo.yaml", "guess_number_grpo.yaml: no such file, and no recipe of that name; did you mean"),
    ],
)
def test_what_is_not_there(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        preset_path(text)
    assert str(caught.value).startswith(message)


def test_a_sweep_by_name_and_a_recipe_by_name_inside_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    from rl_agents.cli import tune

    def planned(*argv: str) -> set[str]:
        return {settings.algo for settings in tune.plan_new(tune.build_parser().parse(argv)).settings.values()}

    assert planned("vspo_small") == planned("--config", "vspo_small") == {"vspo"}
    Path("mine.yaml").write_text("recipe: guess_numbers_dapo\nspace: {lr: [1.0e-4, 2.0e-4]}\n", encoding="utf-8")
    assert planned("mine.yaml") == {"dapo"}
    assert main(["tune", "vspo_small", "--config", "lr_asha"]) == 2
    assert "give one sweep" in capsys.readouterr().err
    assert main(["tune", "vspo_smal"]) == 2
    assert "unknown sweep 'vspo_smal': did you mean 'vspo_small'?" in capsys.readouterr().err
