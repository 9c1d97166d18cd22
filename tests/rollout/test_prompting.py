"""ReAct and Reflexion around a real environment, in the loop of a small model, and from the command line."""

import json
from pathlib import Path

import pytest

from rl_agents.chat.template import Dialogue
from rl_agents.cli import main
from rl_agents.data.trajectory import Step
from rl_agents.envs.base import make_env
from rl_agents.envs.guess_numbers.env import GuessNumbersEnv
from rl_agents.rollout.env_calls import read_step
from rl_agents.rollout.prompting import MEMORY_HEADING, REACT_INSTRUCTION, ReAct, Reflexion
from rl_agents.rollout.turns import next_dialogue

TASK = {"task_id": "3-4-0-3/123/231"}
WRONG, RIGHT = "<answer>312</answer>", "<answer>231</answer>"


def test_messages_that_stand_for_the_task_are_told_alike() -> None:
    """Environments with tools begin with a chat: instruction and notes belong to its last message."""
    bare = make_env("multihop_qa", {})
    question, plain = bare.reset(seed=3)
    env = Reflexion(ReAct(bare), max_turns=5)
    _, info = env.reset(seed=3)
    assert [message["role"] for message in info["messages"]] == ["system", "user"]
    assert info["messages"][-1]["content"] == f"{REACT_INSTRUCTION}\n\n{question}" and info["tools"] == plain["tools"]
    env.step("<answer>no idea</answer>")
    first = Dialogue.start("x")
    answer = read_step(env.step("search first"))
    again = next_dialogue(first, Step([], [], [], 0, "stop", "", "", ""), answer)
    messages = json.loads(again.chat)["messages"]
    assert messages[0] == plain["messages"][0]
    assert messages[-1]["content"] == f"{REACT_INSTRUCTION}\n\n{question}\n\n{MEMORY_HEADING}\n- search first"
    assert json.loads(again.chat)["tools"] == plain["tools"]


def test_failed_attempts_are_reflected_on_and_the_last_or_a_solved_one_ends() -> None:
    env = Reflexion(GuessNumbersEnv(), max_turns=10)
    task, _ = env.reset(seed=1, options=TASK)
    request, reward, terminated, truncated, info = env.step(WRONG)
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert "Do not act now" in request
    again, _, _, _, info = env.step("  ask before answering ")
    assert info["new_dialogue"]
    assert again == f"{task}\n\n{MEMORY_HEADING}\n- ask before answering"
    _, reward, terminated, _, info = env.step(RIGHT)
    assert (reward, terminated, info["success"]) == (1.0, True, True)
    assert info["metrics"]["trials"] == 2
    assert info["metrics"]["solved_in_trial_1"] == 0
    env = Reflexion(GuessNumbersEnv(), max_turns=10)
    env.reset(options=TASK)
    for note in ("one", "two"):
        env.step(WRONG)
        observation, *_ = env.step(note)
    assert observation.endswith("- one\n- two")
    _, _, terminated, _, info = env.step(WRONG)
    assert terminated
    assert not info["success"]
    env.reset(options=TASK)
    _, reward, terminated, _, info = env.step(RIGHT)
    assert (reward, terminated, info["metrics"]["solved_in_trial_1"]) == (1.0, True, 1.0)
    short = Reflexion(GuessNumbersEnv(), max_turns=2)
    short.reset(options=TASK)
    assert "Do not act now" in [short.step(f"<interact>12{digit}</interact>")[0] for digit in (3, 4)][1]


def test_one_command_compares_prompting(beginner_model_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(beginner_model_dir)
    policies = [model, f"react:{model}", f"reflexion:{model}"]
    keys = ["--episodes", "8", "--seeds", "1", "--local"]
    assert main(["eval", "--env", "guess_numbers", "--compare", *policies, *keys]) == 0
    output = capsys.readouterr()
    reports = json.loads(output.out)
    assert list(reports) == policies
    assert [report["prompting"] for report in reports.values()] == ["direct", "react", "reflexion"]
    assert "| policy | success [95 % interval] |" in output.err
