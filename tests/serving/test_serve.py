"""The application on Ray Serve, over real connections: one instance for all tests of this file."""

import json
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import httpx
import pytest
from processes import free_port
from scripted_model import CALL, MAX_TOKENS, write_model

from rl_agents import plugins
from rl_agents.chat.template import load_tokenizer
from rl_agents.envs.base import ENVIRONMENTS
from rl_agents.reporting.run_folder import RunFolder
from rl_agents.serving.source import find_checkpoint, served_settings
from rl_agents.trainer.checkpoint import write_atomically

KEY, ADMIN = "user-key-of-the-tests", "admin-key-of-the-tests"
MODEL = "own-numbers-grpo"
#: The run's environment, which every process that plays it has to be told of.
PLUGIN = """
from dataclasses import replace
from rl_agents.envs.base import ENVIRONMENTS, register
register(replace(ENVIRONMENTS["guess_numbers"], name="own-numbers", gym_id="own/Numbers-v0"))
"""
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"properties": {"a": {"type": "integer"}}}}}
SAID = {"000001": "hello dear world", "000002": "good bye", "000003": "good " + " ".join(CALL)}


@dataclass
class Hosted:
    """A run's folder and the server that follows it."""

    run: Path
    models: dict[str, Path]
    url: str
    client: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        headers = {"Authorization": f"Bearer {KEY}"}
        many = httpx.Limits(max_connections=100)
        self.client = httpx.Client(base_url=self.url, headers=headers, timeout=60, limits=many)

    def publish(self, name: str) -> None:
        """Write a checkpoint as a run does."""

        def fill(folder: Path) -> None:
            shutil.copytree(self.models[name], folder / "hf")
            shutil.copy(self.run / "config.yaml", folder)

        write_atomically(self.run / "checkpoints" / name, fill)

    def chat(self, **fields: Any) -> httpx.Response:
        return self.client.post("/v1/chat/completions", json={**BODY, **fields})

    def roll(self, name: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {ADMIN}"}
        body = {"checkpoint": str(self.run / "checkpoints" / name)}
        return self.client.post("/admin/checkpoint", json=body, headers=headers)


@pytest.fixture(scope="module")
def hosted(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosted]:
    from ray import serve

    from rl_agents.serving.app import build

    folder = tmp_path_factory.mktemp("serve")
    models = {name: write_model(folder / name, said.split()) for name, said in SAID.items()}
    (folder / "own_numbers.py").write_text(PLUGIN)
    own = {"plugins": [str(folder / "own_numbers.py")], "env": "own-numbers", "env.prompt": "compact"}
    run_keys = {**own, "max_model_len": MAX_TOKENS, "max_response_tokens": 16, "kv_cache_gb": 0.0625}
    RunFolder.create(folder / "demo", served_settings(find_checkpoint(models["000001"]), run_keys))
    port = free_port()
    hosted = Hosted(folder / "demo", models, f"http://127.0.0.1:{port}")
    hosted.publish("000001")
    os.environ |= {"TEST_API_KEY": KEY, "TEST_ADMIN_KEY": ADMIN}
    keys = {"api_key_env": "TEST_API_KEY", "admin_key_env": "TEST_ADMIN_KEY", "follow": True, "follow_s": 0.3}
    limits = {"max_ongoing_requests": 4, "max_queued_requests": 8, "max_body_kb": 16}
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(build({"checkpoint": str(hosted.run), **keys, **limits}), name="rl_agents", route_prefix="/")
    yield hosted
    serve.shutdown()
    for name in ("own-numbers", "own/Numbers-v0"):
        ENVIRONMENTS.pop(name, None)
        gymnasium.registry.pop(name, None)
    plugins.OWN_MODULES.pop("own_numbers")


def test_statuses_over_the_wire(hosted: Hosted) -> None:
    assert httpx.post(f"{hosted.url}/v1/chat/completions", json=BODY).status_code == 401
    assert hosted.client.post("/admin/checkpoint", json={}).status_code == 403
    assert hosted.chat(user="x" * 20_000).status_code == 413
    assert hosted.chat(temprature=1).headers["x-ignored"] == "temprature=1"
    assert hosted.chat(messages=[{"role": "user", "content": "hello " * 80}]).status_code == 400
    assert hosted.roll("000009").status_code == 400


def test_guided_decoding_makes_a_model_write_what_it_never_would(hosted: Hosted) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
    form = {"type": "json_schema", "json_schema": {"name": "pick", "schema": schema}}
    for seed in range(3):
        choice = hosted.chat(response_format=form, seed=seed, logprobs=True, max_tokens=40).json()["choices"][0]
        assert choice["finish_reason"] == "stop" and json.loads(choice["message"]["content"])["a"] in (1, 2)
        # The log-probabilities are those among what fits.
        assert all(-20 < entry["logprob"] <= 0 for entry in choice["logprobs"]["content"])
    assert hosted.chat(seed=0).json()["choices"][0]["message"]["content"] == SAID["000001"]
    named = {"type": "function", "function": {"name": "add"}}
    strict = {**TOOL["function"], "parameters": schema, "strict": True}
    for fields in ({"tool_choice": named}, {"tool_choice": "required", "parallel_tool_calls": False}):
        answer = hosted.chat(tools=[{"type": "function", "function": strict}], seed=2, max_tokens=40, **fields).json()
        (call,) = answer["choices"][0]["message"]["tool_calls"]
        assert answer["choices"][0]["finish_reason"] == "tool_calls" and json.loads(call["function"]["arguments"])[
            "a"
        ] in (1, 2)
    both = [{"role": "user", "content": "hello"}]
    claude = {"model": MODEL, "messages": both, "max_tokens": 40, "tools": [{"name": "add", "input_schema": schema}]}
    claude["tool_choice"] = {"type": "tool", "name": "add"}
    # Without a seed, and of few words: half of the samples come to where none of them fits.
    replies = (hosted.client.post("/v1/messages", json=claude).json() for _ in range(40))
    used: Any = next(reply for reply in replies if "stop_reason" in reply)
    assert used.get("stop_reason") == "tool_use", used
    assert used["content"][-1]["input"]["a"] in (1, 2)
    multiple = {"type": "object", "properties": {"a": {"type": "integer", "multipleOf": 2}}}
    refused = hosted.chat(response_format={"type": "json_schema", "json_schema": {"schema": multiple}})
    assert refused.status_code == 400 and "does not enforce" in refused.json()["error"]["message"]


def test_what_vllm_shapes_and_tells(hosted: Hosted) -> None:
    told = hosted.chat(logprobs=True, top_logprobs=3, temperature=0.7).json()["choices"][0]["logprobs"]["content"]
    assert [len(entry["top_logprobs"]) for entry in told] == [3] * 4
    assert all(entry["top_logprobs"][0]["token"] == entry["token"] for entry in told)
    assert all(entry["top_logprobs"][0]["logprob"] == pytest.approx(entry["logprob"], abs=1e-5) for entry in told)
    body = {**BODY, "logprobs": True, "top_logprobs": 3, "temperature": 0.7, "stream": True}
    with hosted.client.stream("POST", "/v1/chat/completions", json=body) as response:
        events = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: {")]
    streamed = [entry for event in events for entry in (event["choices"][0]["logprobs"] or {}).get("content", ())]
    assert [entry["token"] for entry in streamed] == [entry["token"] for entry in told]
    assert [len(entry["top_logprobs"]) for entry in streamed] == [3] * 4
    hello = load_tokenizer(hosted.models["000001"]).convert_tokens_to_ids("hello")
    banned = hosted.chat(logit_bias={str(hello): -100}, max_tokens=1, seed=1).json()["choices"][0]["message"]["content"]
    assert banned != "hello"
    shaped = {"top_k": 1, "min_p": 0.5, "presence_penalty": 0.1, "frequency_penalty": 0.1, "repetition_penalty": 1.1}
    assert (
        hosted.chat(**shaped, metadata={"a": "b"}, user="me").json()["choices"][0]["message"]["content"]
        == SAID["000001"]
    )
    assert hosted.chat(logit_bias={"999999": 1}).status_code == 400


def test_the_page_in_a_browser(hosted: Hosted) -> None:
    api = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    executable = os.environ.get("RL_AGENTS_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if executable is None:
        pytest.skip("needs a Chromium (RL_AGENTS_CHROMIUM=PATH)")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = browser.new_page()
        said: list[str] = []
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(f"{hosted.url}/")
        api.expect(page.locator("#missing")).to_contain_text("This server requires an API key.")
        page.fill("#key", "wrong")
        page.click("#connecting button")
        api.expect(page.locator("#problem")).to_have_text("The server rejected this API key.")
        page.fill("#key", KEY)
        page.click("#connecting button")
        api.expect(page.locator("#served")).to_contain_text(" of ")
        page.fill("#seed", "3")
        page.click("#open")
        api.expect(page.locator("#turns li")).to_have_count(1)
        page.click("#agent")
        api.expect(page.locator("#turns li.agent pre")).to_have_text(SAID["000001"])
        page.fill("#action", "<answer> <b>111</b> </answer>")
        page.click("#play")
        api.expect(page.locator("#turns li.human > pre")).to_have_text("111")
        api.expect(page.locator("#turns li.human details pre")).to_have_text("<answer> <b>111</b> </answer>")
        api.expect(page.locator("#outcome")).to_contain_text("not solved")
        assert page.locator("#turns b").count() == 0 and said == []
        browser.close()


def test_overload_is_refused_at_once_and_what_is_taken_is_answered(hosted: Hosted) -> None:
    with ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(lambda _: hosted.chat(), range(192)))
    statuses = Counter(answer.status_code for answer in answers)
    assert set(statuses) == {200, 429} and statuses[200] >= 12, statuses
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert "retry-after" in refused.headers
    assert hosted.chat().status_code == 200


def test_new_checkpoints_roll_in_under_load_and_no_request_fails(hosted: Hosted) -> None:
    stop, answers = threading.Event(), list[httpx.Response]()

    def load() -> None:
        while not stop.is_set():
            answers.append(hosted.chat())

    def await_answer(checkpoint: str, since: int = 0) -> None:
        deadline = time.monotonic() + 120
        while not any(f'"{checkpoint}"' in answer.text for answer in answers[since:]):
            assert time.monotonic() < deadline, f"no answer of {checkpoint}"
            time.sleep(0.05)

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        await_answer("demo/000001")
        hosted.publish("000002")  # the server follows the run's folder
        deadline = time.monotonic() + 120
        while hosted.client.get("/readyz").json()["checkpoint"] != "demo/000002":
            assert time.monotonic() < deadline
            time.sleep(0.1)
        await_answer("demo/000002")
        assert hosted.roll("000001").json()["checkpoint"] == "demo/000001"  # and obeys the administrator
        time.sleep(0.3)  # what was on its way arrives
        await_answer("demo/000001", since=len(answers))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert Counter(answer.status_code for answer in answers).keys() == {200}
    bodies = [answer.json() for answer in answers]
    pairs = [(body["system_fingerprint"], body["choices"][0]["message"]["content"]) for body in bodies]
    assert set(pairs) == {("demo/000001", SAID["000001"]), ("demo/000002", SAID["000002"])}
    assert pairs[-1][0] == "demo/000001"


def test_the_openai_client_just_works(hosted: Hosted) -> None:
    openai = pytest.importorskip("openai", reason="comes with vLLM")
    client = openai.OpenAI(base_url=f"{hosted.url}/v1", api_key=KEY, max_retries=0)
    assert [model.id for model in client.models.list()] == [MODEL]
    messages = BODY["messages"]
    answer = client.chat.completions.create(model=MODEL, messages=messages, temperature=0, logprobs=True, n=2)
    assert [choice.message.content for choice in answer.choices] == [SAID["000001"]] * 2
    assert answer.choices[0].logprobs.content[0].token == "hello" and answer.usage.completion_tokens == 8
    chunks = client.chat.completions.create(model=MODEL, messages=messages, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == SAID["000001"]
    response = client.responses.create(model=MODEL, input="hello")
    assert response.output_text == SAID["000001"] and response.usage.output_tokens == 4
    with client.responses.stream(model=MODEL, input="hello") as stream:
        assert stream.get_final_response().output_text == SAID["000001"]
    hosted.publish("000003")
    assert hosted.roll("000003").status_code == 200
    called = client.chat.completions.create(model=MODEL, messages=messages, tools=[TOOL]).choices[0]
    assert called.finish_reason == "tool_calls" and called.message.tool_calls[0].function.arguments == '{"a": 1}'
