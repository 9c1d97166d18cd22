"""Claude Code and Codex as released (npm packages) play a repository task through the real gateway, with exact tokens.

They need ``make coding-agents``. Without them, `gateway.test_recorded_agents` replays what they sent.
"""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from gateway.models import tokenizer
from rollout.scripted import ScriptedEngine

from rl_agents.chat.template import make_context
from rl_agents.data.trajectory import EpisodeSpec
from rl_agents.envs.blackbox import BlackboxOptions
from rl_agents.envs.blackbox.agents import load_agent
from rl_agents.rollout.blackbox import BlackBox, collect_blackbox
from rl_agents.rollout.turns import Limits

ROOT = Path(__file__).parents[3]
BIN = ROOT / ".venv-clients" / "node_modules" / ".bin"
TASKS = ROOT / "docs/examples/agents/repository_tasks.jsonl"
CONTEXT = make_context("append", tokenizer())
pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(not (BIN / "claude").exists(), reason="no npm packages: make coding-agents"),
]
COUNT = {"claude": ("Bash", {"command": "wc -w < words.txt | tr -d ' ' > count.txt", "description": "count"}),
         "codex": ("exec_command", {"cmd": "wc -w < words.txt | tr -d ' ' > count.txt"})}  # fmt: skip
LOOK = {"claude": ("Bash", {"command": "cat count.txt", "description": "look"}),
        "codex": ("exec_command", {"cmd": "cat count.txt"})}  # fmt: skip


def called(name: str, arguments: dict) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


@pytest.mark.parametrize("command", ["claude", "codex"])
def test_a_repository_task_of_three_turns_is_solved_with_exact_tokens(command, tmp_path, monkeypatch):
    def script(prompt: str) -> str:
        after = prompt.rpartition("number of words of words.txt")[2]
        turns = after.count("<tool_call>")
        if turns == 0:
            return "<think>I count.</think>" + called(*COUNT[command])
        return "I look." + called(*LOOK[command]) if turns == 1 else "Done."

    monkeypatch.setenv("PATH", str(BIN), prepend=":")
    engine = ScriptedEngine(tokenizer(), script)
    line = f"{sys.executable} {ROOT}/docs/examples/agents/coding_command.py {command}"
    options = BlackboxOptions(agent_command=line, tasks=str(TASKS), agent_timeout_s=200.0)
    specs = [EpisodeSpec("count", 0, 0, seed=3)]
    limits = Limits(max_turns=8, max_response_tokens=1000, max_model_len=200_000)
    box = BlackBox(load_agent(options), options, limits.max_turns)
    (trajectory,) = asyncio.run(collect_blackbox(specs, box, engine, CONTEXT.template, limits)).trajectories
    assert (trajectory.end_cause, trajectory.success) == ("terminated", True), trajectory.end_cause
    steps = [step for step in trajectory.steps if "number of words" in tokenizer().decode(step.prompt_ids)]
    first, second, third = steps[-3:]
    for step, following in ((first, second), (second, third)):
        exact = [*step.prompt_ids, *step.response_ids]
        assert following.prompt_ids[: len(exact)] == exact
    assert "4" in tokenizer().decode(third.prompt_ids[len(second.prompt_ids) + len(second.response_ids) :])
    assert "rewrites" not in trajectory.facts.get("gateway", {})
