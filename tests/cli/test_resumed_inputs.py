"""A run is resumed with what its checkpoint refers to: the same tasks, base model and keys."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rl_agents.cli import main
from rl_agents.reporting.run_folder import RunFolder

TASKS = {"env.train_tasks": 40, "env.test_tasks": 10}
KEYS = {
    "tasks_per_iteration": 2, "group_size": 2, "max_response_tokens": 4, "max_model_len": 600, "minibatches": 1,
    "eval_episodes": 8, "eval_interval": 0, "save_trajectories": 0, "lora_rank": 2, "keep_checkpoints": 0,
    "task_sampling": "difficulty",
}  # fmt: skip


def assigned(keys: dict[str, object]) -> list[str]:
    return ["--set", *(f"{name}={value}" for name, value in keys.items())]


@pytest.fixture(scope="module")
def finished(wide_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("finished") / "run"
    argv = ["--local", "--algo", "grpo", "--env", "gymnasium:rollout.waiting:Seeded", "--model", str(wide_model_dir)]
    assert main([*argv, "--iterations", "2", "--output", str(output), *assigned(KEYS | TASKS)]) == 0
    return output


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def resume(run: Path, *more: str) -> int:
    iterations = [] if "--iterations" in more else ["--iterations", "3"]
    return main(["--resume", str(run), *iterations, *more])


@pytest.mark.rllib
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ("env.train_tasks=35", "training tasks were 40 and are now 35"),
        ("env.test_tasks=9", "test tasks were 10 and are now 9"),
        ("lora_alpha=64", "that run has lora_alpha=16.0, not 64.0: it scales what the adapters have learned"),
        ("optimizer=muon", "that run has optimizer=adamw, not muon: the saved moments are those of this optimizer"),
    ],
)
def test_what_a_checkpoint_fixes_is_refused(run: Path, capsys, changed: str, words: str) -> None:
    keys = (run / "config.yaml").read_text()
    assert resume(run, "--set", changed) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1
    assert ("--set tasks_changed=accept" in said) == ("tasks" in changed)
    assert (run / "config.yaml").read_text() == keys


@pytest.mark.rllib
def test_other_tasks_are_accepted(run: Path, capsys) -> None:
    before = RunFolder(run).read_metrics()
    assert resume(run, "--set", "env.train_tasks=35", "env.test_tasks=9", "tasks_changed=accept") == 0
    said = capsys.readouterr().out
    assert "training tasks: 40 before, now 35" in said and "test tasks: 10 before, now 9" in said
    records = RunFolder(run).read_metrics()
    assert [record["iteration"] for record in records] == [0, 1, 2, 3], "what was done is kept"
    assert records[1] == before[1]
    known = [
        json.loads((run / "checkpoints" / name / "state.json").read_text())["counters"]["success"]
        for name in ("000002", "000003")
    ]
    kept = [task for task in known[0] if int(task.removeprefix("seed-")) < 35]
    assert set(known[1]) > set(kept) and len(known[1]) == len(kept) + 2, "what was known of the tasks that are left"
    assert [record["iteration"] for record in records if "eval/episodes" in record] == [0, 2, 3]
    assert main(["--resume", str(run), "--iterations", "4"]) == 0, "the new tasks are the run's now"
    assert resume(run, "--iterations", "5", "--set", "env.train_tasks=34") == 2, "another change is accepted anew"


@pytest.mark.rllib
def test_another_base_is_refused_and_a_moved_one_is_named(run: Path, wide_model_dir: Path, tmp_path, capsys) -> None:
    moved, other = tmp_path / "moved", tmp_path / "other"
    for folder in (moved, other):
        shutil.copytree(wide_model_dir, folder)
    weights = load_file(other / "model.safetensors")
    save_file({name: tensor + torch.tensor(1e-3) for name, tensor in weights.items()}, other / "model.safetensors",
              metadata={"format": "pt"})  # fmt: skip
    assert resume(run, "--model", str(other)) == 2
    assert f"model={other} has other weights than the run began with" in capsys.readouterr().err
    assert resume(run, "--model", str(moved)) == 0
    config = json.loads((run / "checkpoints" / "000003" / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(moved)


@pytest.mark.rllib
@pytest.mark.parametrize(("done", "words"), [(0, "nothing was trained yet"), (1, "its 1 iterations were not saved")])
def test_a_run_without_a_checkpoint_names_the_command_that_starts_it_again(run: Path, capsys, done, words) -> None:
    shutil.rmtree(run / "checkpoints")
    (run / "pool.sqlite").unlink()
    folder = RunFolder(run)
    folder.write_metrics(folder.read_metrics()[: done + 1])
    assert main(["--resume", str(run)]) == 2
    said = capsys.readouterr().err
    assert f"no checkpoint: {words}; start it again with: python run.py --config {run}/config.yaml\n" in said
    again = run.with_name("again")
    assert main(["--config", f"{run}/config.yaml", "--output", str(again)]) == 0
    keys = [folder.load_settings().to_dict() for folder in (RunFolder(run), RunFolder(again))]
    assert keys[0] == keys[1]
