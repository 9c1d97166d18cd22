"""T3's four further tasks on the command line, with their own untaught starters: an iteration, truncated by T3."""

import json
from pathlib import Path

import pytest

from rl_agents.cli import main
from rl_agents.trainer.algorithm import AgentAlgorithm
from rl_agents.trainer.warm_start import build_starter

pytestmark = pytest.mark.rllib

#: Enough to speak: most actions can be read, few are good.
TAUGHT = {"iterations": 2, "demonstrations": 128, "tasks_per_iteration": 128, "minibatches": 8}
KEYS = [
    "iterations=1", "tasks_per_iteration=2", "group_size=4", "eval_episodes=8", "eval_interval=0", "max_turns=4",
    "truncation=t3", "truncation_window=1",
]  # fmt: skip
ENVIRONMENTS = ["movie_recommendation", "situation_puzzles"]


@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_a_run_from_the_starter(env: str, tmp_path: Path) -> None:
    model, output = build_starter(AgentAlgorithm.from_settings, env, tmp_path / "model", set=TAUGHT), tmp_path / "run"
    argv = ["--algo", "grpo", "--env", env, "--local", "--output", str(output), "--set", f"model={model}", *KEYS]
    assert main(argv) == 0
    summary = json.loads((output / "summary.json").read_text(encoding="utf-8"))
    assert (summary["status"], summary["iterations"], summary["episodes"]) == ("done", 1, 8)
    assert summary["failed_episodes"] == 0
    records = [json.loads(line) for line in (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {"truncation/ratio", "rollout/success_rate"} <= set(records[-1])
    assert (output / "checkpoints" / "000001" / "hf" / "model.safetensors").is_file()
