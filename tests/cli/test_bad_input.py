"""Bad input: exit code 2, one line on stderr, nothing written."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch  # noqa: F401  (the first command that imports it says so on standard output)
from bad_command_lines import ROWS

from rl_agents.cli import main

RUN = Path(__file__).parents[2] / "run.py"

CASES = [
    (["--algo", "grop"], "unknown algorithm 'grop': did you mean 'grpo'?"),
    (["--env", "gues_number"], "unknown environment 'gues_number': did you mean 'guess_numbers'?"),
    (["--set", "groupsize=4"], "unknown key 'groupsize': did you mean 'group_size'?"),
    (["--set", "lr"], "--set lr: write it as key=value"),
    (["--set", "lr=fast"], "lr='fast': must be a valid number"),
    (["--set", "env.color=red"], "env.color"),
    (["--iterations", "0"], "iterations=0: must be at least 1"),
    (["--iterations", "many"], "invalid int value: 'many'"),
    (["--iteration", "3"], "unknown flag '--iteration': did you mean '--iterations'?"),
    (["--seed", "1", "--set", "seed=2"], "seed is given twice"),
    (["--algo", "grpo", "--set", "group_size=1"], "group_size=1"),
    (["--algo", "grpo", "--set", "critic_lr=0.1"], "critic_lr"),
    (["--set", "model=no/such/model"], "no/such/model"),
    (["--config", "none.yaml"], "none.yaml: no such file"),
    (["--resume", "nowhere"], "nowhere: no such folder"),
    (["--local", "--set", "engine=vllm"], "--local means engine=torch, but engine=vllm is given"),
    (["--local", "--set", "num_env_runners=2"], "--local means num_env_runners=0"),
    (["--set", "batch_size=8"], "unknown key 'batch_size': set tasks_per_iteration"),
    (["--set", "seed=-1"], "seed=-1: must be at least 0"),
    (["--set", "seed=1e23"], "must be at most 4294967295"),
    (["--set", "lr=nan"], "lr='nan': must be a finite number"),
    (["--set", "env_timeout_s=-1"], "env_timeout_s=-1: must be at least 0"),
    (["--set", "betas=[0.9, 1.5]"], "betas=[0.9, 1.5]: must be below 1"),
    (["--set", "lr_decay=2"], "lr_decay=2: must be at most 1"),
    (["--set", "kl_estimator=k2"], "key 'kl_estimator' has no effect without kl_coef"),
    (["--set", "judge_url=http://here"], "key 'judge_url' has no effect without reward=prs"),
    (["--algo", "vspo", "--set", "vspo_mode=none", "vspo_alpha=3"], "without vspo_mode other than none"),
    (["--pool", "nowhere"], "nowhere: no such pool"),
    (["--pool", "p", "--set", "group_size=4"], "key 'group_size' has no effect with pool=p"),
    (
        ["--pool", "p", "--algo", "chain-gae", "--set", "success_replay=4"],
        "key 'success_replay' has no effect with pool=p",
    ),
    (["--pool", "p", "--set", "pool=q"], "pool is given twice"),
    (
        ["--pool", "p", "--algo", "3spo", "--env", "guess_numbers"],
        "pool=p: 3spo samples at states of its own choice",
    ),
    (["--algo", "grpo", "extra"], "unexpected argument 'extra'"),
    (["trian"], "unknown command 'trian': did you mean 'train'?"),
    (["eval"], "eval needs one of --checkpoint DIR, --model DIR and --compare DIR DIR ..."),
    (["eval", "--model", "nowhere"], "nowhere: no Hugging Face model there"),
    (["eval", "--checkpoint", "nowhere"], "nowhere: no such folder"),
    (["eval", "--model", ".", "--seeds", "0"], "--seeds 0: must be at least 1"),
    (["eval", "--model", ".", "--split", "dev"], "invalid choice: 'dev'"),
    (["sft", "--env", "gues_numbers", "--output", "starter"], "did you mean 'guess_numbers'?"),
    (["sft", "--seed", "1"], "--output"),
    (["list", "--jsn"], "unknown flag '--jsn': did you mean '--json'?"),
]


@pytest.mark.parametrize(("argv", "words"), CASES, ids=[" ".join(argv) for argv, _ in CASES])
def test_one_line_and_exit_code_2(argv, words, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    training = argv[0].startswith("-") and "--resume" not in argv
    assert main([*argv, *(["--output", "out"] if training else [])]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ") and len(captured.err.splitlines()) == 1
    assert words in captured.err
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that is accepted by mistake fails here, and neither trains nor plays."""

    def started(*_: object, **__: object) -> None:
        raise AssertionError("accepted")

    for name in (
        "rl_agents.cli.train._train",
        "rl_agents.cli.evaluate.evaluate",
        "rl_agents.trainer.warm_start.build_starter",
    ):
        monkeypatch.setattr(name, started)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.partition(" => ")[0])
def test_the_table_of_command_lines(row: str, nothing_starts, tmp_path, monkeypatch, capsys) -> None:
    arguments, _, words = row.partition(" => ")
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ") and len(captured.err.splitlines()) == 1
    assert words in captured.err and captured.out == "" and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("argv", [["--algo", "grop"], ["--env", "gues_numbers"], ["--set", "lrr=1"], ["--bogus"]])
def test_the_same_from_a_shell(argv, tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, str(RUN), *argv], cwd=tmp_path, capture_output=True, text=True, env={**os.environ}, check=False
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_broken_yaml_names_file_and_line(tmp_path, capsys) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("lr: 1e-3\ngroup_size: [4\nseed: 1\n")
    assert main(["--config", str(recipe), "--output", str(tmp_path / "out")]) == 2
    assert f"{recipe}:3: broken YAML" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_unknown_key_in_a_recipe_names_the_recipe(tmp_path, capsys) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("learning_ratio: 1e-3\n")
    assert main(["--config", str(recipe), "--output", str(tmp_path / "out")]) == 2
    assert f"{recipe}: unknown key 'learning_ratio'" in capsys.readouterr().err


def test_output_that_is_in_use_is_left_alone(tmp_path, capsys) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "precious.txt").write_text("mine")
    for argv in (["--output", str(out)], ["sft", "--output", str(out)]):
        assert main(argv) == 2
        assert "not empty" in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ["precious.txt"]


@pytest.mark.parametrize(
    ("output", "reason"),
    [("a_file/out", "a_file is a file"), ("x" * 300, "File name too long"), (f"new/{'x' * 300}/out", "name too long")],
)
def test_sft_refuses_an_output_before_any_work(output, reason, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rl_agents.cli.sft.plan", lambda *_: pytest.fail("it resolved the keys"))
    (tmp_path / "a_file").write_text("")
    assert main(["sft", "--output", output]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: --output {output}: cannot be written: ") and error.endswith(f"{reason}\n")
    assert len(error.splitlines()) == 1 and [path.name for path in tmp_path.iterdir()] == ["a_file"]


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch, nothing_starts, capsys) -> None:
    (tmp_path / "a_file").write_text("")
    monkeypatch.setenv("RL_AGENTS_CACHE", str(tmp_path / "a_file"))
    assert main(["sft"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: the cache {tmp_path}/a_file/starters/guess_numbers-")
    assert error.endswith("a_file is a file\n") and len(error.splitlines()) == 1


def test_resume_needs_a_complete_checkpoint(tmp_path, capsys) -> None:
    assert main(["--resume", str(tmp_path)]) == 2
    assert "no config.yaml" in capsys.readouterr().err
    (tmp_path / "config.yaml").write_text("algo: grpo\n")
    (tmp_path / "checkpoints" / ".tmp-000010").mkdir(parents=True)
    assert main(["--resume", str(tmp_path)]) == 2
    assert "no complete checkpoint" in capsys.readouterr().err
