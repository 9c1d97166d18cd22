"""SituationPuzzles with a judge behind a server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from environments import starts
from loopback import Loopback, loopback, saying

from rl_agents.background import wait
from rl_agents.envs.base import env_spec, read_env_options
from rl_agents.envs.options import JudgeKeys
from rl_agents.envs.situation_puzzles import tasks
from rl_agents.envs.situation_puzzles.env import PROMPT, make_judge
from rl_agents.envs.situation_puzzles.tasks import NOT_A_QUESTION, YES, Reply
from rl_agents.rewards.judges import JudgeError
from rl_agents.rollout.env_calls import EnvFailure, call_env

TASK = "lighthouse/0/raiders.pigeon.oath.reef"
started = starts("situation_puzzles", TASK)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with loopback(saying("Yes")) as server:
        yield server


def keys(server: Loopback) -> dict[str, str]:
    return {"judge": "openai", "judge_url": server.url, "judge_model": "referee"}


def test_what_the_server_is_asked(server: Loopback) -> None:
    puzzle = tasks.find_puzzle(TASK)
    question = "Did a {bird} tell him?"
    assert wait(
        make_judge(read_env_options(env_spec("situation_puzzles"), keys(server))).reply(puzzle, question)
    ) == Reply(YES)
    (request,) = server.requests
    asked = request.body["messages"][0]["content"]
    assert asked == PROMPT.format(surface=puzzle.surface, bottom=puzzle.bottom, question=question)
    assert asked.count(puzzle.bottom) == 1 and question in asked


@pytest.mark.parametrize(
    ("said", "reply", "progress"),
    [
        ("**No**", "No", True),
        ("<think>Yes?</think>\n unknown.", "Unknown", False),
        ("Yes, I should check it.</think>\n\nno", "No", True),
        ("YES, he did.", "Yes", True),
        ("This is not a question, please propose your next question.", NOT_A_QUESTION, True),
    ],
)
def test_replies_of_the_server(server: Loopback, said: str, reply: str, progress: bool) -> None:
    server.answer = saying(said)
    observation, *_, info = started(**keys(server)).step("<interact>Was it night?</interact>")
    assert (observation, info["progress"]) == (reply, progress)


def test_a_silent_or_odd_server_ends_the_episode_with_its_cause(
    server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JudgeKeys, "judge_retries", 1)
    env = started(**keys(server), judge_timeout_s=2.0)
    before = env.snapshot()
    ask = "<interact>Was it night?</interact>"
    server.answer = saying("Perhaps")
    with pytest.raises(EnvFailure, match=r"env_error: JudgeError: referee at .*: replied 'Perhaps', none of Yes, No"):
        call_env(0, env.step, ask)
    server.answer = saying("Unknown", statuses=[500, 500])
    with pytest.raises(JudgeError, match=rf"HTTP 500: .*; asked about: {TASK} -> Was it night"):
        env.step(ask)
    server.answer = saying("Unknown", wait_s=30.0)
    with pytest.raises(JudgeError, match=r"no answer within 2 s \(2 attempts\)"):
        env.step(ask)
    assert env.snapshot() == before
    server.answer = saying("Unknown", statuses=[429])
    assert env.step(ask)[0] == "Unknown" and env.snapshot() != before
