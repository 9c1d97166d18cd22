"""Every recipe file loads, says nothing without effect, and resolves where its environment is registered."""

from pathlib import Path

import pytest

import rl_agents.envs  # noqa: F401  (registers the built-in environments)
from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.config import load_recipe, validate
from rl_agents.envs.base import ENVIRONMENTS
from rl_agents.trainer.resolve import check_recipe, resolve
from rl_agents.trainer.unused_keys import apply_defaults, idle_keys

FOLDER = Path(__file__).parents[2] / "tune_configs" / "recipes"
FILES = sorted(FOLDER.glob("*.yaml"))
#: The environment names of the command line; not every one is registered in every version.
CONTRACT = {
    "guess_numbers", "circuit_decoding", "situation_puzzles", "preference_estimation", "movie_recommendation",
    "alfworld", "webshop", "multihop_qa", "paper_search", "long_form_qa", "pivot", "blackbox",
}  # fmt: skip


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_recipe_file_builds_its_settings(file: Path) -> None:
    keys = load_recipe(str(file))
    assert 0 < len(keys) <= 20
    assert file.read_text(encoding="utf-8").startswith("# "), "says where its numbers are from"
    settings = Settings.from_dict(keys)
    recipe = ALGORITHMS[settings.algo]
    apply_defaults(settings, recipe)
    assert not idle_keys(settings), "keys without effect"
    assert keys.get("env", "guess_numbers") in CONTRACT or keys["env"].startswith("gymnasium:benchmarks.")
    if settings.env in ENVIRONMENTS and settings.env != "blackbox":  # which has no starter
        # Only the model is not at hand; the starter stands in for it.
        resolved = resolve(Settings.from_dict({**keys, "model": "starter", "dtype": "float32"}))
        resolved_keys = resolved.to_dict()
        assert all(resolved_keys[name] == value for name, value in keys.items() if name not in ("model", "dtype"))
    else:
        validate(settings)
        check_recipe(settings, recipe)


def test_there_is_a_small_preset_for_every_algorithm() -> None:
    small = {load_recipe(str(file))["algo"] for file in FILES if file.stem.startswith("guess_numbers_")}
    assert small >= {name for name in ALGORITHMS if name != "pivotrl"}
