"""A run whose policy really falls: what is said of it, what ends it, and how it goes back."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from trained import policy_weights

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


def test_warn_says_it_once_and_goes_on(beginner_model_dir: Path, tmp_path: Path) -> None:
    algo = build(beginner_model_dir)
    loop, shown = open_loop(algo, tmp_path / "run")
    assert loop.run()
    text = shown.getvalue()
    assert text.count("the policy has degraded below its start: success 0.0") == 1
    assert "below start 0." in text.splitlines()[-1]
    records = loop.folder.read_metrics()
    assert [r["collapse_monitor/sample"] for r in records[1:]] == [r["rollout/success_rate"] for r in records[1:]]
    assert records[-1][collapse_monitor.SUCCESS] < records[-1][collapse_monitor.START] - 0.1
    assert summary(tmp_path / "run")["policy_end"] == records[-1][collapse_monitor.SUCCESS]
    algo.stop()


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


def test_restore_goes_back_once_and_then_stops(beginner_model_dir: Path, tmp_path: Path) -> None:
    keys = {"collapse_monitor": "restore", "iterations": 20, "async_level": 1}
    algo = build(beginner_model_dir, **keys)
    start = policy_weights(algo)
    loop, shown = open_loop(algo, tmp_path / "run")
    while not collapse_monitor.restored_to(loop.folder.read_metrics()):
        loop.advance()
    went = algo.iteration
    (back,) = collapse_monitor.restored_to(loop.folder.read_metrics())
    assert f"restoring the checkpoint of iteration {back}, once" in shown.getvalue()
    assert back < went == loop.folder.complete_checkpoints()[-1][0], "iterations go on"
    if back == 0:
        assert all(torch.equal(tensor, start[name]) for name, tensor in policy_weights(algo).items())
    loop.advance()
    assert loop.advance()["collapse_monitor/sample"] > 0.15, "episodes are those of the old weights again, one behind"
    with pytest.raises(PolicyFell, match=rf"a second time: iteration {back} was restored before"):
        loop.run()
    assert went + 1 < algo.iteration < 20
    report = summary(tmp_path / "run")
    assert (report["status"], report["restored_to"]) == ("fell", back)
    algo.stop()


def test_a_resumed_run_is_guarded_exactly(beginner_model_dir: Path, tmp_path: Path) -> None:
    path, keys = tmp_path / "run", {"collapse_monitor": "restore", "iterations": 8}
    whole = build(beginner_model_dir, **keys)
    loop, _ = open_loop(whole, path)
    records = [loop.advance() for _ in range(8)]
    whole.stop()
    assert any(collapse_monitor.RESTORED in record for record in records)
    cuts = [iteration for iteration, _ in loop.folder.complete_checkpoints() if 0 < iteration < 8]
    for cut in cuts[-1:]:
        second = build(beginner_model_dir, **keys)
        second.restore_run_checkpoint(loop.folder.checkpoint(cut))
        kept = [record for record in records if record["iteration"] <= cut]
        again = RunFolder.create(tmp_path / f"from-{cut}", second.settings)
        again.write_metrics([{"iteration": 0, "eval/success_rate": 0.0}, *kept])
        for iteration, folder in loop.folder.complete_checkpoints():
            if iteration <= cut:
                (again.checkpoints / folder.name).symlink_to(folder)
        rest = TrainLoop(second, again, Progress(io.StringIO()), Interrupts())
        for record in records[len(kept) :]:
            found = rest.advance()
            assert {k: v for k, v in found.items() if k.startswith("collapse_monitor/")} == {
                k: v for k, v in record.items() if k.startswith("collapse_monitor/")
            }
        second.stop()


def test_a_search_is_told_by_episodes_of_its_own(beginner_model_dir: Path, tmp_path: Path) -> None:
    keys = {"algo": "3spo", "group_size": 4, "search_steps": 64, "lr": 1e-3, "iterations": 4}
    algo = build(beginner_model_dir, **keys)
    loop, shown = open_loop(algo, tmp_path / "run")
    assert loop.run()
    records = loop.folder.read_metrics()[1:]
    assert all(r["collapse_monitor/tasks"] == 16 and r["collapse_monitor/turns"] >= 16 for r in records)
    assert any(r["collapse_monitor/sample"] != r.get("rollout/success_rate") for r in records), (
        "not of the search's own paths"
    )
    assert "  policy 0." in shown.getvalue()
    algo.stop()


def test_a_search_goes_back_in_what_it_knows_and_on_in_its_tasks(beginner_model_dir: Path, tmp_path: Path) -> None:
    run = build(beginner_model_dir, algo="3spo", search_steps=64, lr=1e-3)
    assert run.explorer is not None
    run.train()
    run.save_run_checkpoint(tmp_path / "000001")
    known, old = json.dumps(run.explorer.states.to_json()), policy_weights(run)
    run.train()
    position = run.explorer.position
    assert json.dumps(run.explorer.states.to_json()) != known
    run.go_back(tmp_path / "000001")
    assert json.dumps(run.explorer.states.to_json()) == known
    assert all(torch.equal(tensor, old[name]) for name, tensor in policy_weights(run).items())
    assert (run.iteration, run.explorer.position, run.explorer.searches) == (2, position, [])
    assert run.train()["agent"]["search/sampled_steps"] > 0
    assert run.iteration == 3 and run.explorer.position > position
    run.stop()
