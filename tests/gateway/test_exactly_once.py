"""Retries, broken deliveries, failures and restarts: one answer per question, and none that is lost."""

import asyncio
import concurrent.futures
import contextlib
from collections import Counter

import pytest
from gateway.models import ADD, MemoryPool, Rig, model_call, opening, reply, sent_of, user

from rl_agents.data.tasks import step_seed
from rl_agents.gateway.calls import Delta
from rl_agents.gateway.gateway import Gateway
from rl_agents.store.reader import PoolReader
from rl_agents.store.records import Call, Exchange, SessionStart
from rl_agents.store.trajectory_store import PoolWriter
from rl_agents.web.errors import ApiError


async def test_what_is_asked_is_written_down_first_and_what_is_answered_before_it_is_given():
    pool = MemoryPool()
    rig = Rig(pool=pool)
    rig.engine.gate = asyncio.Event()
    asking = asyncio.create_task(rig.ask(user("task"), max_tokens=5, params={"temperature": 0.2}, ignored=Counter(x=2)))
    while not rig.engine.seen:
        await asyncio.sleep(0.01)
    before = list(pool.records)
    rig.engine.gate.set()
    answer, trace = await asking, await rig.trace()
    assert [type(record) for record in before] == [SessionStart, Exchange]
    assert before[1].state == "started" and before[1].call == step_seed(7, 0) == answer.call
    assert before[1].overridden == {"temperature": 0.2} and before[1].request["max_tokens"] == 5
    assert [type(record) for record in pool.records[2:]] == [Call, Exchange]
    call, step = pool.of(Call)[0], trace.steps[0]
    assert (call.prompt_ids, call.response_ids, call.logprobs) == (step.prompt_ids, step.response_ids, step.logprobs)
    assert pool.records[3].state == "finished" and pool.records[3].answer["content"] == answer.content
    assert trace.ignored == {"x": 2}


class SlowPool(MemoryPool):
    """Its futures are done when told."""

    def __init__(self):
        super().__init__()
        self.futures = []

    def add(self, *records):
        super().add(*records)
        self.futures.append(concurrent.futures.Future())
        return self.futures[-1]


async def test_no_answer_is_given_before_it_is_on_disk_and_none_that_could_not_be_written():
    pool = SlowPool()
    rig = Rig(pool=pool)
    asking = asyncio.create_task(rig.ask(user("task")))
    while len(pool.futures) < 3:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    waited = asking.done()
    pool.futures[2].set_exception(OSError("disk full"))
    with pytest.raises(ApiError) as caught:
        await asking
    retry = asyncio.create_task(rig.ask(user("task"), retry=1))
    while len(pool.futures) < 6:  # failed, started, finished
        await asyncio.sleep(0.01)
    pool.futures[-1].set_result(None)
    problem, answer = caught.value, await retry
    assert not waited and problem.status == 500 and "disk full" in problem.message
    assert [seed for _, seed in rig.engine.seen] == [step_seed(7, 0)] * 2 and answer.call == step_seed(7, 0)


@pytest.mark.parametrize(("retry", "calls"), [(1, 1), (0, 2), (-1, 2)])
async def test_an_answered_request_is_a_retry_only_if_its_header_says_so(retry, calls):
    rig = Rig()
    first = await rig.ask(user("task"))
    second = await rig.ask(user("task"), retry=retry)
    assert len(rig.engine.seen) == calls and (first == second) == (calls == 1)


@pytest.mark.parametrize(("retry", "calls"), [(2, 1), (-1, 1), (0, 2)])
async def test_requests_that_come_while_the_first_is_under_way(retry, calls):
    """Without a header an equal request is a retry then; a client that counts its retries says when it is none."""
    rig = Rig()
    answers = await asyncio.gather(*(rig.ask(user("task"), retry=r) for r in (0, retry)))
    trace = await rig.trace()
    assert len(rig.engine.seen) == calls and len({answer.call for answer in answers}) == calls
    assert len(trace.steps) == calls


@pytest.mark.parametrize("retry", [1, 0, -1])
async def test_a_client_that_left_gets_the_answer_that_was_sampled_for_it(retry):
    rig = Rig()
    rig.engine.gate = asyncio.Event()
    asking = asyncio.create_task(rig.ask(user("task")))
    while not rig.engine.seen:
        await asyncio.sleep(0.01)
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking
    rig.engine.gate.set()
    await asyncio.sleep(0.2)
    again = await rig.ask(user("task"), retry=retry)
    fresh = await rig.ask(user("task"), retry=0)
    assert again.call == step_seed(7, 0) and fresh.call != again.call and len(rig.engine.seen) == 2


async def test_tokens_are_passed_on_while_they_are_sampled():
    rig = Rig(max_response_tokens=60)
    call = model_call(user("say something"), stream=True)
    behind = []
    async for piece in rig.gateway.begin("s", call, sent_of(call)).stream():
        if isinstance(piece, Delta):
            behind.append(rig.engine.sampled_tokens)
    assert behind[0] < behind[-1] and len(set(behind)) > 10


async def test_an_engine_that_dies_or_takes_too_long_is_a_503_or_a_504():
    pool = MemoryPool()
    rig = Rig(pool=pool)
    rig.engine.failures = 1
    with pytest.raises(ApiError) as caught:
        await rig.ask(user("task"))
    await rig.ask(user("task"), retry=1)
    problem, trace = caught.value, await rig.trace()
    assert problem.status == 503 and "engine 0 died" in problem.message
    assert {seed for _, seed in rig.engine.seen} == {step_seed(7, 0)} and len(trace.steps) == 1
    assert [e.state for e in pool.of(Exchange)] == ["started", "failed", "started", "finished"]
    rig = Rig(request_timeout_s=0.05)
    rig.engine.gate = asyncio.Event()
    with pytest.raises(ApiError) as caught:
        await rig.ask(user("task"))
    assert caught.value.status == 504


async def test_a_closed_session_waits_for_its_calls_and_then_refuses():
    rig = Rig(close_wait_s=60)
    first = asyncio.create_task(rig.ask(user("task")))
    await asyncio.sleep(0)
    trace = await rig.gateway.close("s", "done")
    problems = []
    for work in (rig.ask(user("task")), rig.gateway.close("s"), rig.ask(user("x"), session="unknown")):
        with pytest.raises(ApiError) as caught:
            await work
        problems.append(caught.value.status)
    with pytest.raises(ApiError) as caught:
        rig.gateway.reward("s", 1.0)
    first, problems = await first, [*problems, caught.value.status]
    assert [step.call for step in trace.steps] == [first.call] and trace.end == "done"
    assert problems == [410, 410, 404, 410]
    rig = Rig(close_wait_s=0.05)
    rig.engine.gate = asyncio.Event()
    asking = asyncio.create_task(rig.ask(user("task")))
    await asyncio.sleep(0.01)
    trace = await rig.gateway.close("s")
    with pytest.raises(ApiError) as caught:
        await asking
    assert caught.value.status == 410 and trace.steps == []


async def test_an_answered_request_keeps_no_history():
    rig = Rig()
    await rig.ask(user("task"), tools=(ADD,))
    ((asked,),) = rig.gateway.sessions["s"].requests.values()
    assert asked.call.messages == asked.call.tools == ()  # else the memory of a session is quadratic in its calls


async def test_rewards_of_a_call_add_up_and_one_that_is_sent_twice_counts_once():
    pool = MemoryPool()
    rig = Rig(pool=pool)
    answer = await rig.ask(user("task"))
    for value, why in ((1.0, "format"), (0.5, "style"), (2.0, "format")):
        rig.gateway.reward("s", value, call=answer.call, why=why)
    rig.gateway.reward("s", 3.0)
    for bad in ({"value": float("nan")}, {"value": 1.0, "call": 5}):
        with pytest.raises(ApiError):
            rig.gateway.reward("s", **bad)
    trace = await rig.trace()
    assert trace.steps[0].reward == 2.5 and trace.reward == 3.0


async def test_sessions_have_a_number_of_calls_and_are_opened_once():
    rig = Rig(max_calls=2)
    await rig.all(user("task"), count=2)
    with pytest.raises(ApiError) as caught:
        await rig.ask(user("more"))
    problem, trace = caught.value, await rig.trace()
    assert problem.status == 410 and trace.end == "max_calls" and len(trace.steps) == 2
    rig = Rig()
    for problem in (opening("s", seed=8), opening("t", seed=-1), opening("t", seed=7)):
        with pytest.raises(ApiError):
            rig.gateway.open(problem)


def test_forgotten_sessions_take_no_memory_and_the_store_still_knows_their_ids_and_seeds(tmp_path, monkeypatch):
    monkeypatch.setattr("rl_agents.gateway.gateway.CLOSED_KEPT", 1)

    async def play(pool, reader):
        rig = Rig(pool=pool)
        rig.gateway.resume(reader)
        await rig.ask(user("task"))
        for number in range(20):
            rig.gateway.open(opening(f"s{number}", seed=100 + number))
            await rig.gateway.close(f"s{number}")
        assert rig.gateway._seeds == {7, 119}, "of the open session, and of the closed one that is remembered"
        await rig.trace()
        rig.gateway.open(opening("last", seed=200))
        await rig.gateway.close("last")
        await rig.gateway.written()
        for used in (opening("s", seed=8), opening("other", seed=7), opening("other", seed=200)):
            with pytest.raises(ApiError) as caught:
                rig.gateway.open(used)
            assert caught.value.status == 409

    with PoolWriter(tmp_path / "p") as pool, PoolReader(tmp_path / "p") as reader:
        asyncio.run(play(pool, reader))


def test_a_gateway_that_is_started_again_knows_its_sessions(tmp_path):
    """Answered requests return their answers again, started ones are sampled again; then the session continues."""
    path = tmp_path / "pool.sqlite"

    async def begin():
        with PoolWriter(path) as pool:
            rig = Rig({"look": "a red door"}, pool=pool, max_response_tokens=30)
            a = await rig.ask(user("task"))
            history = [user("task"), reply(a), user("one")]
            look = await rig.ask(user("look"))
            b = await rig.ask(*history)
            rig.gateway.reward("s", 0.25, call=b.call, why="nice")
            await rig.all(user("task"), reply(a), user(f"the eyes said {look.content}"), count=2)
            rig.engine.gate, sampled = asyncio.Event(), len(rig.engine.seen)
            lost = asyncio.create_task(rig.ask(*history, reply(b), user("two")))
            while len(rig.engine.seen) == sampled:
                await asyncio.sleep(0.01)
            lost.cancel()  # as a kill would leave it: started, never finished
            return rig, rig.gateway.sessions["s"].trace(), history, b

    async def go_on(rig, history, b):
        with PoolWriter(path) as pool, PoolReader(path) as reader:
            gateway = Gateway(rig.engine, rig.template, rig.gateway.limits, pool)
            rig.engine.gate, rig.gateway = None, gateway
            assert gateway.resume(reader) == ["s"] and gateway.session_of(rig.key) == "s"
            before = gateway.sessions["s"].trace()
            sampled = len(rig.engine.seen)
            again = await rig.ask(*history, retry=1)
            assert len(rig.engine.seen) == sampled
            lost = await rig.ask(*history, reply(b), user("two"), retry=1)
            trace, later = await gateway.close("s"), Gateway(rig.engine, rig.template, rig.gateway.limits)
            later.resume(reader)
            with pytest.raises(ApiError):
                later.open(opening("s", seed=8))
            return before, again, lost, trace

    rig, expected, history, b = asyncio.run(begin())
    started = {e.call for e in PoolReader(path).exchanges("s") if e.state == "started"}
    before, again, lost, trace = asyncio.run(go_on(rig, history, b))
    assert before == expected and again == b
    assert lost.call in started and len(started) == 6 and trace.steps[-1].call == lost.call
    assert [e.call for e in PoolReader(path).exchanges("s") if e.state == "finished"].count(lost.call) == 1


def test_a_question_that_takes_the_place_of_one_without_an_answer_is_itself_after_a_restart(tmp_path):
    """Both have the same id, the place's seed; what is kept is what was answered."""
    path = tmp_path / "pool.sqlite"

    async def play():
        with PoolWriter(path) as pool:
            rig = Rig(pool=pool)
            a = await rig.ask(user("task"))
            rig.engine.failures = 1
            with pytest.raises(ApiError):
                await rig.ask(user("task"), reply(a), user("one"), max_tokens=3)
            b = await rig.ask(user("task"), reply(a), user("two"), params={"seed": 1})
            await rig.ask(user("task"), reply(a), user("two"), reply(b), user("three"))
            expected = rig.gateway.sessions["s"].trace()
            with PoolReader(path) as reader:
                rig.gateway = Gateway(rig.engine, rig.template, rig.gateway.limits, pool)
                rig.gateway.resume(reader)
                c = await rig.ask(user("task"), reply(a), user("two"), reply(b), user("four"))
            sampled = len(rig.engine.seen)
            with PoolReader(path) as reader:
                rig.gateway = Gateway(rig.engine, rig.template, rig.gateway.limits, pool)
                rig.gateway.resume(reader)
                again = await rig.ask(user("task"), reply(a), user("two"), reply(b), user("four"), retry=1)
                first = await rig.ask(user("task"), retry=1)
            assert sampled == len(rig.engine.seen) and (again, first) == (c, a)
            return expected, await rig.trace()

    expected, trace = asyncio.run(play())
    assert [step.observation for step in expected.steps] == ["task", "two", "three"]
    told = {step.observation: step.call for step in trace.steps}
    assert [told[step.observation] for step in expected.steps] == [step.call for step in expected.steps]
    assert set(told) == {"task", "two", "three", "four"}
