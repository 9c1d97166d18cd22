"""The exact prompt of the next call, even if clients edit their history."""

import asyncio
import re
from dataclasses import replace

import pytest
from gateway import models
from gateway.models import (
    ADD,
    MemoryPool,
    Rig,
    Scripted,
    letters,
    model_call,
    opening,
    reply,
    result,
    sent_of,
    system,
    user,
)

from rl_agents.chat.template import ChatTemplate, ContextPolicy
from rl_agents.data.tasks import step_seed
from rl_agents.data.trajectory import ABANDONED, EpisodeSpec
from rl_agents.envs.base import TextEnv
from rl_agents.rollout.agent_loop import Episode
from rl_agents.rollout.turns import Limits
from rl_agents.store.records import Call, Exchange
from rl_agents.web.errors import ApiError

CALL = '<tool_call>\n{"arguments":{"a":1.0},"name":"add"}\n</tool_call>'


class Talk(TextEnv):
    """Says a number after every turn."""

    def reset(self, *, seed=None, options=None):
        self.turn = 0
        return "begin with this", {}

    def step(self, action):
        self.turn += 1
        return f"observation {self.turn}", 0.5, self.turn == 4, False, {}


def extends(prompt, step):
    """Whether a prompt begins with a step's prompt and response."""
    said = step.prompt_ids + step.response_ids
    return prompt[: len(said)] == said


async def test_a_linear_agent_has_the_built_in_loops_prompts_tokens_and_seeds():
    engine, context = Scripted(), ContextPolicy(ChatTemplate(models.tokenizer()))
    spec, limits = EpisodeSpec("t", 0, 0, seed=7), Limits(4, 12, models.MAX_LEN)
    expected = (await Episode(spec, Talk(), engine, context, limits).play()).steps
    rig = Rig()
    history = [user("begin with this")]
    for turn in range(1, 5):
        answer = await rig.ask(*history)
        rig.gateway.reward("s", 0.5, call=answer.call)
        history += [reply(answer), user(f"observation {turn}")]
    trace = await rig.trace()
    assert trace.steps == [replace(step, call=step_seed(7, n)) for n, step in enumerate(expected)]
    assert [step.finish_reason for step in trace.steps].count("length") > 0  # an end of turn had to be added
    assert all(step.next_step is None for step in trace.steps)


#: What clients make of an answer with calls, or with thoughts.
CLIENTS = {
    "as it was": {}, "no content beside calls": {"content": None}, "empty content": {"content": ""},
    "spaces": {"content": "\n both  "}, "thoughts dropped": {"reasoning_content": None},
    "other thoughts": {"reasoning_content": "summary"},
}  # fmt: skip


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_rewritten_form_of_the_history_continues_the_exact_ids(client):
    said = f"<think>hm</think>both {CALL}"
    rig = Rig({"add them": said}, max_response_tokens=400)
    first = await rig.ask(user("add them"), tools=(ADD,))
    message = reply(first, **CLIENTS[client])
    message["tool_calls"][0]["function"]["arguments"] = '{"a":1}'  # as JavaScript writes it
    message["tool_calls"][0]["id"] = "call_of_the_client"
    again = [user("add them "), message, result("call_of_the_client", "1")]
    await rig.ask(*again, tools=(ADD,), max_tokens=2)
    trace = await rig.trace()
    assert (first.thoughts, first.content) == ("hm", "both")
    assert extends(trace.steps[1].prompt_ids, trace.steps[0])
    assert trace.rewrites == trace.abandoned == trace.rendered_whole == 0
    assert all(step.next_step is None for step in trace.steps)


def test_a_client_that_reads_calls_out_of_the_raw_text_finds_its_ids_again():
    async def play(message_of):
        rig = Rig({"add them": f"both {CALL}"}, max_response_tokens=400)
        first = await rig.ask(user("add them"))  # no tools offered: shown as text
        assert first.content == f"both {CALL}" and not first.tool_calls
        await rig.ask(user("add them"), message_of(first), user("1"), max_tokens=2)
        return await rig.trace()

    call = {"id": "x", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    for message_of in (reply, lambda first: reply(first, content="both", tool_calls=[call])):
        trace = asyncio.run(play(message_of))
        assert extends(trace.steps[1].prompt_ids, trace.steps[0]) and trace.rewrites == 0


def test_a_thought_that_the_client_drops_is_kept_or_not_as_chosen():
    async def play(reasoning):
        rig = Rig({"riddle": "<think>long</think>short"}, max_response_tokens=60, reasoning=reasoning)
        first = await rig.ask(user("riddle"))
        await rig.ask(user("riddle"), reply(first, reasoning_content=None), user("go on"))
        await rig.ask(user("riddle"), reply(first), user("and now"))
        return rig, await rig.trace()

    _, kept = asyncio.run(play("keep"))
    assert kept.rewrites == 0 and all(extends(step.prompt_ids, kept.steps[0]) for step in kept.steps[1:])
    rig, sent = asyncio.run(play("as_sent"))
    by_call = {step.observation: step for step in sent.steps}
    dropped, whole, first = by_call["go on"], by_call["and now"], by_call["riddle"]
    assert sent.rewrites == 1 and not extends(dropped.prompt_ids, first) and extends(whole.prompt_ids, first)
    assert "long" not in rig.text(dropped.prompt_ids) and "short" in rig.text(dropped.prompt_ids)


async def test_a_rewritten_history_is_exact_up_to_the_deepest_common_call():
    rig = Rig()
    a = await rig.ask(user("task"))
    b = await rig.ask(user("task"), reply(a), user("one"))
    c = await rig.ask(user("task"), reply(a), user("one"), reply(b), user("two"))
    changed = {"role": "assistant", "content": "somebody else's words"}
    d = await rig.ask(user("task"), reply(a), user("one"), changed, user("three"))
    compact = [user("task"), {"role": "assistant", "content": "summary"}, user("four")]
    e = await rig.ask(*compact)
    await rig.ask(*compact, reply(e), user("five"))
    answers, trace = [a, b, c, d, e], await rig.trace()
    steps = {step.observation.split("\n")[-1]: step for step in trace.steps}
    assert extends(steps["three"].prompt_ids, steps["task"]) and not extends(steps["three"].prompt_ids, steps["one"])
    tail = steps["three"].prompt_ids[len(steps["task"].prompt_ids) + len(steps["task"].response_ids) :]
    assert "somebody else's words" in rig.text(tail)
    assert not extends(steps["four"].prompt_ids, steps["task"]) and extends(steps["five"].prompt_ids, steps["four"])
    assert trace.rewrites == 2
    # The chain continues through its rewrites, in their order.
    assert [step.call for step in trace.steps] == [*(a.call for a in answers), steps["five"].call]
    assert all(step.next_step is None for step in trace.steps)
    assert [step.call for step in trace.steps] == [step_seed(7, depth) for depth in range(6)]


async def test_other_tools_or_another_system_prompt_are_a_rewrite_of_the_same_history():
    rig = Rig()
    a = await rig.ask(system("be brief"), user("task"))
    history = [user("task"), reply(a), user("one")]
    b = await rig.ask(system("be long"), *history)
    await rig.ask(system("be long"), *history, reply(b), user("two"), tools=(ADD,))
    trace = await rig.trace()
    assert trace.rewrites == 2 and [step.next_step for step in trace.steps] == [None] * 3
    assert "be long" in rig.text(trace.steps[1].prompt_ids) and "adds" in rig.text(trace.steps[2].prompt_ids)


async def test_a_subagent_is_a_root_and_joins_the_call_that_reads_its_answer():
    rig = Rig({"task": "ask the others", "look left": "nothing there", "look right": "a door"}, max_response_tokens=30)
    a = await rig.ask(system("boss"), user("task"))
    left, right = await asyncio.gather(
        rig.ask(system("eyes"), user("look left")), rig.ask(system("eyes"), user("look right"))
    )
    found = f"they say: {left.content}; {right.content}"
    b = await rig.ask(system("boss"), user("task"), reply(a), user(found))
    trace = await rig.trace()
    calls = [step.call for step in trace.steps]
    assert calls == [left.call, right.call, a.call, b.call]
    assert [step.next_step for step in trace.steps] == [3, 3, None, None]
    assert a.call == step_seed(7, 0) and b.call == step_seed(7, 1) and trace.rewrites == 0
    rig = Rig()
    one, two = await asyncio.gather(rig.ask(user("agent one")), rig.ask(user("agent two")))
    await rig.ask(user("agent two"), reply(two), user("go on"))
    trace = await rig.trace()
    assert [step.call for step in trace.steps][:2] == [one.call, two.call]
    assert [step.next_step for step in trace.steps] == [-1, None, None]


async def test_an_unquoted_answer_continues_in_the_next_conversation():
    rig = Rig()
    for turn in range(3):  # a new prompt every time, as a window over the last steps is
        await rig.ask(system("player"), user(f"turn {turn}: what now?"))
    trace = await rig.trace()
    assert len(trace.steps) == 3 and all(step.next_step is None for step in trace.steps)


async def test_the_best_of_several_answers_leaves_the_others_behind():
    rig = Rig()
    first = await rig.all(user("task"), count=3)
    await rig.ask(user("task"), reply(first[1]), user("go on"))
    trace = await rig.trace()
    assert len({answer.call for answer in first}) == 3 and first[0].call == step_seed(7, 0)
    assert len({answer.content for answer in first}) == 3 and {answer.id for answer in first} == {first[0].id}
    assert trace.steps[0].call == first[1].call and len(trace.steps) == 2 and trace.abandoned == 2
    rig = Rig()
    await rig.all(user("task"), count=3)
    trace = await rig.trace()
    assert len(trace.steps) == 3 and trace.abandoned == 0 and [s.next_step for s in trace.steps] == [-1, -1, None]


async def test_no_reward_is_lost_with_the_answer_or_the_session_that_got_it():
    rig = Rig()
    first = await rig.all(user("task"), count=3)
    await rig.ask(user("task"), reply(first[1]), user("go on"))
    rig.gateway.reward("s", -1.0, call=first[2].call)
    trace = await rig.trace()
    assert [step.call for step in trace.steps[:2]] == [first[1].call, first[2].call] and trace.abandoned == 1
    assert [(step.reward, step.next_step) for step in trace.steps] == [(0.0, 2), (-1.0, ABANDONED), (0.0, None)]
    rig = Rig()
    rig.gateway.reward("s", 0.5)
    assert (await rig.trace()).facts() == {"reward_without_a_call": 0.5}


#: What is sampled, tools are offered -> content, thoughts, and the text of the ids that are kept.
STOPPED = {
    "in the answer": ("Thought: x\nObservation: made up", False, "Thought: x\n", "", "Thought: x\nObservation:"),
    "in a thought": (
        "<think>stop before Observation: ok</think>\nAct\nObservation: y", False, "\nAct\n",
        "stop before Observation: ok", "<think>stop before Observation: ok</think>\nAct\nObservation:",
    ),
    "only in a thought": ("<think>Observation: z</think>Act", False, "Act", "Observation: z", None),
    "in a thought that is not separated": ("So <think>Observation: z</think>", False, "So <think>", "",
                                           "So <think>Observation:"),
    "with tools": ("Act Observation: y", True, "Act", "", "Act Observation:"),
    "after a call": (f"{CALL} Observation: y", True, "", "", f"{CALL} Observation:"),
}  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("case", STOPPED)
async def test_a_stop_string_ends_sampling_the_record_and_the_next_prompt(case, stream):
    said, offered, content, thoughts, kept = STOPPED[case]
    tools, pool = ((ADD,) if offered else ()), MemoryPool()
    rig = Rig({"task": said}, pool=pool, max_response_tokens=400)
    call = model_call(user("task"), stop=("Observation:",), tools=tools, stream=stream)
    if stream:
        *_, first = [piece async for piece in rig.gateway.begin("s", call, sent_of(call)).stream()]
    else:
        first = await rig.ask(user("task"), stop=("Observation:",), tools=tools)
    sampled = rig.engine.sampled_tokens
    await rig.ask(user("task"), reply(first), user("real"), tools=tools, max_tokens=2)
    step, second = (await rig.trace()).steps
    ids = letters(kept or said) + ([] if kept else [step.response_ids[-1]])
    assert (first.content, first.thoughts, first.stop) == (content, thoughts, "Observation:" if kept else "")
    assert step.response_ids == pool.of(Call)[0].response_ids == ids and step.finish_reason == "stop"
    assert sampled == first.completion_tokens == len(step.logprobs) == len(ids)
    assert extends(second.prompt_ids, step) and "made up" not in rig.text(second.prompt_ids)


async def test_a_stop_string_inside_a_token_keeps_the_token_that_completes_it():
    """Whatever the engine: one that reports nothing while it samples is cut afterwards, to the same ids."""
    found = []
    for silent in (False, True):
        rig, unstopped = Rig(max_response_tokens=60), Rig(max_response_tokens=60)
        text = (await unstopped.ask(user("task"))).content
        if silent:
            rig.gateway._streaming = None
        stop = re.findall("[a-z](?=[a-z])", text)[-1]
        first = await rig.ask(user("task"), stop=(stop,))
        (step,) = (await rig.trace()).steps
        found.append((step.response_ids, step.logprobs, first.content, rig.engine.sampled_tokens))
        assert first.content == text.partition(stop)[0]
        assert stop in rig.text(step.response_ids) and stop not in rig.text(step.response_ids[:-1])
    assert found[0][:3] == found[1][:3] and found[0][3] == len(found[0][0]) < found[1][3]


async def test_the_budget_of_an_answer_and_of_a_session():
    pool = MemoryPool()
    rig = Rig(pool=pool)
    small, large = [await rig.ask(user(f"task {n}"), max_tokens=n) for n in (3, 1000)]
    assert small.completion_tokens == 3 and small.finish == "length" and large.completion_tokens <= 12
    assert [e.overridden for e in pool.of(Exchange) if e.state == "started"] == [{}, {"max_tokens": 1000}]
    rig = Rig(max_model_len=60)
    await rig.ask(user("task"))
    problems = []
    for text in ("x " * 100, "x " * 10000, "short"):
        with pytest.raises(ApiError) as caught:
            await rig.ask(user(text))
        problems.append(caught.value)
    trace = await rig.trace()
    assert {(p.status, p.code) for p in problems} == {(400, "context_length_exceeded")}
    assert len(rig.engine.seen) == 1 and trace.end == "context_length" and len(trace.steps) == 1


async def test_a_template_that_cannot_render_messages_separately_renders_the_whole_prompt():
    rig = Rig()
    a = await rig.ask(user("task"))
    rig.template.tokenizer = Fussy(rig.template.tokenizer)
    words = rig.template._between_ids  # without what the cache holds
    rig.template.between = lambda text: words([{"role": "user", "content": text}], [])
    await rig.ask(user("task"), reply(a), user("one"))
    trace = await rig.trace()
    assert (trace.rewrites, trace.rendered_whole) == (1, 1) and trace.steps[0].next_step is None


class Fussy:
    """Renders whole dialogues only: nothing that holds the sentinel."""

    def __init__(self, tokenizer):
        self.inner = tokenizer

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def apply_chat_template(self, messages, **options):
        if any("rl-agents-assistant-turn" in message["content"] for message in messages):
            raise ValueError("no such dialogue")
        return self.inner.apply_chat_template(messages, **options)


async def test_steering_adds_an_instruction_and_ends_the_session_after_its_answer():
    rig = Rig()
    a = await rig.ask(user("task"))
    rig.gateway.steer("s", "answer now")
    b = await rig.ask(user("task"), reply(a), user("one"))
    with pytest.raises(ApiError) as caught:
        await rig.ask(user("task"), reply(a), user("one"), reply(b), user("two"))
    same = await rig.ask(user("task"), reply(a), user("one"), retry=1)
    problem, trace = caught.value, await rig.trace()
    assert problem.status == 410 and same == b and trace.end == "steered"
    step = trace.steps[1]
    assert extends(step.prompt_ids, trace.steps[0]) and step.observation == "one\nanswer now"
    assert "user\none\nanswer now<|im_end|>" in rig.text(step.prompt_ids)


def test_recorded_answers_are_returned_for_equal_prompts_and_then_sampling_continues():
    async def play(seed, recorded=()):
        rig = Rig(seed=1)
        await rig.gateway.close("s")
        rig.gateway.open(opening("s2", seed), recorded)
        history = [user("task")]
        for turn in range(3):
            answer = await rig.ask(*history, session="s2")
            history += [reply(answer), user(f"observation {turn}")]
        return rig, await rig.gateway.close("s2")

    _, first = asyncio.run(play(7))
    recorded = [
        Call(s.call, 0, s.prompt_ids, s.response_ids, s.logprobs, s.policy_version, s.finish_reason)
        for s in first.steps[:2]
    ]
    rig, second = asyncio.run(play(8, recorded))
    assert second.steps[:2] == first.steps[:2] and len(rig.engine.seen) == 1
    assert second.steps[2].call == step_seed(8, 2) and second.steps[2].prompt_ids == first.steps[2].prompt_ids


async def test_the_id_of_a_recorded_answer_to_another_prompt_is_not_used():
    rig = Rig()
    recorded = Call(step_seed(9, 0), 0, [1, 2], [3], [-1.0], 0, "stop")
    rig.gateway.open(opening("s2", 9), [recorded])
    first = await rig.ask(user("task"), session="s2")
    second = await rig.ask(user("task"), reply(first), user("one"), session="s2")
    assert first.call != step_seed(9, 0) and second.call == step_seed(9, 1)


async def test_a_response_that_follows_another_has_its_history():
    rig = Rig()
    a = await rig.ask(system("be brief"), user("task"))
    await rig.ask(user("one"), previous=a.id)
    await rig.ask(system("be long"), user("two"), previous=a.id)
    with pytest.raises(ApiError) as caught:
        await rig.ask(user("one"), previous="0" * 16)
    problem, trace = caught.value, await rig.trace()
    assert problem.code == "previous_response_not_found" and trace.rewrites == 1
    steps = {step.observation: step for step in trace.steps}
    assert extends(steps["one"].prompt_ids, steps["task"]) and "be long" in rig.text(steps["two"].prompt_ids)


def test_of_answers_with_one_text_the_ids_of_their_calls_decide_then_the_later_one_is_taken():
    async def play(tools, said):
        rig = Rig({"add them": said}, max_response_tokens=400)
        first = await rig.all(user("add them"), tools=tools, count=2)
        await rig.ask(user("add them"), reply(first[0]), user("go on"), tools=tools, max_tokens=2)
        return first, rig.gateway.sessions["s"].tree.calls[-1]

    first, last = asyncio.run(play((ADD,), CALL))
    assert first[0].content == first[1].content and last.parent.id == first[0].call
    first, last = asyncio.run(play((), "the same words"))
    assert first[0].content == first[1].content and last.parent.id == first[1].call


async def test_the_first_continuation_is_next_and_the_last_word_stays():
    rig = Rig()
    a = await rig.ask(user("task"))
    b = await rig.ask(user("task"), reply(a), user("left"))
    c = await rig.ask(user("task"), reply(a), user("right"))
    d = await rig.ask(user("task"), reply(a), user("left"), reply(b), user("on"))
    trace = await rig.trace()
    assert [step.call for step in trace.steps] == [c.call, a.call, b.call, d.call]
    assert [step.next_step for step in trace.steps] == [3, None, None, None] and trace.abandoned == 0
    rig = Rig()
    first = await rig.all(user("task"), count=2)
    await rig.ask(user("task"), reply(first[0]), user("go on"))
    last = await rig.ask(user("task"))
    trace = await rig.trace()
    assert trace.steps[-1].call == last.call and trace.abandoned == 1
    assert first[1].call not in {step.call for step in trace.steps}


async def test_numbers_of_tokens_are_asked_without_making_a_call():
    rig = Rig()
    a = await rig.ask(user("task"))
    call = model_call(user("task"), reply(a), user("go on"))
    count = rig.gateway.count_tokens("s", call)
    b = await rig.gateway.begin("s", call, sent_of(call)).answers()
    expected, trace = b[0].prompt_tokens, await rig.trace()
    assert count == expected and len(trace.steps) == 2
    rig = Rig()
    with pytest.raises(ApiError):
        rig.gateway.count_tokens("s", model_call(user("x" * 5 * models.MAX_LEN)))
    assert (await rig.ask(user("task"))).completion_tokens  # unlike a call of that length, it has not ended the session
