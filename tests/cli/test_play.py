"""The play command on real environments."""

import io
import re

import pytest

from rl_agents.cli import main


@pytest.mark.parametrize("env", ["guess_numbers", "alfworld"])
def test_the_script_shows_observations_actions_and_rewards(env: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "--env", env, "--episodes", "3"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{env}, policy scripted: the environment's ")
    assert out.count("=== task ") == out.count("=== terminated: return ") + out.count("=== max_turns: return ") == 3
    assert "--- turn 1, environment:\n    " in out and "agent:\n    " in out and "\nreward 1\n" in out
    assert "3 episodes: " in out.splitlines()[-1] and "0 failed" in out.splitlines()[-1]


def test_the_expert_of_alfworld_solves_what_chance_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "--env", "alfworld", "--episodes", "4"]) == 0
    assert "4 solved" in capsys.readouterr().out
    assert main(["play", "--env", "alfworld", "--episodes", "4", "--policy", "random"]) == 0
    assert "0 solved" in capsys.readouterr().out


def test_the_same_seed_plays_the_same_episode(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for seed in ("1", "1", "2"):
        assert main(["play", "--policy", "random", "--seed", seed]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] != shown[2]


def test_a_person_plays_until_the_input_ends(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("123\nnonsense\n"))
    assert main(["play", "--policy", "human"]) == 0
    out = capsys.readouterr().out
    assert "agent:\n    123" in out and ", not a valid action" in out
    assert "=== stopped: no further action: return " in out


@pytest.mark.parametrize("blocking", ["auto", "thread"])
def test_an_environment_that_is_never_made_is_one_line(blocking: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--env", "gymnasium:rollout.waiting:NeverMade", "--policy", "random"]
    assert main(["play", *flags, "--set", "env_start_timeout_s=1", f"env_blocking={blocking}"]) == 2
    error = capsys.readouterr().err
    reason = r"fails: env_timeout: start: no answer within 1 s \(waiting\.py:\d+\) \(env_start_timeout_s\)"
    assert re.search(reason, error) and len(error.splitlines()) == 1


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--policy", "rando"], "--policy rando: did you mean 'random'?"),
        (["--env", "gymnasium:FrozenLake-v1"], "has no scripted player; use --policy random or human"),
        (["--episodes", "0"], "--episodes 0: must be at least 1"),
    ],
)
def test_bad_input_is_one_line(flags: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", *flags]) == 2
    error = capsys.readouterr().err
    assert words in error and len(error.splitlines()) == 1
