"""Every recipe file loads, says nothing without effect, and resolves where its environment is registered."""

import fnmatch
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

import rl_agents.envs  # noqa: F401  (registers the built-in environments)
from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.config import load_recipe
from rl_agents.envs.base import ENVIRONMENTS
from rl_agents.trainer.resolve import check_keys, resolve
from rl_agents.trainer.unused_keys import apply_defaults, idle_keys

FOLDER = Path(__file__).parents[2] / "tune_configs" / "recipes"
FILES = sorted(FOLDER.glob("*.yaml"))
PAPERS = yaml.safe_load(Path(__file__).with_name("paper_settings.yaml").read_text(encoding="utf-8"))
RUNS, SWEEPS = ([entry for entry in PAPERS if kind in entry] for kind in ("recipes", "sweep"))
#: Recipes for a model of a paper's size; the small ones are this project's own.
LARGE = [file for file in FILES if "Qwen" in str(load_recipe(str(file)).get("model"))]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_recipe_file_builds_its_settings(file: Path) -> None:
    keys = load_recipe(str(file))
    assert 0 < len(keys) <= 20
    assert file.read_text(encoding="utf-8").startswith("# "), "says where its numbers are from"
    settings = Settings.from_dict(keys)
    recipe = ALGORITHMS[settings.algo]
    apply_defaults(settings, recipe)
    assert not idle_keys(settings), "keys without effect"
    known = [name in ENVIRONMENTS or name.startswith("gymnasium:benchmarks.") for name in settings.env.split(",")]
    assert all(known), settings.env
    if settings.env in ENVIRONMENTS and settings.env != "blackbox":  # which has no starter
        # Only the model is not at hand; the starter stands in for it.
        resolved = resolve(Settings.from_dict({**keys, "model": "starter", "dtype": "float32"}))
        resolved_keys = resolved.to_dict()
        assert all(resolved_keys[name] == value for name, value in keys.items() if name not in ("model", "dtype"))
    else:
        check_keys(settings, recipe)


def test_there_is_a_small_preset_for_every_algorithm() -> None:
    small = {load_recipe(str(file))["algo"] for file in FILES if file.stem.startswith("guess_numbers_")}
    assert small >= {name for name, spec in ALGORITHMS.items() if name != "pivotrl" and not spec.teacher}


def alternatives(pattern: str) -> list[str]:
    """The patterns that a pattern with braces stands for: {a,b}_c is a_c and b_c."""
    parts = [part[1:-1].split(",") if part.startswith("{") else [part] for part in re.split(r"(\{[^}]*\})", pattern)]
    return ["".join(choice) for choice in product(*parts)]


def entries_of(name: str) -> list[dict[str, Any]]:
    return [entry for entry in RUNS if any(fnmatch.fnmatch(name, one) for one in alternatives(entry["recipes"]))]


@pytest.mark.parametrize("file", LARGE, ids=lambda file: file.stem)
def test_a_recipe_has_the_papers_settings_or_says_what_differs(file: Path) -> None:
    comments = " ".join(re.findall(r"^#.*", file.read_text(encoding="utf-8"), re.MULTILINE))
    settings = Settings.from_dict(load_recipe(str(file)))
    apply_defaults(settings, ALGORITHMS[settings.algo])
    keys = settings.to_dict()
    keys["max_turns"] = keys["max_turns"] or ENVIRONMENTS[settings.env].max_turns
    entries = entries_of(file.stem)
    assert entries, "a paper's settings belong into paper_settings.yaml"
    for entry in entries:
        for key, value in entry["settings"].items():
            stated = re.search(rf"(?<![\w.]){re.escape(key)}(?![\w])", comments)
            assert keys[key] == value or stated, f"{key}={keys[key]}, {entry['source']}: {value}"
        for key in entry.get("unpublished", ()):
            assert re.search(rf"(?<![\w.]){re.escape(key)}(?![\w])", comments), f"{key} is not in the paper: say so"


def test_every_line_of_the_papers_settings_is_about_a_recipe() -> None:
    for entry in RUNS:
        for pattern in alternatives(entry["recipes"]):
            assert any(fnmatch.fnmatch(file.stem, pattern) for file in LARGE), pattern


@pytest.mark.parametrize("entry", SWEEPS, ids=lambda entry: entry["sweep"])
def test_a_sweep_varies_what_the_papers_table_varies(entry: dict[str, Any]) -> None:
    sweep = yaml.safe_load((FOLDER.parent / "sweeps" / f"{entry['sweep']}.yaml").read_text(encoding="utf-8"))
    assert sweep == {"recipe": f"../recipes/{entry['recipe']}.yaml", "space": entry["space"]}
