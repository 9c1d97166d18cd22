"""OpenAI's chat API over real HTTP requests, with the torch engine in this process."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from in_process import Server, problem
from scripted_model import CALL, MAX_TOKENS, write_babbler, write_model

from rl_agents.envs.starters import CHAT_TEMPLATE
from rl_agents.gateway.dialects import chat_completions
from rl_agents.inference.base import EngineError
from rl_agents.serving.request_params import read_params
from rl_agents.serving.source import find_checkpoint
from rl_agents.web.security import Keys, digest

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"properties": {"a": {"type": "integer"}}}}}
RUN = {"max_model_len": MAX_TOKENS, "max_response_tokens": 16, "env.prompt": "compact"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = write_model(tmp_path_factory.mktemp("models") / "greeter", ["hello", "dear", "world"])
    server = Server(folder, max_body_kb=4, max_output_tokens=40, **RUN)
    yield server
    server.close()


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = write_model(tmp_path_factory.mktemp("models") / "caller", ["good", *CALL])
    server = Server(folder, **RUN)
    yield server
    server.close()


@pytest.fixture(scope="module")
def babbler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(write_babbler(tmp_path_factory.mktemp("models") / "babbler"), **RUN)
    yield server
    server.close()


def streamed(response: Any) -> list[dict[str, Any]]:
    assert response.headers["content-type"].startswith("text/event-stream")
    *events, last = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert last == "[DONE]"
    return [json.loads(event) for event in events]


def content(chunks: list[dict[str, Any]], index: int = 0) -> str:
    parts = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
    return "".join(part["delta"].get("content") or "" for part in parts)


def test_an_answer_names_the_weights_and_counts_its_tokens(server: Server) -> None:
    answer = server.chat().json()
    assert answer["choices"][0]["message"]["content"] == "hello dear world"
    assert answer["model"] == answer["system_fingerprint"] == "greeter"
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    assert {name: answer["usage"][name] for name in usage} == usage


def test_a_followed_checkpoint_whose_load_fails_is_tried_again_and_each_reason_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(write_model(tmp_path / "old", ["hello"]), follow=True, follow_s=0.001, **RUN)
    newer, load = find_checkpoint(write_model(tmp_path / "new", ["good"])), server.policy.load
    problems, loaded = [EngineError("out of memory"), EngineError("out of memory"), OSError("stale")], asyncio.Event()
    told: list[str] = []

    async def sometimes(target: Any) -> None:
        if problems:
            raise problems.pop(0)
        await load(target)
        loaded.set()

    async def followed() -> None:
        async with server.service.running():
            await loaded.wait()

    monkeypatch.setattr(server.policy, "load", sometimes)
    monkeypatch.setattr("rl_agents.serving.service.find_checkpoint", lambda path: newer)
    monkeypatch.setattr("rl_agents.serving.service.logger.warning", lambda text, *args: told.append(args[-1]))
    server.run(followed())
    assert told == ["EngineError: out of memory", "OSError: stale"]
    assert server.chat().json()["choices"][0]["message"]["content"] == "good"
    server.close()


def test_an_answer_ends_with_its_stop_string_however_many_tokens_arrive_together(server: Server) -> None:
    stream = server.policy.stream

    async def joined(*given: Any) -> AsyncIterator[Any]:
        yield await server.policy.generate(*given)

    server.policy.stream = joined
    try:
        answer = server.chat(stop="dear", logprobs=True).json()
    finally:
        server.policy.stream = stream
    tokens = [entry["token"] for entry in answer["choices"][0]["logprobs"]["content"]]
    assert tokens == ["hello", "dear"] and answer["usage"]["completion_tokens"] == 2


def test_a_seed_repeats_an_answer_and_choices_differ(babbler: Server) -> None:
    fields = {"n": 4, "logprobs": True, "max_tokens": 12}

    def choices(**more: Any) -> list[dict[str, Any]]:
        return babbler.chat(**fields, **more).json()["choices"]

    first, again = choices(seed=5), choices(seed=5)
    assert first == again
    texts = {choice["message"]["content"] for choice in first}
    assert len(texts) > 1
    assert choices(seed=6) != first
    greedy = {choice["message"]["content"] for choice in choices(temperature=0)}
    assert len(greedy) == 1
    assert all(entry["logprob"] <= 0 for choice in first for entry in choice["logprobs"]["content"])
    chunks = streamed(babbler.chat(**fields, seed=5, stream=True))
    assert [content(chunks, i) for i in range(4)] == [choice["message"]["content"] for choice in first]


def test_more_tokens_than_the_context_has_left_are_refused(server: Server, babbler: Server) -> None:
    room = MAX_TOKENS - babbler.chat(max_tokens=1).json()["usage"]["prompt_tokens"]
    assert babbler.chat(max_tokens=room).status_code == 200
    for fields in ({"max_tokens": 100_000}, {"max_completion_tokens": room + 1}):
        status, code, message = problem(babbler.chat(**fields))
        assert (status, code) == (400, "invalid_value") and f"at most {room} after a prompt" in message
        assert f"(max_model_len={MAX_TOKENS})" in message
    assert server.chat(max_tokens=50).status_code == 200, "the operator's max_output_tokens=40 limits an answer"


def test_tool_calls_come_as_calls(caller: Server) -> None:
    plain = caller.chat().json()["choices"][0]
    assert "<tool_call>" in plain["message"]["content"] and plain["finish_reason"] == "stop"
    answer = caller.chat(tools=[TOOL]).json()
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] == "good"
    (call,) = choice["message"]["tool_calls"]
    assert call["type"] == "function" and call["id"].startswith("call_")
    assert call["function"]["name"] == "add" and json.loads(call["function"]["arguments"]) == {"a": 1}
    assert answer["usage"]["prompt_tokens"] == 5  # the template wrote the tool into the prompt
    chunks = streamed(caller.chat(tools=[TOOL], stream=True))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert content(chunks) == "good" and chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    (streamed_call,) = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert streamed_call["index"] == 0 and streamed_call["function"] == call["function"]
    dialogue = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "good", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "3"},
    ]
    assert caller.chat(messages=dialogue, tools=[TOOL]).status_code == 200
    assert caller.chat(tools=[TOOL], tool_choice="none").json()["choices"][0]["finish_reason"] == "stop"


def test_tools_that_the_template_leaves_out_are_refused(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "toolless", ["hello"])
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    server = Server(folder, **RUN)
    status, code, message = problem(server.chat(tools=[TOOL]))
    assert (status, code) == (400, "chat_template") and "words are those of an environment without tools" in message
    server.close()


def test_requests_that_cannot_be_answered_say_why(server: Server, caller: Server) -> None:
    long = [{"role": "user", "content": "hello " * 80}]
    assert problem(server.request("GET", "/v1/models/gpt")) == (
        404, "model_not_found", "the model 'gpt' does not exist: valid: greeter",
    )  # fmt: skip
    status, code, message = problem(server.chat(messages=long))
    assert (status, code) == (400, "context_length_exceeded") and "64 tokens; the messages are longer" in message
    for fields in ({"top_k": 3}, {"top_logprobs": 2, "logprobs": True}, {"logit_bias": {"3": 1}}):
        status, code, message = problem(server.chat(**fields))
        assert (status, code) == (400, "unsupported_value")
        assert "the torch engine samples from the policy as it is" in message
    for fields in ({"response_format": {"type": "json_object"}}, {"tools": [TOOL], "tool_choice": "required"}):
        status, code, message = problem(server.chat(**fields))
        assert code == "unsupported_value" and "serve with engine=vllm" in message
    endless = [{"role": "user", "content": "hello " * 300}] * 2
    assert problem(caller.chat(messages=endless))[1:] == (
        "context_length_exceeded", "the context has 64 tokens; the messages are longer",
    )  # fmt: skip


def test_a_server_answers_to_every_name(server: Server) -> None:
    answer = server.chat(model="claude-opus-4-8", temprature=1)
    assert answer.status_code == 200 and answer.json()["model"] == "claude-opus-4-8"
    assert answer.headers["x-ignored"] == "model=1, temprature=1"


def test_a_client_that_leaves_ends_the_sampling(babbler: Server) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}

    async def leave() -> bool:
        pending = babbler.service.answer(*read_params(chat_completions.read(body)))
        waiting = asyncio.create_task(pending.answers())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([pending.task])
        return pending.task.cancelled()

    assert babbler.run(leave())


def test_bodies_without_a_length_are_bounded(server: Server) -> None:
    path = "/v1/chat/completions"

    async def parts() -> Any:
        for _ in range(10):
            yield b" " * 1024

    chunked = server.request("POST", path, content=parts(), headers={"content-type": "application/json"})
    assert problem(chunked)[:2] == (413, "body_too_large")


def test_keys_guard_everything_but_page_and_probes(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "greeter", ["hello"])
    server = Server(folder, Keys(digest("user-key"), digest("admin-key")), **RUN)

    def status(method: str, path: str, key: str | None = None) -> int:
        headers = {"host": "agents.example"} | ({} if key is None else {"authorization": key})
        return server.request(method, path, headers=headers).status_code

    try:
        for path in ("/", "/static/app.js", "/healthz", "/readyz"):
            assert status("GET", path) == 200
        for path in ("/v1/models", "/agent/about", "/agent/sessions/x", "/anything"):
            for key in (None, "Bearer wrong", "user-key", "Basic user-key", "Bearer "):
                assert status("GET", path, key) == 401
        assert status("GET", "/v1/models", "Bearer user-key") == 200
        assert status("GET", "/v1/models", "Bearer admin-key") == 200
        assert status("POST", "/admin/checkpoint", "Bearer user-key") == 403
        assert status("POST", "/admin/checkpoint", "Bearer admin-key") == 200
        assert server.request("GET", "/v1/models").headers["www-authenticate"] == "Bearer"
    finally:
        server.close()


def test_the_page_loads_nothing_from_elsewhere(server: Server) -> None:
    page = server.request("GET", "/")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert "http" not in page.text
    for name in ("app.js", "style.css"):
        file = server.request("GET", f"/static/{name}")
        assert file.status_code == 200 and "http:" not in file.text and "innerHTML" not in file.text
    assert problem(server.request("GET", "/static/../api.py"))[0] == 404
