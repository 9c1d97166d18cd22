"""Numbers that an environment reports of a turn (``info["turn_metrics"]``), from its step to every page and log."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rollout.waiting import Step, Waiting

from rl_agents.cli import main
from rl_agents.reporting.trackers import TRACKERS, TrackedRun, TrackerEntry
from rl_agents.rollout.env_calls import EnvFailure, read_step
from rl_agents.store.reader import PoolReader, StoreQuery
from rl_agents.viewer.answers import answer
from rl_agents.viewer.runs import find_runs


class Letters(Waiting):
    """Reports the letters of each action, and at its last turn whether it ended."""

    longest_s = 0.0

    def stepped(self, action: str) -> Step:
        observation, reward, done, truncated, info = super().stepped(action)
        info["turn_metrics"] = {"letters": np.int64(len(action)), **({"ended": True} if done else {})}
        return observation, reward, done, truncated, info


class Kept:
    """A tracker that keeps what it gets."""

    id, logged = "kept", list[Mapping[str, float]]()

    def __init__(self, run: TrackedRun) -> None:
        self.logged.clear()

    def log(self, iteration: int, metrics: Mapping[str, float]) -> None:
        self.logged.append(metrics)

    def episodes(self, iteration: int, rows: Sequence[Mapping[str, Any]]) -> None:
        pass

    def close(self, status: str) -> None:
        pass


def test_they_are_in_every_log_and_next_to_the_turn(
    wide_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setitem(TRACKERS, "kept", TrackerEntry("kept", Kept))
    letters = {"env": "gymnasium:trainer.test_turn_metrics:Letters", "name": "letters", "env_blocking": "inline"}
    recipe = {
        "algo": "grpo", "model": str(wide_model_dir),
        "environments": [letters, {"env": "guess_numbers", "env.prompt": "compact"}],
        "tasks_per_iteration": 2, "group_size": 2, "iterations": 1, "eval_episodes": 0, "trackers": ["kept"],
        "max_response_tokens": 8, "max_model_len": 600, "save_trajectories": 100,
    }  # fmt: skip
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    folder = tmp_path / "run"
    assert main(["--config", str(tmp_path / "recipe.yaml"), "--local", "--output", str(folder)]) == 0
    (record,) = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    episodes = [json.loads(line) for line in (folder / "trajectories" / "000001.jsonl").read_text().splitlines()]
    steps = [step for episode in episodes for step in episode["steps"]]
    said = [step["metrics"]["letters"] for step in steps if step["metrics"]]
    assert len(said) < len(steps) and all(not s["metrics"] or s["metrics"]["letters"] == s["reward"] for s in steps)
    mean = pytest.approx(sum(said) / len(said))
    expected = {"turn/letters": mean, "turn/letters/letters": mean, "turn/ended": 1.0, "turn/ended/letters": 1.0}
    assert {tag: value for tag, value in record.items() if tag.startswith("turn/")} == expected
    assert expected.items() <= Kept.logged[-1].items()
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    assert events.Scalars("turn/letters/letters")[0].value == mean

    with PoolReader(folder / "pool.sqlite") as reader:
        stored = next(reader.stored(StoreQuery(env=letters["env"])))
        own = [step.metrics for step in reader.trajectory(stored).steps]
    assert own == [{"letters": s["reward"]} | ({"ended": 1.0} if s is t["steps"][-1] else {}) for t in episodes
                   if t["task_id"] == stored.session.task_id and t["member"] == stored.session.member
                   for s in t["steps"]]  # fmt: skip
    asked = {"run": "run", "session": stored.session.id}
    page = json.loads(answer(find_runs([str(folder)]), "episode", asked))
    assert [step["metrics"] for step in page["steps"]] == own
    capsys.readouterr()
    assert main(["pool", str(folder), "show", stored.session.id]) == 0
    assert f"letters {own[-1]['letters']:g}, ended 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("reported", "problem"),
    [
        ({"a": float("nan")}, "info['turn_metrics']['a'] is float nan, not a finite number"),
        ({"a": "3"}, "info['turn_metrics']['a'] is str '3', not a finite number"),
        ({"a": None}, "info['turn_metrics']['a'] is NoneType None, not a finite number"),
        ({"a": np.ones(2)}, "info['turn_metrics']['a'] is ndarray array([1., 1.]), not a finite number"),
        ({"a b": 1.0}, "info['turn_metrics'] has the name str 'a b': use ASCII letters, digits and _.-"),
        ({"a/b": 1.0}, "info['turn_metrics'] has the name str 'a/b': use ASCII letters, digits and _.-"),
        ({"é": 1.0}, r"info['turn_metrics'] has the name str '\xe9': use ASCII letters, digits and _.-"),
        ({"": 1.0}, "info['turn_metrics'] has the name str '': use ASCII letters, digits and _.-"),
        ({1: 1.0}, "info['turn_metrics'] has the name int 1: use ASCII letters, digits and _.-"),
        ([1.0], "info['turn_metrics'] is list [1.0], not a dict"),
    ],
)
def test_other_values_and_names_fail_the_episode_and_name_the_environment(reported: Any, problem: str) -> None:
    with pytest.raises(EnvFailure) as failure:
        read_step(("seen", 0.0, False, False, {"turn_metrics": reported}), env=Letters())
    assert str(failure.value).startswith(f"env_garbage: {problem} (waiting.py:")
