"""OpenAI's and Anthropic's own SDKs on a real gateway: exact tokens over tool turns."""

import asyncio

import anthropic
import openai
import pytest
from gateway.models import MemoryPool, Rig

from rl_agents.data.tasks import step_seed
from rl_agents.gateway.server import serving

pytestmark = pytest.mark.servers

SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}}}
SAID = '<think>hm</think>I add. <tool_call>{"arguments": {"a": 1.0}, "name": "add"}</tool_call>'
FUNCTION = {"type": "function", "function": {"name": "add", "parameters": SCHEMA}}
FLAT = {"type": "function", "name": "add", "parameters": SCHEMA}


def run(work):
    async def play():
        rig = Rig({"add them": SAID}, pool=MemoryPool(), max_response_tokens=120)
        async with serving(rig.gateway) as url:
            await work(rig, url)
        return rig, await rig.trace()

    return asyncio.run(play())


async def chat(rig, url, stream=False):
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=rig.key) as client:
        messages = [{"role": "user", "content": "add them"}]
        if stream:
            async with client.chat.completions.stream(model="m", messages=messages, tools=[FUNCTION]) as events:
                answer = (await events.get_final_completion()).choices[0].message
        else:
            whole = await client.chat.completions.create(model="m", messages=messages, tools=[FUNCTION])
            answer = whole.choices[0].message
        assert answer.content == "I add."
        messages += [answer.model_dump(exclude_none=True, exclude={"parsed"}),
                     {"role": "tool", "tool_call_id": answer.tool_calls[0].id, "content": "7"}]  # fmt: skip
        await client.chat.completions.create(model="m", messages=messages, tools=[FUNCTION])


async def chat_streamed(rig, url):
    await chat(rig, url, stream=True)


async def responses(rig, url):
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=rig.key) as client:
        items = [{"role": "user", "content": "add them"}]
        answer = await client.responses.create(model="m", input=items, tools=[FLAT])
        (call,) = (item for item in answer.output if item.type == "function_call")
        items += [item.model_dump() for item in answer.output]
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": "7"})
        await client.responses.create(model="m", input=items, tools=[FLAT])


async def responses_by_id(rig, url):
    async with openai.AsyncOpenAI(base_url=f"{url}/s/s/v1", api_key=rig.key) as client:
        first = await client.responses.create(model="m", input="add them", tools=[FLAT])
        (call,) = (item for item in first.output if item.type == "function_call")
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "7"}
        await client.responses.create(model="m", input=[result], previous_response_id=first.id, tools=[FLAT])


async def messages(rig, url):
    async with anthropic.AsyncAnthropic(base_url=url, api_key=rig.key) as client:
        tools = [{"name": "add", "input_schema": SCHEMA}]
        turns = [{"role": "user", "content": "add them"}]
        async with client.messages.stream(model="m", max_tokens=500, messages=turns, tools=tools) as events:
            answer = await events.get_final_message()
        (call,) = (block for block in answer.content if block.type == "tool_use")
        assert [block.type for block in answer.content] == ["thinking", "text", "tool_use"]
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "7"}
        turns += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
        await client.messages.create(model="m", max_tokens=500, messages=turns, tools=tools)


@pytest.mark.parametrize("agent", [chat, chat_streamed, responses, responses_by_id, messages])
def test_a_tool_turn_continues_the_exact_ids_in_every_dialect(agent):
    rig, trace = run(agent)
    first, second = trace.steps
    said = first.prompt_ids + first.response_ids
    assert second.prompt_ids[: len(said)] == said and (trace.rewrites, trace.rendered_whole) == (0, 0)
    between = "\n<|im_start|>user\n<tool_response>\n7\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    assert rig.text(second.prompt_ids[len(said) :]) == between
    assert [step.call for step in trace.steps] == [step_seed(7, 0), step_seed(7, 1)]
