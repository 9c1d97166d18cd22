"""SituationPuzzles with a judge behind a server."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec

import pytest

from rl_agents.background import wait
from rl_agents.envs.base import env_spec, named_env, read_env_options
from rl_agents.envs.options import JudgeKeys
from rl_agents.envs.situation_puzzles import tasks
from rl_agents.envs.situation_puzzles.env import SituationPuzzlesEnv
from rl_agents.envs.situation_puzzles.judges import PROMPT, make_judge
from rl_agents.envs.situation_puzzles.rules import NOT_A_QUESTION, YES, Reply
from rl_agents.rewards.judge import JudgeError
from rl_agents.rollout.env_calls import EnvFailure, call_env

make = partial(named_env, "situation_puzzles")

TASK = "lighthouse/0/raiders.pigeon.oath.reef"


def started(task_id: str = TASK, **options: object) -> SituationPuzzlesEnv:
    env = make(**options)
    env.reset(options={"task_id": task_id})
    return env


class Server:
    """A judge on this machine that answers as it is told, and remembers what it was asked."""

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.reply = "Yes"
        self.status: list[int] = []
        self.delay = 0.0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.prompts.append(body["messages"][0]["content"])
                time.sleep(outer.delay)
                self.send_response(outer.status.pop(0) if outer.status else 200)
                self.end_headers()
                self.wfile.write(json.dumps({"choices": [{"message": {"content": outer.reply}}]}).encode())

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that no longer waits
        self.options = {
            "judge": "openai",
            "judge_url": f"http://127.0.0.1:{self.http.server_port}/v1",
            "judge_model": "referee",
        }
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


def test_what_the_server_is_asked(server: Server) -> None:
    puzzle = tasks.find_puzzle(TASK)
    question = "Did a {bird} tell him?"
    assert wait(
        make_judge(read_env_options(env_spec("situation_puzzles"), server.options)).reply(puzzle, question)
    ) == Reply(YES)
    assert server.prompts == [PROMPT.format(surface=puzzle.surface, bottom=puzzle.bottom, question=question)]
    assert server.prompts[0].count(puzzle.bottom) == 1 and question in server.prompts[0]


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
def test_replies_of_the_server(server: Server, said: str, reply: str, progress: bool) -> None:
    server.reply = said
    observation, *_, info = started(**server.options).step("<interact>Was it night?</interact>")
    assert (observation, info["progress"]) == (reply, progress)


def test_a_silent_or_odd_server_ends_the_episode_with_its_cause(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JudgeKeys, "judge_retries", 1)
    env = started(**server.options, judge_timeout_s=0.5)
    before = env.snapshot()
    ask = "<interact>Was it night?</interact>"
    server.reply = "Perhaps"
    with pytest.raises(EnvFailure, match=r"env_error: JudgeError: referee at .*: replied 'Perhaps', none of Yes, No"):
        call_env(0, env.step, ask)
    server.reply, server.status = "Unknown", [500, 500]
    with pytest.raises(JudgeError, match=rf"HTTP 500: .*; asked about: {TASK} -> Was it night"):
        env.step(ask)
    server.delay = 1.5
    with pytest.raises(JudgeError, match=r"no answer within 0.5 s \(2 attempts\)"):
        env.step(ask)
    assert env.snapshot() == before
    server.delay, server.status = 0.0, [429]
    assert env.step(ask)[0] == "Unknown" and env.snapshot() != before


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
@pytest.mark.ray
def test_a_real_vllm_server_is_the_judge(judge_that_says_yes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    options = {"judge": "openai", "judge_url": judge_that_says_yes, "judge_timeout_s": 60.0}
    game = started(**options, judge_model="judge")
    observation, *_, info = game.step("<interact>Were there raiders?</interact>")
    assert (observation, info["progress"], info["anchor"]) == ("Yes", True, f"{TASK} | Were there raiders?: Yes")
    with pytest.raises(JudgeError, match=r"nobody at .*: HTTP 404"):
        started(**options, judge_model="nobody").step("<interact>Were there raiders?</interact>")
