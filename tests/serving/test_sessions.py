"""Agent sessions: the episodes of training, turn by turn, over HTTP requests in this process."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import slow_env
from in_process import Server, problem
from scripted_model import MAX_TOKENS, write_babbler, write_model

from rl_agents.chat.template import load_tokenizer, make_context
from rl_agents.data.trajectory import EpisodeSpec, Trajectory
from rl_agents.envs.base import make_env, task_ids
from rl_agents.rollout.agent_loop import Episode
from rl_agents.rollout.turns import Limits

RUN = {"max_model_len": MAX_TOKENS, "max_response_tokens": 6, "env.prompt": "compact"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Greets in the environment ``slow``."""
    folder = write_model(tmp_path_factory.mktemp("models") / "greeter", ["hello", "dear", "world"])
    options = {"env": "slow", "max_model_len": MAX_TOKENS, "max_response_tokens": 6}
    limits = {"max_sessions": 2, "request_timeout_s": 3.0, "env_timeout_s": 0}
    server = Server(folder, **options, **limits)
    yield server
    slow_env.RELEASE.set()
    server.close()


def start(server: Server, **fields: Any) -> dict[str, Any]:
    response = server.request("POST", "/agent/sessions", fields)
    assert response.status_code == 201, response.text
    return response.json()


def step(server: Server, session: dict[str, Any], **fields: Any) -> dict[str, Any]:
    response = server.request("POST", f"/agent/sessions/{session['id']}/step", fields)
    assert response.status_code == 200, response.text
    return response.json()


def close(server: Server, session: dict[str, Any]) -> None:
    assert server.request("DELETE", f"/agent/sessions/{session['id']}").status_code == 204


def trained_way(server: Server, seed: int, context: str) -> Trajectory:
    """Play the episode as an env runner does."""
    settings = server.settings
    task = task_ids(settings.env, "test", settings.env_options)[seed]
    env = make_env(settings.env, settings.env_options)
    limits = Limits.from_settings(settings).for_evaluation(settings.eval_temperature)
    policy = make_context(context, load_tokenizer(settings.model))
    engine = server.policy._engine
    return server.run(Episode(EpisodeSpec(task, 0, 0, seed), env, engine, policy, limits).play())


@pytest.mark.parametrize("context", ["append", "window(2)", "summary(0)"])
def test_a_session_is_the_episode_that_an_env_runner_plays(tmp_path: Path, context: str) -> None:
    server = Server(write_babbler(tmp_path / "babbler"), context=context, **RUN)
    for seed in (3, 4):
        session, turns = start(server, seed=seed), []
        while not (turns and turns[-1]["done"]):
            turns.append(step(server, session))
        expected = trained_way(server, seed, context)
        played = server.service.sessions.get(session["id"]).episode.trajectory
        assert len(expected.steps) > 2 and session["task_id"] == expected.task_id
        assert [s.prompt_ids for s in played.steps] == [s.prompt_ids for s in expected.steps]
        assert [s.response_ids for s in played.steps] == [s.response_ids for s in expected.steps]
        assert [t["text"] for t in turns if t["text"]] == [s.action for s in expected.steps if not s.is_summary]
        summaries = [s.action for s in expected.steps if s.is_summary]
        assert [t["info"]["summary"] for t in turns if "summary" in t["info"]] == summaries
        assert bool(summaries) == context.startswith("summary")
        assert turns[-1]["info"]["outcome"]["end_cause"] == expected.end_cause
        close(server, session)
    server.close()


def test_turns_of_agent_and_person_can_be_read_and_reread(server: Server) -> None:
    slow_env.CLOSED.clear()  # lengths were measured in an environment of their own
    session = start(server, task_id="plain", temperature=0)
    assert (session["observation"], session["task"], session["done"]) == ("hello", "hello", False)
    first = step(server, session)
    assert first["observation"] == "dear hello dear world" and first["text"] == "hello dear world"
    assert (first["reward"], first["done"], first["info"]["by"]) == (0.5, False, "agent")
    assert first["info"]["response_tokens"] == 4 and first["info"]["checkpoint"] == "greeter"
    second = step(server, session, action="<think> 2 </think> my  Own words")
    assert second["text"] == "<think> 2 </think> my  Own words" and second["action"] == "my Own words"
    assert second["observation"] == f"dear {second['text']}"  # the environment reads the person's own words
    third = step(server, session)
    assert third["done"] and third["info"]["outcome"] == {
        "success": True, "return": 1.5, "end_cause": "terminated", "metrics": {},
    }  # fmt: skip
    view = server.request("GET", f"/agent/sessions/{session['id']}").json()
    assert view["turns"] == [first, second, third] and view["done"]
    again = server.request("POST", f"/agent/sessions/{session['id']}/step", {})
    assert problem(again)[:2] == (409, "episode_ended")
    episode = server.service.sessions.get(session["id"]).episode
    own = episode.trajectory.steps[1]
    assert own.response_ids[-1] == episode.player.context.template.end_of_turn
    assert episode.trajectory.steps[2].prompt_ids[: len(own.prompt_ids)] == own.prompt_ids
    close(server, session)
    assert problem(server.request("GET", f"/agent/sessions/{session['id']}"))[:2] == (404, "session_not_found")
    for _ in range(1000):  # the environment is closed in the session's own thread
        if slow_env.CLOSED:
            break
        server.run(asyncio.sleep(0.02))
    assert slow_env.CLOSED == ["plain"]


def test_what_cannot_be_opened_says_why(server: Server) -> None:
    def refusal(**fields: Any) -> tuple[int, str, str]:
        return problem(server.request("POST", "/agent/sessions", fields))

    assert refusal(task_id="no-reset")[:2] == (502, "environment_failed")
    assert refusal(task="plain")[2] == "unknown field 'task': did you mean 'task_id'?"
    session = start(server, task_id="plain")
    path = f"/agent/sessions/{session['id']}/step"
    assert problem(server.request("POST", path, {"action": "hello " * 70}))[:2] == (400, "invalid_value")
    assert problem(server.request("POST", path, {"action": "x" * 20_000}))[0] == 400
    assert step(server, session)["text"] == "hello dear world"  # what was refused has changed nothing
    close(server, session)
    assert server.service.sessions.count == 0


def test_a_turn_whose_client_left_is_on_record(server: Server) -> None:
    session = start(server, task_id="plain")

    async def leave() -> None:
        work = asyncio.create_task(server.service.sessions.step(session["id"], None))
        await asyncio.sleep(0.001)
        work.cancel()

    server.run(leave())
    for _ in range(1000):
        if (view := server.request("GET", f"/agent/sessions/{session['id']}").json())["turns"]:
            break
        server.run(asyncio.sleep(0.02))
    assert [turn["text"] for turn in view["turns"]] == ["hello dear world"]
    close(server, session)


def test_a_failing_environment_ends_its_own_episode(server: Server) -> None:
    session = start(server, task_id="raise")
    step(server, session)
    end = step(server, session)
    assert end["done"] and end["info"]["outcome"]["end_cause"].startswith("env_error: ValueError: lost a piece (")
    assert not end["info"]["outcome"]["success"]
    close(server, session)


def test_a_hanging_environment_keeps_its_place_until_it_returns(server: Server) -> None:
    slow_env.RELEASE.clear()
    session = start(server, task_id="hang")
    step(server, session)
    path = f"/agent/sessions/{session['id']}/step"

    async def two_steps() -> list[Any]:
        ask = server.client.post
        return await asyncio.gather(ask(path, json={}), ask(path, json={}), server.client.get("/healthz"))

    hung, busy, health = server.run(two_steps())
    assert problem(hung)[:2] == (504, "timeout") and "did not answer within 3 s" in hung.text
    assert problem(busy)[:2] == (409, "session_busy")
    assert health.status_code == 200  # the event loop never waited
    assert problem(server.request("GET", path.removesuffix("/step")))[0] == 404
    other = start(server, task_id="plain")
    assert problem(server.request("POST", "/agent/sessions", {}))[:2] == (429, "too_many_sessions")
    slow_env.RELEASE.set()
    for _ in range(1000):
        if server.service.sessions.count == 1:
            break
        server.run(asyncio.sleep(0.02))
    third = start(server, task_id="plain")
    close(server, other)
    close(server, third)


def test_an_environment_that_does_not_begin_has_the_time_of_a_run_and_keeps_its_place(tmp_path: Path) -> None:
    slow_env.RELEASE.set()
    options = {"env": "slow", "max_model_len": MAX_TOKENS, "max_response_tokens": 6}
    limits = {"env_start_timeout_s": 2.0, "env_timeout_s": 1.5, "max_sessions": 2}
    server = Server(write_model(tmp_path / "greeter", ["hello"]), **options, **limits)
    slow_env.RELEASE.clear()
    slow_env.CLOSED.clear()
    settings = server.service.sessions._settings
    settings.env_options = {"size": 7}
    late = server.request("POST", "/agent/sessions", {"task_id": "plain"})
    assert problem(late)[:2] == (502, "environment_failed")
    assert re.search(r"start: no answer within 2 s \(slow_env\.py:\d+\) \(env_start_timeout_s\)$", problem(late)[2])
    settings.env_options = {}
    late = server.request("POST", "/agent/sessions", {"task_id": "hang-reset"})
    assert problem(late)[:2] == (502, "environment_failed")
    assert re.search(r"^slow: env_timeout: reset: no answer within 1\.5 s \(slow_env\.py:\d+\)$", problem(late)[2])
    assert problem(server.request("POST", "/agent/sessions", {}))[:2] == (429, "too_many_sessions")
    slow_env.RELEASE.set()
    for _ in range(1000):  # one that was not made is not closed
        if server.service.sessions.count == 0 and slow_env.CLOSED == ["hang-reset"]:
            break
        server.run(asyncio.sleep(0.02))
    assert slow_env.CLOSED == ["hang-reset"] and server.service.sessions.count == 0
    close(server, start(server, task_id="plain"))
    server.close()


def test_idle_sessions_are_closed(server: Server) -> None:
    session, kept = start(server, task_id="plain"), start(server, task_id="plain")
    sessions = server.service.sessions
    sessions.get(session["id"]).last_used -= server.options.session_idle_s + 1

    async def sweep() -> None:
        sessions.sweep()

    server.run(sweep())
    assert sessions.count == 1
    assert problem(server.request("GET", f"/agent/sessions/{session['id']}"))[0] == 404
    close(server, kept)
