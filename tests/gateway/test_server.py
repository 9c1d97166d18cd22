"""The gateway over HTTP: three dialects, keys and paths, and an error in each dialect's own form for all bad input."""

import asyncio
import json
from contextlib import asynccontextmanager

import httpx
import pytest
from gateway.models import CHAT, MESSAGES, RESPONSES, MemoryPool, Rig, opening, status_of

from rl_agents.data.tasks import step_seed
from rl_agents.gateway.server import serving
from rl_agents.store.reader import PoolReader
from rl_agents.store.trajectory_store import PoolWriter

ADMIN = "the-admin-key-of-this-test"
BODIES = {
    CHAT: {"model": "m", "messages": [{"role": "user", "content": "task"}]},
    RESPONSES: {"model": "m", "input": "task"},
    MESSAGES: {"model": "m", "max_tokens": 12, "messages": [{"role": "user", "content": "task"}]},
}


@asynccontextmanager
async def playing(key=None, on_end=None, **options):
    """A served gateway, and a client of it that sends the session's key."""
    rig = Rig({"task": "well done"}, max_response_tokens=40, pool=MemoryPool())
    async with serving(rig.gateway, ADMIN, on_end=on_end, **options) as url:
        headers = {"Authorization": f"Bearer {rig.key if key is None else key}"} if key != "" else {}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30) as client:
            yield rig, client


async def test_a_key_may_come_as_anthropics_clients_send_it():
    async with playing(key="") as (rig, client):
        assert (await client.post(MESSAGES, json=BODIES[MESSAGES], headers={"x-api-key": rig.key})).status_code == 200


@pytest.mark.parametrize("path", BODIES)
async def test_a_session_is_named_by_its_key_or_path_and_a_refusal_loses_nothing(path):
    body = BODIES[path]
    async with playing() as (rig, client):
        rig.gateway.open(opening("other", 8))
        problems = [
            await client.post(path, json=body, headers={"Authorization": "Bearer wrong"}),
            await client.post("/s/nobody" + path, json=body, headers={"Authorization": ""}),
            await client.post("/s/other" + path, json=body),
        ]
        good = await client.post(path, json=body)
        by_path = await client.post("/s/s" + path, json=body, headers={"x-stainless-retry-count": "1"})
        trace = await rig.trace()
        problems.append(await client.post("/s/s" + path, json=body, headers={"Authorization": ""}))
        codes = [status_of(path, problem) for problem in problems]
    assert codes == [401, 404, 403, 410] and good.status_code == 200 and by_path.json() == good.json()
    assert [step.call for step in trace.steps] == [step_seed(7, 0)]


#: (path, fields, whether tools are offered, names in x-ignored)
PARAMS = [
    (CHAT, {"tool_choice": "none"}, False, ""),
    (CHAT, {"tool_choice": "required", "temperature": 1, "top_p": 0.5}, True, "tool_choice=1, top_p=1"),
    (CHAT, {"tool_choice": {"type": "function", "function": {"name": "add"}}}, True, "tool_choice=1"),
    (CHAT, {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}}}, True,
     "tool_choice=1, tool_choice.allowed_tools=1"),
    (CHAT, {"logprobs": True, "top_logprobs": 2, "seed": 0}, True, "seed=1, top_logprobs=1"),
    (CHAT, {"response_format": {"type": "json_object"}, "parallel_tool_calls": False, "n": 1}, True,
     "parallel_tool_calls=1, response_format=1"),
    (CHAT, {"temprature": 1, "A\nb: c": 1}, True, "Abc=1, temprature=1"),
    (CHAT, {"response_format": {"type": "text"}, "parallel_tool_calls": True, "temperature": None}, True, ""),
    (RESPONSES, {"tool_choice": "none", "truncation": "disabled"}, False, ""),
    (RESPONSES, {"tool_choice": "required", "include": ["message.output_text.logprobs", "x"]}, True,
     "include.x=1, tool_choice=1"),
    (RESPONSES, {"reasoning": {"effort": "low"}, "text": {"verbosity": "low"}}, True, "reasoning=1, text.verbosity=1"),
    (MESSAGES, {"tool_choice": {"type": "none"}}, False, ""),
    (MESSAGES, {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}}, True,
     "tool_choice=1, tool_choice.disable_parallel_tool_use=1"),
    (MESSAGES, {"tool_choice": {"type": "auto"}, "thinking": {"type": "adaptive"}}, True, "thinking=1"),
]  # fmt: skip
TOOLS = {
    CHAT: {"type": "function", "function": {"name": "add", "parameters": {}}},
    RESPONSES: {"type": "function", "name": "add", "parameters": {}}, MESSAGES: {"name": "add", "input_schema": {}},
}  # fmt: skip


@pytest.mark.parametrize(("path", "fields", "offered", "ignored"), PARAMS)
async def test_tool_choice_none_offers_none_and_what_has_no_effect_is_named(path, fields, offered, ignored):
    async with playing() as (rig, client):
        answer = await client.post(path, json={**BODIES[path], "tools": [TOOLS[path]], **fields})
        trace = await rig.trace()
    assert answer.status_code == 200 and answer.headers.get("x-ignored", "") == ignored
    assert ('"add"' in rig.text(trace.steps[0].prompt_ids)) == offered
    assert trace.ignored == {item.split("=")[0]: 1 for item in ignored.split(", ") if item}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "fields"), [(CHAT, {"logprobs": True}), (RESPONSES, {"top_logprobs": 1})])
async def test_logprobs_are_those_of_the_record_also_in_streams_and_after_a_restart(path, fields, stream, tmp_path):
    file, body = tmp_path / "pool.sqlite", {**BODIES[path], **fields, "stop": ["don"], "stream": stream}
    answers = []
    for start in range(2):
        with PoolWriter(str(file)) as pool, PoolReader(str(file)) as reader:
            rig = Rig({"task": "well done"}, pool=pool, session="" if start else "s", max_response_tokens=40)
            if start:
                rig.gateway.resume(reader)
            async with serving(rig.gateway) as url, httpx.AsyncClient(base_url=url, timeout=30) as client:
                answers.append(entries(path, await client.post("/s/s" + path, json=body)))
    (step,) = (await rig.trace()).steps
    assert answers[0] == answers[1] == list(zip(list("well don"), step.logprobs, strict=True))


def entries(path, answer):
    """Return the tokens and log-probabilities of an answer or of a stream's pieces."""
    if not answer.headers["content-type"].startswith("text/event-stream"):
        body = answer.json()
        found = [body["choices"][0]["logprobs"]["content"]] if path == CHAT else []
        found += [body["output"][0]["content"][0]["logprobs"]] if path != CHAT else []
    else:
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        given = [event["choices"][0]["logprobs"] for event in events if path == CHAT]
        found = [item["content"] for item in given if item]
        found += [event["logprobs"] for event in events if event.get("type") == "response.output_text.done"]
    return [(entry["token"], entry["logprob"]) for part in found for entry in part if entry["top_logprobs"] == []]


async def test_every_chunk_of_a_stream_has_the_fingerprint_of_the_whole_answer():
    async with playing() as (rig, client):
        rig.engine.version = 3
        whole = (await client.post(CHAT, json=BODIES[CHAT])).json()
        extra = {"stream": True, "stream_options": {"include_usage": True}}
        stream = await client.post(CHAT, json={**BODIES[CHAT], **extra})
    chunks = [json.loads(line[6:]) for line in stream.text.splitlines() if line.startswith("data: {")]
    assert {chunk["system_fingerprint"] for chunk in [whole, *chunks]} == {"policy-3"} and len(chunks) > 3


async def test_a_header_names_few_fields_in_ascii():
    many = {f"n{n}": 1 for n in range(10, 60)}
    async with playing() as (_rig, client):
        answers = [await client.post(CHAT, json={**BODIES[CHAT], **fields}) for fields in ({"溫": 1}, many)]
    assert [answer.headers["x-ignored"] for answer in answers] == ["?=1", ", ".join(f"n{n}=1" for n in range(10, 50))]


@pytest.mark.parametrize("version", ["", "2023-06-01"])
async def test_errors_have_the_form_of_their_path(version):
    headers = {"anthropic-version": version} if version else {}
    async with playing() as (_rig, client):
        for path in ("/v1/completions", "/v1/embeddings", "/s/s/v1/completions", "/v1/responses/x", "/v1/messages/x"):
            answer = await client.post(path, json={}, headers=headers)
            anthropics = path.startswith("/v1/messages")
            assert status_of(MESSAGES if anthropics else CHAT, answer) == 404
        unknown = await client.get("/v1/models/other", headers=headers)
    assert status_of(MESSAGES if version else CHAT, unknown) == 404


async def test_sessions_are_opened_rewarded_and_ended_over_http(monkeypatch):
    ended = []

    async def on_end(opening, trace):
        ended.append((opening, trace))

    async with playing(on_end=on_end) as (_rig, client):
        admin = {"Authorization": f"Bearer {ADMIN}"}
        refused = await client.post("/rl/sessions", json={})
        opened = (await client.post("/rl/sessions", json={"task_id": "t1", "seed": 3}, headers=admin)).json()
        own = {"Authorization": f"Bearer {opened['key']}"}
        answer = (await client.post(CHAT, json=BODIES[CHAT], headers=own)).json()
        rewards = [
            await client.post("/rl/reward", json={"value": 0.5, "call": answer["id"]}, headers=own),
            await client.post("/rl/reward", json={"value": 1, "session": opened["session"]}, headers=admin),
            await client.post("/rl/reward", json={"value": "much"}, headers=own),
            await client.post("/rl/reward", json={"value": 1, "call": "chatcmpl-0"}, headers=own),
            await client.post("/rl/reward", json={"value": 1, "session": "s"}, headers=own),
        ]
        end = await client.post("/rl/end", json={}, headers=own)
        late = [
            await client.post("/rl/reward", json={"value": 1}, headers=own),
            await client.post("/rl/reward", json={"value": 1, "session": opened["session"]}, headers=admin),
            await client.post("/rl/end", json={"session": opened["session"]}, headers=admin),
        ]
        assert late[-1].json() == end.json()
        monkeypatch.setattr("rl_agents.gateway.gateway.CLOSED_KEPT", 0)
        await client.post("/rl/sessions", json={"session": "last"}, headers=admin)
        await client.post("/rl/end", json={"session": "last"}, headers=admin)
        late.append(await client.post("/rl/reward", json={"value": 1}, headers=own))
        rewards, end, late = [r.status_code for r in rewards], end.json(), [r.status_code for r in late]
    assert refused.status_code == 401 and rewards == [200, 200, 400, 400, 403]
    assert end["steps"] == 1 and end["reward"] == 1.0
    (opened, trace), _ = ended
    assert (opened.task_id, opened.seed) == ("t1", 3) and trace.steps[0].call == step_seed(3, 0)
    assert trace.steps[0].reward == 0.5 and late == [410, 410, 200, 401]


async def test_an_end_that_is_sent_again_while_the_session_closes_gets_the_first_ones_answer():
    rewards, closing, written = [], asyncio.Event(), asyncio.Event()

    async def on_end(opening, trace):
        rewards.append(trace.reward)
        closing.set()
        await written.wait()

    async with playing(on_end=on_end) as (_rig, client):
        await client.post("/rl/reward", json={"value": 1})
        first = asyncio.create_task(client.post("/rl/end", json={}))
        await closing.wait()
        again = asyncio.create_task(client.post("/rl/end", json={}))
        assert (await client.post("/rl/reward", json={"value": 2})).status_code == 410
        written.set()
        first, again = await first, await again
    assert first.status_code == again.status_code == 200 and first.json() == again.json() and rewards == [1.0]


async def test_sessions_that_were_opened_without_a_seed_share_no_call():
    async with playing() as (_rig, client):
        for _ in range(2):
            opened = await client.post("/rl/sessions", json={}, headers={"Authorization": f"Bearer {ADMIN}"})
            await client.post(CHAT, json=BODIES[CHAT], headers={"Authorization": f"Bearer {opened.json()['key']}"})
        sessions = [session.trace() for session in _rig.gateway.sessions.values() if session.tree.calls]
    first, second = [trace.steps[0] for trace in sessions]
    assert first.call != second.call and first.prompt_ids == second.prompt_ids  # a store keeps one call for each id


async def test_an_agent_that_ends_a_session_with_another_owner_only_stops_its_calls():
    async with playing() as (rig, client):
        await client.post(CHAT, json=BODIES[CHAT])
        ended = await client.post("/rl/end", json={"reason": "gave up"})
        after = await client.post(CHAT, json=BODIES[CHAT])
        ended, after, trace = ended.status_code, after.status_code, await rig.trace()
        again = await client.post("/rl/end", json={"reason": "gave up"})
    assert (ended, after, trace.end, len(trace.steps), again.status_code) == (200, 410, "gave up", 1, 200)


async def test_other_machines_without_a_key_are_refused_before_their_body_is_read():
    async with playing(host="0.0.0.0") as (_rig, client):
        reader, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
        head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 20000000\r\n"
        writer.write(f"{head}\r\n".encode())
        refused = await reader.readline()  # no byte of the body was sent
        writer.close()
        answered = await client.post(CHAT, json=BODIES[CHAT], headers={"x-stainless-retry-count": "9" * 20})
        assert b" 401 " in refused and answered.status_code == 200


async def test_a_stream_that_breaks_in_its_middle_is_given_again():
    async with playing() as (rig, client):
        body = {"model": "m", "messages": [{"role": "user", "content": "babble"}], "stream": True}
        seen = []
        async with client.stream("POST", CHAT, json=body) as response:
            async for line in response.aiter_lines():
                seen.append(line)
                if len(seen) > 8:
                    break
        ((asked,),) = rig.gateway.sessions["s"].requests.values()
        while not (asked.broken or asked.delivered):  # until the server knows that its client has left
            await asyncio.sleep(0.01)
        again = await client.post(CHAT, json=body)
        again, trace = again.text.splitlines(), await rig.trace()
    said = "".join(json.loads(line[6:])["choices"][0]["delta"].get("content") or "" for line in seen if line[6:])
    told = [line[6:] for line in again if line.startswith("data: {")]
    whole = "".join(json.loads(line)["choices"][0]["delta"].get("content") or "" for line in told)
    assert said and whole.startswith(said) and len(rig.engine.seen) == 1 and len(trace.steps) == 1
