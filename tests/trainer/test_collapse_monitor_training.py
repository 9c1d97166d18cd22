"""A run whose policy really falls: what is said of it, and what ends it."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from rl_agents.errors import PolicyFell
from rl_agents.interrupts import Interrupts
from rl_agents.reporting import collapse_monitor
from rl_agents.reporting.progress import Progress
from rl_agents.reporting.run_folder import RunFolder
from rl_agents.trainer.algorithm import AgentAlgorithm, AgentConfig
from rl_agents.trainer.train_loop import TrainLoop

#: A learning rate at which the beginner forgets within an iteration or two how to write a guess.
KEYS: dict[str, Any] = {
    "algo": "grpo", "tasks_per_iteration": 16, "group_size": 4, "lr": 0.1, "iterations": 8, "eval_interval": 0,
    "eval_episodes": 16, "save_trajectories": 0, "max_response_tokens": 12,
}  # fmt: skip


def build(model_dir: Path, **keys: Any) -> AgentAlgorithm:
    return AgentConfig().environment("guess_numbers").training(model=str(model_dir), **KEYS | keys).local().build_algo()


def open_loop(algo: AgentAlgorithm, path: Path) -> tuple[TrainLoop, io.StringIO]:
    shown = io.StringIO()
    folder = RunFolder(path) if path.exists() else RunFolder.create(path, algo.settings)
    return TrainLoop(algo, folder, Progress(shown), Interrupts()), shown


def summary(path: Path) -> dict[str, Any]:
    return dict(json.loads((path / "summary.json").read_text()))


@pytest.fixture(scope="module")
def fallen(beginner_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, str]:
    """A whole run and what it said."""
    algo = build(beginner_model_dir)
    loop, shown = open_loop(algo, tmp_path_factory.mktemp("fallen") / "run")
    assert loop.run()
    algo.stop()
    return loop.folder, shown.getvalue()


def test_warn_says_it_once_and_goes_on(fallen: tuple[RunFolder, str]) -> None:
    folder, text = fallen
    assert text.count("the policy has degraded below its start: success 0.0") == 1
    assert "below start 0." in text.splitlines()[-1]
    records = folder.read_metrics()
    assert [r["collapse_monitor/sample"] for r in records[1:]] == [r["rollout/success_rate"] for r in records[1:]]
    assert records[-1][collapse_monitor.SUCCESS] < records[-1][collapse_monitor.START] - 0.1
    assert summary(folder.path)["policy_end"] < summary(folder.path)["policy_start"]


def test_stop_ends_the_run_with_a_checkpoint_and_says_why(beginner_model_dir: Path, tmp_path: Path) -> None:
    algo = build(beginner_model_dir, collapse_monitor="stop")
    loop, _ = open_loop(algo, tmp_path / "run")
    with pytest.raises(PolicyFell, match=r"below its start: success 0\.\d\d \+- .* \(collapse_monitor=stop\)$"):
        loop.run()
    ended = algo.iteration
    assert 4 <= ended < 8
    assert summary(tmp_path / "run")["status"] == "fell"
    assert loop.folder.complete_checkpoints()[-1][0] == ended
    algo.stop()


def test_a_resumed_run_is_guarded_exactly(fallen: tuple[RunFolder, str], beginner_model_dir, tmp_path) -> None:
    folder, cut = fallen[0], 6
    records = folder.read_metrics()[1:]
    second = build(beginner_model_dir)
    second.restore_run_checkpoint(folder.checkpoint(cut))
    kept = [record for record in records if record["iteration"] <= cut]
    again = RunFolder.create(tmp_path / "again", second.settings)
    again.write_metrics([{"iteration": 0, "eval/success_rate": 0.0}, *kept])
    rest = TrainLoop(second, again, Progress(io.StringIO()), Interrupts())
    for record in records[len(kept) :]:
        found = rest.advance()
        assert {k: v for k, v in found.items() if k.startswith("collapse_monitor/")} == {
            k: v for k, v in record.items() if k.startswith("collapse_monitor/")
        }
        assert found[collapse_monitor.BELOW] == 1.0
    second.stop()


def test_a_search_is_told_by_episodes_of_its_own(beginner_model_dir: Path, tmp_path: Path) -> None:
    keys = {"algo": "3spo", "group_size": 4, "search_steps": 64, "lr": 1e-3, "iterations": 4}
    algo = build(beginner_model_dir, **keys)
    loop, shown = open_loop(algo, tmp_path / "run")
    assert loop.run()
    records = loop.folder.read_metrics()[1:]
    assert all(r["collapse_monitor/tasks"] == 16 and r["collapse_monitor/turns"] >= 16 for r in records)
    assert all(r["rollout/success_rate"] == r["collapse_monitor/sample"] for r in records)
    assert any(r["rollout/success_rate"] != r.get("search/success_rate") for r in records), "of its own paths"
    lines = [line.split("  ")[1:3] for line in shown.getvalue().splitlines() if line.startswith("iter ")]
    assert all(first.startswith("success ") and second.startswith("search ") for first, second in lines[1:])
    algo.stop()
