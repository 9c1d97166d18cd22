"""Environments that break a run, through the command line as a user meets them: exit 1, and the cause on screen."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from rl_agents.cli import main
from rl_agents.envs.gymnasium_adapter import FIRST_TEST_SEED

SMALL = [
    "tasks_per_iteration=4", "group_size=2", "eval_episodes=4", "max_response_tokens=6", "max_model_len=128",
    "max_turns=3", "save_trajectories=0",
]  # fmt: skip


class Bad(gymnasium.Env[str, str]):
    """Misbehaves as ``way`` says; ``share`` of the tasks are bad."""

    #: With ``way="later"`` everything breaks as soon as this file has two lines.
    records = Path("none")
    observation_space = action_space = gymnasium.spaces.Text(1 << 16)

    def __init__(self, way: str = "", bad_of_10: int = 10) -> None:
        self.way, self.bad_of_10 = way, bad_of_10

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.bad = (seed or 0) % 10 < self.bad_of_10
        if self.bad and self.way == "reset":
            raise ValueError("no display")
        if (seed or 0) < FIRST_TEST_SEED and self.way == "training":
            raise ValueError(f"no display {seed}")
        if self.way == "later" and self.records.exists() and len(self.records.read_text().splitlines()) > 1:
            raise ValueError("gone")
        if self.bad and self.way == "hang":
            time.sleep(60)
        return "3 of 4 : 123 1A2B", {}

    def step(self, action: str) -> Any:
        if self.bad and self.way == "nan":
            return "x", float("nan"), True, False, {}
        return "x", float(len(action) % 2), True, False, {"valid": self.way != "invalid"}


gymnasium.register("tests/Bad-v0", entry_point=lambda **kwargs: Bad(**kwargs))


def train(
    model: Path, out: Path, way: str, *keys: str, iterations: int = 2, bad_of_10: int = 10, algo: str = "grpo"
) -> int:
    flags = ["--algo", algo, "--env", "gymnasium:tests/Bad-v0", "--local", "--output", str(out)]
    environment = [f"model={model}", f"env.kwargs={{way: {way}, bad_of_10: {bad_of_10}}}"]
    chosen = {item.partition("=")[0]: item for item in [*environment, *SMALL, *keys]}
    return main([*flags, "--iterations", str(iterations), "--set", *chosen.values()])


@pytest.mark.parametrize(
    ("way", "cause"),
    [
        ("reset", "env_error: ValueError: no display (test_bad_environments.py:"),
        ("hang", "env_timeout: reset: no answer within 0.2 s"),
    ],
)
def test_a_run_whose_episodes_all_fail_ends_with_the_cause(beginner_model_dir, tmp_path, capsys, way, cause) -> None:
    assert train(beginner_model_dir, tmp_path / "run", way, "env_timeout_s=0.2") == 1
    out, err = capsys.readouterr()
    line = f"4 of 4 evaluation episodes failed; most often (4): {cause}"
    assert (out.count(line), err.count(line)) == (0, 1), "once, by the error that ends the run"
    assert len(err.strip().splitlines()[-1:]) == 1 and "max_failed_share=0.5" in err
    assert json.loads((tmp_path / "run/summary.json").read_text())["status"] == "failed"


def test_failures_beyond_the_share_end_the_run_and_below_it_they_are_said_once(beginner_model_dir, tmp_path, capsys):
    keys = ("tasks_per_iteration=10", "env.train_tasks=10", "eval_episodes=10", "env.test_tasks=10")
    assert train(beginner_model_dir, tmp_path / "a", "nan", *keys, bad_of_10=4, iterations=3) == 0
    out = capsys.readouterr().out
    # Said in the first iteration, still so in the second, over in the third: the tasks are left out.
    assert out.count("8 of 20 episodes failed; most often (8): env_garbage: reward is float nan") == 1
    assert out.count("4 tasks are excluded from sampling from now on (env_garbage: ") == 1
    assert json.loads((tmp_path / "a/summary.json").read_text())["failed_episodes"] == 16

    assert train(beginner_model_dir, tmp_path / "b", "nan", *keys, "max_failed_share=0.05", bad_of_10=4) == 1
    assert "(max_failed_share=0.05)" in capsys.readouterr().err


def test_what_was_complete_is_kept_when_an_iteration_has_nothing_to_learn_from(
    beginner_model_dir: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A method that chooses among episodes ends within such an iteration."""
    monkeypatch.setattr(Bad, "records", tmp_path / "run/metrics.jsonl")
    keys = ("checkpoint_interval=0", "eval_interval=0", "dynamic_sampling=false")
    assert train(beginner_model_dir, tmp_path / "run", "later", *keys, algo="dapo") == 1
    err = capsys.readouterr().err
    assert "8 of 8 episodes failed; most often (8): env_error: ValueError: gone" in err
    assert "Resume with" not in err, "the environment would raise again"
    assert [path.name for path in (tmp_path / "run/checkpoints").iterdir()] == ["000001"]


def test_a_run_says_once_what_keeps_its_episodes_from_teaching(beginner_model_dir, tmp_path, capsys) -> None:
    keys = ("max_response_tokens=1", "max_failed_share=0.5")
    assert train(beginner_model_dir, tmp_path / "run", "invalid", *keys, iterations=3) == 0
    out = capsys.readouterr().out
    assert out.count("have a response cut at max_response_tokens=1") == 1
    assert out.count("never contain a valid action") == 1
    assert out.count("have no advantage") == 1
    assert "are cut by the context" not in out


def test_a_search_whose_start_states_all_break_ends_as_other_methods_do(beginner_model_dir, tmp_path, capsys) -> None:
    keys = ("search_steps=16", "tasks_per_iteration=8")
    assert train(beginner_model_dir, tmp_path / "run", "training", *keys, algo="3spo") == 1
    out, err = capsys.readouterr()
    line = "8 of 8 episodes failed; most often (8): env_error: ValueError: no display "
    assert (out.count(line), err.count(line)) == (0, 1), "once, by the error that ends the run"
    assert "max_failed_share=0.5" in err and "Traceback" not in err and "Resume with" not in err
    assert len(err[err.index("error: ") :].splitlines()) == 1
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert (summary["status"], summary["failed_episodes"], summary["checkpoint"]) == (
        "failed", 8, "checkpoints/000001",
    )  # fmt: skip
    assert (tmp_path / "run/checkpoints/000001/search.json").is_file()


def test_an_evaluation_says_what_spoils_its_figures(
    beginner_model_dir: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_agents.errors._reported", set())  # earlier tests of this process have seen the line
    flags = ["--model", str(beginner_model_dir), "--env", "gymnasium:tests/Bad-v0", "--local", "--json"]
    count = ["--episodes", "10", "--seeds", "2"]
    keys = ["max_response_tokens=1", "max_model_len=128", "max_turns=3", "env.test_tasks=10"]
    bad = ["env.kwargs={way: reset, bad_of_10: 3}"]
    assert main(["eval", *flags, *count, "--set", *keys, *bad]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["failed_episodes"] == 6 and len(out.splitlines()) == 1
    assert err.count("6 of 20 evaluation episodes failed; most often (6): env_error: ValueError: no display (") == 1
    assert "have a response cut" not in err  # the limit was chosen, and the environment reads what is left
    assert err.count("with shaped rewards set env.success_return=R") == 1
    assert "advantage" not in err

    other = shutil.copytree(beginner_model_dir, tmp_path / "other")
    compared = ["eval", "--compare", str(other), str(beginner_model_dir), "--env", "guess_numbers", "--local"]
    assert main([*compared, *count, "--set", "max_response_tokens=1", "max_model_len=128"]) == 0
    err = capsys.readouterr().err
    for label in (other, beginner_model_dir):
        assert err.count(f"[rl_agents] {label}: 100% of the episodes have a response cut") == 1
    assert "success_return" not in err


def test_tasks_that_hang_are_left_out_and_the_run_goes_on(beginner_model_dir, tmp_path, capsys) -> None:
    keys = ("env_timeout_s=0.2", "env.train_tasks=10", "tasks_per_iteration=10")
    assert train(beginner_model_dir, tmp_path / "run", "hang", *keys, bad_of_10=2, iterations=3) == 0
    assert (
        "2 tasks are excluded from sampling from now on (env_timeout: reset: no answer within 0.2 s "
        in capsys.readouterr().out
    )
    records = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [r.get("rollout/failed_episodes") for r in records] == [None, 4.0, 0.0, 0.0]
    state = json.loads(next((tmp_path / "run/checkpoints").glob("000003/state.json")).read_text())
    assert sorted(state["counters"]["left_out"]) == ["seed-0", "seed-1"]


def test_a_first_strike_counts_after_a_resume(beginner_model_dir: Path, tmp_path: Path, capsys: Any) -> None:
    keys = ("tasks_per_iteration=10", "env.train_tasks=10")
    assert train(beginner_model_dir, tmp_path / "run", "nan", *keys, bad_of_10=2, iterations=1) == 0
    assert "left out" not in capsys.readouterr().out
    assert main(["--resume", str(tmp_path / "run"), "--local", "--iterations", "3"]) == 0
    assert "2 tasks are excluded from sampling from now on (env_garbage: " in capsys.readouterr().out
    records = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [r.get("rollout/failed_episodes") for r in records] == [None, 4.0, 4.0, 0.0]
