"""A run's views: progress lines, table, plot, TensorBoard, episodes."""

import io
import json
import time
from pathlib import Path

import pytest

from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.reporting.progress import Progress, plain_line
from rl_agents.reporting.statistics import evaluation_metrics
from rl_agents.reporting.views import TensorBoardLog, episode_rows, plot_success, readable, write_trajectories

RECORD = {
    "iteration": 12, "rollout/success_rate": 0.62, "rollout/return_mean": 0.62, "rollout/turns_mean": 3.1,
    "rollout/response_tokens": 1893.0, "rollout/failed_episodes": 0.0, "actor/pg_loss": 0.01,
    "rollout_corr/logprob_diff_mean": 2.1e-6, "timing_s/iteration": 4.12, "eval/success_rate": 0.71,
    "eval/success_low": 0.64, "eval/success_high": 0.78,
}  # fmt: skip


def episode(success: bool, text: str = "I guess 123", cause: str = "terminated", failed: bool = False) -> Trajectory:
    steps = [Step([1, 2, 3], [4, 5], [-0.5, -0.1], 0, "stop", "Guess!", "Guess!", text, float(success), valid=success)]
    return Trajectory("123", 0, 0, 0, steps, not failed, False, cause, failed, success)


def test_plain_line() -> None:
    assert plain_line(RECORD, 50) == (
        "iter 12/50  success 0.62  return 0.62  turns 3.1  tokens 1893  logprob diff 2e-6  4.1 s  "
        "(eval 0.71 [0.64, 0.78])"
    )
    assert plain_line({"iteration": 3, "actor/pg_loss": 1.5}, 5) == "iter 3/5  loss 1.5000"
    assert "  5.6 s  (eval" in plain_line({**RECORD, "timing_s/checkpoint": 1.5}, 50)
    different = {**RECORD, "rollout_corr/logprob_diff_mean": 0.004}
    assert "logprob diff 4e-3 (normal in float32: up to 1e-5)  4.1 s" in plain_line(different, 50)
    assert "logprob diff 4e-3  4.1 s" in plain_line(different, 50, "bfloat16")
    assert "failed 2" in plain_line({**RECORD, "rollout/failed_episodes": 2.0}, 50)
    assert plain_line({"iteration": 3, "rollout/success_rate": None}, 5) == "iter 3/5"
    small = {"iteration": 1, "actor/pg_loss": -1e-9, "search/score_mean": -0.001}
    assert plain_line(small, 1) == "iter 1/1  score 0.00  loss 0.0000", "a zero has no sign"


def test_a_search_shows_the_success_of_the_policy_before_its_own() -> None:
    tags = {"rollout/success_rate": 0.5, "search/success_rate": 1.0, "search/states_known": 80.0}
    record = {"iteration": 1, **tags, "actor/pg_loss": 0.1, "collapse_monitor/success": 0.4}
    assert plain_line(record, 5) == "iter 1/5  success 0.50  search 1.00  states 80"
    fallen = {**record, "collapse_monitor/start": 0.6, "collapse_monitor/below": 1.0}
    assert plain_line(fallen, 5) == "iter 1/5  success 0.50  search 1.00  policy 0.40  below start 0.60  states 80"
    unwatched = {"iteration": 1, "search/success_rate": 1.0, "actor/pg_loss": 0.1}
    assert plain_line(unwatched, 5) == "iter 1/5  search 1.00"


def test_lines_are_flushed_one_by_one_when_nobody_watches() -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    progress.note("engine torch")
    progress.update(RECORD, 50)
    assert stream.getvalue().splitlines() == ["engine torch", plain_line(RECORD, 50)]


def test_plot_of_nothing_is_no_file(tmp_path: Path) -> None:
    assert not plot_success([{"iteration": 1, "actor/pg_loss": 1.0}], tmp_path / "success.png", "sft")
    assert not (tmp_path / "success.png").exists()


def test_tensorboard_forgets_what_a_resumed_run_does_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    first = TensorBoardLog(tmp_path)
    for iteration in range(1, 6):
        first.write({"iteration": iteration, "rollout/success_rate": 0.1, "seconds": 3.0, "actor/grad_norm": None})
    first.close()
    later = time.time() + 2  # files are read in the order of their names, which hold the second
    monkeypatch.setattr(time, "time", lambda: later)
    second = TensorBoardLog(tmp_path, resumed_at=3)
    second.write({"iteration": 4, "rollout/success_rate": 0.9})
    second.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert events.Tags()["scalars"] == ["rollout/success_rate"]
    assert [(e.step, round(e.value, 1)) for e in events.Scalars("rollout/success_rate")] == [
        (1, 0.1), (2, 0.1), (3, 0.1), (4, 0.9),
    ]  # fmt: skip


def test_trajectory_files_round_trip(tmp_path: Path) -> None:
    episodes = [episode(False), episode(True), episode(True)]
    write_trajectories(tmp_path, 2, 7, episodes)
    write_trajectories(tmp_path, 2, 7, episodes, evaluation=True)
    saved = [json.loads(line) for line in (tmp_path / "000007.jsonl").read_text().splitlines()]
    assert [Trajectory.from_json(data) for data in saved] == episodes[:2]
    assert (tmp_path / "eval-000007.jsonl").exists()
    assert (tmp_path / "latest.md").read_text().startswith("# Iteration 7, evaluation: 3 episodes, 2 solved")


def test_readable_shows_best_worst_and_failed() -> None:
    broken = episode(False, cause="env_error: KeyError", failed=True)
    text = readable("Iteration 1", [episode(False, "```\nfenced"), broken, episode(True)])
    best, worst, failed = (text.index(f"## {label}: ") for label in ("Best", "Worst", "Failed"))
    assert best < worst < failed
    assert "ended by env_error: KeyError" in text[failed:]
    assert "    ```\n    fenced" in text[worst:failed] and "invalid" in text[worst:failed]
    assert "no environment failed" in readable("Iteration 1", [episode(True)])


def test_a_table_of_episodes_begins_with_best_worst_and_failed() -> None:
    broken = episode(False, cause="env_error: KeyError", failed=True)
    others = [episode(False) for _ in range(9)]
    rows = episode_rows(3, [*others, broken, episode(True)])
    assert [row["kind"] for row in rows] == ["best", "worst", "failed", *["other"] * 5]
    assert [(row["iteration"], row["success"], row["turns"]) for row in rows[:2]] == [(3, True, 1), (3, False, 1)]
    assert rows[2]["end"] == "env_error: KeyError" and rows[0]["episode"].startswith("## Best: return")
    assert [row["kind"] for row in episode_rows(3, [broken])] == ["failed"] and episode_rows(3, []) == []


def test_evaluation_counts_broken_episodes_as_not_solved() -> None:
    metrics = evaluation_metrics([episode(True), episode(False), episode(False, failed=True), episode(True)])
    assert metrics["eval/success_rate"] == 0.5
    assert metrics["eval/failed_episodes"] == 1
    assert metrics["eval/success_low"] < 0.5 < metrics["eval/success_high"]
    assert metrics["eval/turns_mean"] == 1


def test_iterations_are_whole_numbers_on_the_axis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    ticks: list[float] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path: ticks.extend(self.axes[0].get_xticks()))
    plot_success([{"iteration": n, "rollout/success_rate": 0.5} for n in (1, 2, 3)], tmp_path / "p.png", "t")
    assert ticks and all(tick == round(tick) for tick in ticks)
