"""One name, one algorithm: 3spo resolves to the same configuration however it is started."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import yaml
from coin_agent import CoinAgent

from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.cli import main
from rl_agents.cli.parser import main_parser
from rl_agents.cli.train import plan_new
from rl_agents.cli.tune import resolve_trials
from rl_agents.reporting.run_folder import RunFolder, restored_settings
from rl_agents.trainer.algorithm import AgentConfig
from rl_agents.trainer.resolve import resolve
from rl_agents.tuning.sweep import load_sweep

ROOT = Path(__file__).parents[2]
OWN = sorted(ALGORITHMS["3spo"].reads)
FLAGS = ["--algo", "3spo", "--env", "guess_numbers", "--local", "--iterations", "2"]


def own(settings: Settings) -> dict[str, object]:
    """The algorithm and its keys."""
    return {"algo": settings.algo, **{name: getattr(settings, name) for name in OWN}}


@pytest.fixture(scope="module")
def wanted() -> dict[str, object]:
    """What the command line resolves to."""
    found = own(plan_new(main_parser().parse([*FLAGS, "--output", "runs/never-written"])).settings)
    assert (found["algo"], found["reading"], found["score_rate"], found["path_weight"]) == (
        "3spo",
        "learned",
        "chain",
        1.0,
    )
    return found


def test_in_python(wanted: dict[str, object]) -> None:
    config = AgentConfig().environment("guess_numbers").training(algo="3spo").local()
    assert own(resolve(config.agent)) == wanted


def test_in_a_recipe(wanted: dict[str, object], tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("algo: 3spo\nenv: guess_numbers\n")
    args = main_parser().parse(["--config", str(recipe), "--local", "--output", str(tmp_path / "out")])
    assert own(plan_new(args).settings) == wanted


def test_in_a_sweep(wanted: dict[str, object], tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text("set: {algo: 3spo, env: guess_numbers, engine: torch}\nspace: {lr: [1.0e-4, 1.0e-5]}\n")
    trials = resolve_trials(load_sweep(file), str(file)).values()
    assert [own(settings) for settings in trials] == [wanted] * 2


def test_as_a_job(wanted: dict[str, object], tmp_path: Path) -> None:
    """README's job line is the command line; without --env it brings the small preset of the same algorithm."""
    (line,) = [line for line in (ROOT / "README.md").read_text().splitlines() if "ray job submit" in line]
    words = shlex.split(line.split("--", 1)[1])
    assert words == ["python", "run.py", "--algo", "3spo"]
    args = main_parser().parse([*words[2:], "--local", "--output", str(tmp_path / "out")])
    settings = plan_new(args).settings
    assert own(settings) == wanted and settings.env == "alfworld"


def test_resumed_and_served(wanted: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed run and a server read the run's config.yaml, which no later default replaces."""
    built: list[CoinAgent] = []

    def build(settings: Settings) -> CoinAgent:
        built.append(CoinAgent(settings))
        return built[-1]

    monkeypatch.setattr("rl_agents.cli.train.build_algorithm", build)
    out = tmp_path / "run"
    assert main([*FLAGS, "--output", str(out), "--set", "eval_episodes=32", "checkpoint_interval=1"]) == 0
    assert main(["--resume", str(out), "--iterations", "3"]) == 0
    assert [own(agent.settings) for agent in built] == [wanted] * 2
    assert own(restored_settings(out / "config.yaml")) == own(RunFolder(out).load_settings()) == wanted
    assert yaml.safe_load((out / "config.yaml").read_text())["algo"] == "3spo"
