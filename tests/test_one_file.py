"""The loop in one file: the page quotes all of it, and its updates are those of a run."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file
from test_doc_blocks import blocks_in

from rl_agents.config import Settings
from rl_agents.envs.base import make_env, task_ids
from rl_agents.rollout.turns import Limits
from rl_agents.trainer.algorithm import AgentAlgorithm

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "examples" / "grpo_in_one_file.py"
PAGE = ROOT / "docs" / "tutorials" / "the-loop-in-one-file.md"


def without_blank_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def test_the_page_quotes_the_whole_file() -> None:
    blocks = [code for _, language, code in blocks_in(PAGE.read_text(encoding="utf-8")) if language == "python"]
    code = FILE.read_text(encoding="utf-8")
    assert without_blank_lines("".join(blocks)) == without_blank_lines(code)
    assert len(code.splitlines()) <= 150


def test_it_needs_no_ray() -> None:
    code = f"import runpy, sys; runpy.run_path({str(FILE)!r}); print([m for m in sys.modules if m == 'ray'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def loop() -> ModuleType:
    spec = importlib.util.spec_from_file_location("grpo_in_one_file", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_missing_model_is_one_line(loop: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"^error: model=.*nowhere: no config.json"):
        loop.main([str(tmp_path / "nowhere")])


def test_its_updates_are_those_of_a_run(
    loop: ModuleType, beginner_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    start = str(beginner_model_dir)
    keys = {"tasks_per_iteration": 8, "group_size": 4, "minibatches": 1, "lr": 1e-3, "eval_episodes": 8}
    settings = Settings.from_dict(
        {"algo": "grpo", "env": "guess_numbers", "env.prompt": "compact", "model": start, "seed": 3, **keys}
    )
    settings.make_local()
    algo = AgentAlgorithm.from_settings(settings)
    for _ in range(2):
        algo.train()
    algo.learner_group.save_hf(tmp_path / "run")
    algo.stop()

    options = settings.env_options
    monkeypatch.setattr(loop, "make_env", lambda name, none: make_env("guess_numbers", options))
    monkeypatch.setattr(loop, "task_ids", lambda name, split, none: task_ids("guess_numbers", split, options))
    monkeypatch.setattr(loop, "LIMITS", Limits.from_settings(algo.settings))
    asked = (
        f"--iterations 2 --groups 8 --group-size 4 --steps 1 --lr 1e-3 --seed 3 --test-games 8 --output {tmp_path}/one"
    )
    loop.main([start, *asked.split()])
    said = capsys.readouterr().out.splitlines()
    assert [re.sub(r"\d\.\d\d", "X", line) for line in said if not line.startswith("[")] == [
        "start: X of the test games", "iteration 1: X of 32 games", "iteration 2: X of 32 games",
        "end: X of the test games",
    ]  # fmt: skip

    before, run, one = (
        load_file(Path(folder) / "model.safetensors") for folder in (start, tmp_path / "run", tmp_path / "one")
    )
    moved = torch.cat([(run[name] - before[name]).flatten() for name in before])
    other = torch.cat([(one[name] - before[name]).flatten() for name in before])
    # AdamW turns the rounding of a gradient near zero into a step; all others are equal.
    assert moved.norm() > 0 and (moved - other).norm() < 0.02 * moved.norm()
