"""What a gateway and a server have in common: routes and errors in three dialects, whole and streamed."""

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from gateway.models import CHAT, MESSAGES, RESPONSES, MemoryPool, Rig, status_of
from in_process import Server
from scripted_model import MAX_TOKENS, write_model

from rl_agents.gateway.server import make_app
from rl_agents.inference.base import EngineError, RequestRefused

HELLO = [{"role": "user", "content": "hello"}]
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"model": "m", "messages": HELLO},
    RESPONSES: {"model": "m", "input": "hello"},
    MESSAGES: {"model": "m", "max_tokens": 30, "messages": HELLO},
}
SAID = "hello dear world"
RAW = {"content-type": "application/json"}


@dataclass
class Api:
    """A gateway or a server in this process, whose model says `SAID`.

    Attributes:
        stopped: number of tokens up to the end of "dear".
    """

    run: Callable[[Any], Any]
    client: httpx.AsyncClient
    engine: Any
    stopped: int

    def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return self.run(self.client.post(path, json=body, **options))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = write_model(tmp_path_factory.mktemp("models") / "m", SAID.split())
    server = Server(folder, max_body_kb=16, max_model_len=MAX_TOKENS, **{"env.prompt": "compact"})
    yield server
    server.close()


@pytest.fixture(params=["gateway", "server"])
def api(request: pytest.FixtureRequest, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    if request.param == "server":
        yield Api(server.run, server.client, server.policy._engine, 2)
        return
    monkeypatch.setattr("rl_agents.gateway.server.MAX_BODY_BYTES", 16 * 1024)
    rig = Rig({"hello": SAID}, pool=MemoryPool(), max_response_tokens=30, model_name="m")
    transport = httpx.ASGITransport(make_app(rig.gateway, "", None, True))
    headers = {"Authorization": f"Bearer {rig.key}"}
    client = httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers)
    with asyncio.Runner() as runner:
        yield Api(runner.run, client, rig.engine, len("hello dear"))


def text_of(path: str, body: Any) -> str:
    if path == CHAT:
        return str(body["choices"][0]["message"]["content"])
    return str(body["output"][0]["content"][0]["text"] if path == RESPONSES else body["content"][0]["text"])


def streamed_text(path: str, response: httpx.Response) -> str:
    assert response.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")]
    if path == CHAT:
        return "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])
    kind = "response.output_text.delta" if path == RESPONSES else "content_block_delta"
    deltas = [event["delta"] for event in events if event["type"] == kind]
    return "".join(delta if isinstance(delta, str) else delta["text"] for delta in deltas)


@pytest.mark.parametrize("path", BODIES)
def test_answers_and_streams_say_the_same_and_end_with_a_stop_string(api: Api, path: str) -> None:
    stop = {"stop_sequences" if path == MESSAGES else "stop": ["dear"]}
    for more, said in (({}, SAID), (stop, "hello ")):
        whole = api.post(path, {**BODIES[path], **more})
        assert whole.status_code == 200 and text_of(path, whole.json()) == said
        assert streamed_text(path, api.post(path, {**BODIES[path], **more, "stream": True})) == said
    usage = whole.json()["usage"]
    assert usage["completion_tokens" if path == CHAT else "output_tokens"] == api.stopped


@pytest.mark.parametrize(
    ("path", "fields"), [(CHAT, {"logprobs": True}), (RESPONSES, {"include": ["message.output_text.logprobs"]})]
)
def test_log_probabilities_are_those_of_the_sampled_tokens(api: Api, path: str, fields: dict[str, Any]) -> None:
    body = api.post(path, {**BODIES[path], **fields}).json()
    entries = body["choices"][0]["logprobs"]["content"] if path == CHAT else body["output"][0]["content"][0]["logprobs"]
    assert len(entries) == body["usage"]["completion_tokens" if path == CHAT else "output_tokens"]
    assert all(entry["logprob"] <= 0 and entry["top_logprobs"] == [] for entry in entries)


NO_JSON = (b"{", b"[]", b'{"model": "\xff"}', b'{"model": "\\ud800"}')
#: What a client sends, and the status of the refusal.
REFUSED: list[tuple[dict[str, Any], int]] = [
    *(({"content": content, "headers": RAW}, 400) for content in NO_JSON),
    ({"json": {"padding": "x" * 20_000}}, 413),
    ({"content": b"{}", "headers": {"content-type": "text/plain"}}, 415),
    ({"json": {}, "headers": {"host": "evil.example"}}, 403),
    ({"json": {"messages": None, "input": None}}, 400),
    ({"json": {"tools": [{"type": "function", "name": 5}]}}, 400),
    ({"json": {"stream": True, "model": 5}}, 400),
    ({"json": {"messages": [{"role": "user", "content": "x " * 2500}], "input": "x " * 2500}}, 400),
]  # fmt: skip


@pytest.mark.parametrize("path", BODIES)
def test_bad_requests_are_refused_in_the_dialects_form(api: Api, path: str) -> None:
    for sent, status in REFUSED:
        own = {**BODIES[path], **sent["json"]} if "json" in sent else None
        response = api.run(api.client.post(path, **{**sent, **({"json": own} if own else {})}))
        assert status_of(path, response) == status, sent
    assert status_of(path, api.run(api.client.get(path))) == 405
    assert status_of(path, api.post(f"{path}/nothing", BODIES[path])) == 404


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
def test_failures_before_the_first_text_are_http_errors_also_of_streams(
    api: Api, path: str, stream: bool, monkeypatch
) -> None:
    for failure, status in ((EngineError("engine 0 died"), 503), (RequestRefused("no such bias"), 400)):

        async def fail(*_: Any, failure: Exception = failure, **__: Any) -> Any:
            raise failure

        monkeypatch.setattr(api.engine, "generate", fail)
        response = api.post(path, {**BODIES[path], "stream": stream})
        assert status_of(path, response) == status and str(failure) in response.json()["error"]["message"]


def test_models_and_token_counts(api: Api) -> None:
    listed, one = (api.run(api.client.get(path)).json() for path in ("/v1/models", "/v1/models/m"))
    assert listed["data"] == [one] and one["id"] == listed["first_id"] == "m"
    for version, path in (({}, CHAT), ({"anthropic-version": "2023-06-01"}, MESSAGES)):
        unknown = api.run(api.client.get("/v1/models/mm", headers=version))
        assert status_of(path, unknown) == 404 and "did you mean 'm'?" in unknown.json()["error"]["message"]
    tool = {"name": "add", "input_schema": {"type": "object"}}
    body = {**BODIES[MESSAGES], "system": "be brief", "tools": [tool]}
    count = api.post(f"{MESSAGES}/count_tokens", {**body, "max_tokens": None}).json()
    assert count == {"input_tokens": api.post(MESSAGES, body).json()["usage"]["input_tokens"]}
    assert status_of(MESSAGES, api.post(f"{MESSAGES}/count_tokens", {"model": "m", "messages": []})) == 400


def test_a_server_says_why_an_answer_ended_and_how_it_was_sampled(server: Server) -> None:
    def ask(path: str, **more: Any) -> Any:
        return server.request("POST", path, {**BODIES[path], **more}).json()

    cut = ask(MESSAGES, max_tokens=2)
    assert cut["stop_reason"] == "max_tokens" and cut["usage"]["output_tokens"] == 2
    stopped = ask(MESSAGES, stop_sequences=["world"])
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", "world")
    short = ask(RESPONSES, max_output_tokens=2, temperature=0.5, metadata={"a": "b"}, store=False)
    assert short["status"] == "incomplete" and short["incomplete_details"] == {"reason": "max_output_tokens"}
    assert (short["temperature"], short["top_p"], short["metadata"]) == (0.5, 1.0, {"a": "b"})
