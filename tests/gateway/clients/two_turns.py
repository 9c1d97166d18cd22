"""The same small conversation in every framework: a question, a call of the tool `add`, its result, the last words.

Every function takes a gateway's address (without ``/v1``) and a key, and returns the framework's last words; nothing
but the address is set. They run where ``requirements.txt`` is installed, and import their framework themselves.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

QUESTION = "What is 2 + 3? Use the tool add."
RULES = "You are careful with numbers."
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
ABOUT = "Add two whole numbers."
MODEL = "policy"

Client = Callable[[str, str], str]


def add(a: int, b: int) -> int:
    """Add two whole numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b


def openai_chat(base: str, key: str, stream: bool = False) -> str:
    from openai import OpenAI

    client = OpenAI(base_url=f"{base}/v1", api_key=key)
    tools: Any = [{"type": "function", "function": {"name": "add", "description": ABOUT, "parameters": SCHEMA}}]
    messages: list[Any] = [{"role": "developer", "content": RULES}, {"role": "user", "content": QUESTION}]
    while True:
        if stream:
            with client.chat.completions.stream(model=MODEL, messages=messages, tools=tools) as events:
                for _ in events:
                    pass
                said = events.get_final_completion().choices[0].message
        else:
            answer = client.chat.completions.create(model=MODEL, messages=messages, tools=tools, temperature=0)
            said = answer.choices[0].message
        if not said.tool_calls:
            return said.content or ""
        messages.append(said)
        for call in said.tool_calls:
            result = str(add(**json.loads(call.function.arguments)))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


def openai_responses(base: str, key: str) -> str:
    from openai import OpenAI

    client = OpenAI(base_url=f"{base}/v1", api_key=key)
    tools: Any = [{"type": "function", "name": "add", "description": ABOUT, "parameters": SCHEMA, "strict": True}]
    items: list[Any] = [{"role": "user", "content": QUESTION}]
    while True:
        answer = client.responses.create(model=MODEL, input=items, instructions=RULES, tools=tools)
        calls = [item for item in answer.output if item.type == "function_call"]
        if not calls:
            return answer.output_text
        items += answer.output
        for call in calls:
            result = str(add(**json.loads(call.arguments)))
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": result})


def openai_responses_followed(base: str, key: str) -> str:
    """The second turn names the first one's response and sends only what is new; streamed."""
    from openai import OpenAI

    client = OpenAI(base_url=f"{base}/v1", api_key=key)
    tools: Any = [{"type": "function", "name": "add", "description": ABOUT, "parameters": SCHEMA, "strict": True}]
    new: list[Any] = [{"role": "user", "content": QUESTION}]
    before: dict[str, Any] = {}
    while True:
        with client.responses.stream(model=MODEL, input=new, instructions=RULES, tools=tools, **before) as events:
            answer = events.get_final_response()
        calls = [item for item in answer.output if item.type == "function_call"]
        if not calls:
            return answer.output_text
        before = {"previous_response_id": answer.id}
        new = [
            {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": str(add(**json.loads(call.arguments))),
            }
            for call in calls
        ]


def anthropic_messages(base: str, key: str, stream: bool = False) -> str:
    from anthropic import Anthropic

    client = Anthropic(base_url=base, api_key=key)
    tools: Any = [{"name": "add", "description": ABOUT, "input_schema": SCHEMA}]
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    asked: dict[str, Any] = {"model": MODEL, "max_tokens": 1024, "system": RULES, "tools": tools}
    while True:
        if stream:
            with client.messages.stream(messages=messages, **asked) as events:
                said = events.get_final_message()
        else:
            said = client.messages.create(messages=messages, **asked)
        if said.stop_reason != "tool_use":
            return "".join(block.text for block in said.content if block.type == "text")
        messages.append({"role": "assistant", "content": said.content})
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": str(add(**block.input))}
            for block in said.content
            if block.type == "tool_use"
        ]
        messages.append({"role": "user", "content": results})


def openai_agents(base: str, key: str, api: str = "responses", stream: bool = False) -> str:
    from agents import Agent, Runner, function_tool, set_default_openai_client, set_tracing_disabled
    from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
    from agents.models.openai_responses import OpenAIResponsesModel
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=f"{base}/v1", api_key=key)
    set_default_openai_client(client, use_for_tracing=False)
    kind = OpenAIResponsesModel if api == "responses" else OpenAIChatCompletionsModel
    agent = Agent(name="adder", instructions=RULES, tools=[function_tool(add)], model=kind(MODEL, client))

    async def run() -> str:
        if not stream:
            return str((await Runner.run(agent, QUESTION)).final_output)
        result = Runner.run_streamed(agent, QUESTION)
        async for _ in result.stream_events():
            pass
        return str(result.final_output)

    return asyncio.run(run())


def smolagents_tools(base: str, key: str, stream: bool = False) -> str:
    from smolagents import OpenAIModel, ToolCallingAgent, tool

    model = OpenAIModel(MODEL, api_base=f"{base}/v1", api_key=key)
    agent = ToolCallingAgent(tools=[tool(add)], model=model, max_steps=3, verbosity_level=0, stream_outputs=stream)
    return str(agent.run(QUESTION))


def smolagents_code(base: str, key: str) -> str:
    from smolagents import CodeAgent, OpenAIModel, tool

    model = OpenAIModel(MODEL, api_base=f"{base}/v1", api_key=key)
    return str(CodeAgent(tools=[tool(add)], model=model, max_steps=3, verbosity_level=0).run(QUESTION))


def langgraph(base: str, key: str, responses: bool = False, stream: bool = False) -> str:
    from langchain_openai import ChatOpenAI
    from langgraph.prebuilt import create_react_agent

    model = ChatOpenAI(model=MODEL, base_url=f"{base}/v1", api_key=key, use_responses_api=responses)
    agent = create_react_agent(model, [add], prompt=RULES)
    asked: Any = {"messages": [{"role": "user", "content": QUESTION}]}
    if stream:
        *_, last = agent.stream(asked, stream_mode=["messages", "values"])
        return str(last[1]["messages"][-1].text)
    return str(agent.invoke(asked)["messages"][-1].text)


def pydantic_ai(base: str, key: str, kind: str = "chat", stream: bool = False) -> str:
    from pydantic_ai import Agent
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.openai import OpenAIProvider

    if kind == "messages":
        model: Any = AnthropicModel(MODEL, provider=AnthropicProvider(base_url=base, api_key=key))
    else:
        provider = OpenAIProvider(base_url=f"{base}/v1", api_key=key)
        model = (OpenAIChatModel if kind == "chat" else OpenAIResponsesModel)(MODEL, provider=provider)
    agent = Agent(model, instructions=RULES, tools=[add])

    async def follow(_: Any, events: AsyncIterator[Any]) -> None:
        async for _event in events:
            pass

    # Not run_stream: that takes the first words for the last, though a call follows them.
    return asyncio.run(agent.run(QUESTION, event_stream_handler=follow if stream else None)).output


def autogen(base: str, key: str, stream: bool = False) -> str:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_core.models import ModelFamily
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    about: Any = {
        "vision": False,
        "function_calling": True,
        "json_output": False,
        "structured_output": False,
        "family": ModelFamily.UNKNOWN,
    }
    client = OpenAIChatCompletionClient(model=MODEL, base_url=f"{base}/v1", api_key=key, model_info=about)
    agent = AssistantAgent(
        "adder",
        model_client=client,
        tools=[add],
        system_message=RULES,
        reflect_on_tool_use=True,
        model_client_stream=stream,
    )

    async def run() -> str:
        result = await agent.run(task=QUESTION)
        return str(result.messages[-1].content)  # type: ignore[union-attr]

    return asyncio.run(run())


def agno(base: str, key: str, stream: bool = False, responses: bool = False) -> str:
    from agno.agent import Agent
    from agno.models.openai.like import OpenAILike
    from agno.models.openai.responses import OpenAIResponses

    kind: Any = OpenAIResponses if responses else OpenAILike
    model = kind(id=MODEL, base_url=f"{base}/v1", api_key=key)
    agent = Agent(model=model, instructions=RULES, tools=[add], telemetry=False)
    if stream:
        return "".join(str(event.content or "") for event in agent.run(QUESTION, stream=True))
    return str(agent.run(QUESTION).content)


def ag2(base: str, key: str, stream: bool = False, responses: bool = False) -> str:
    from ag2 import Agent
    from ag2.config import OpenAIConfig, OpenAIResponsesConfig

    kind: Any = OpenAIResponsesConfig if responses else OpenAIConfig
    config = kind(model=MODEL, base_url=f"{base}/v1", api_key=key, streaming=stream)
    return str(asyncio.run(Agent("adder", RULES, config=config, tools=[add]).ask(QUESTION)).body)


def agent_framework(base: str, key: str, responses: bool = False, stream: bool = False) -> str:
    from agent_framework import Agent
    from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient

    kind: Any = OpenAIChatClient if responses else OpenAIChatCompletionClient
    agent = Agent(kind(MODEL, base_url=f"{base}/v1", api_key=key), RULES, tools=[add])

    async def run() -> str:
        if not stream:
            return str((await agent.run(QUESTION)).text)
        updates = agent.run(QUESTION, stream=True)
        async for _ in updates:
            pass
        return str((await updates.get_final_response()).text)

    return asyncio.run(run())


def haystack(base: str, key: str, stream: bool = False) -> str:
    from haystack.components.agents import Agent
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.tools import create_tool_from_function
    from haystack.utils import Secret

    model = OpenAIChatGenerator(Secret.from_token(key), MODEL, api_base_url=f"{base}/v1")
    agent = Agent(chat_generator=model, tools=[create_tool_from_function(add)], system_prompt=RULES)
    shown: Any = (lambda _: None) if stream else None
    return str(agent.run([ChatMessage.from_user(QUESTION)], streaming_callback=shown)["last_message"].text)


CLIENTS: dict[str, Client] = {
    "openai_chat": openai_chat,
    "openai_chat_streamed": partial(openai_chat, stream=True),
    "openai_responses": openai_responses,
    "openai_responses_followed": openai_responses_followed,
    "anthropic_messages": anthropic_messages,
    "anthropic_messages_streamed": partial(anthropic_messages, stream=True),
    "openai_agents": openai_agents,
    "openai_agents_streamed": partial(openai_agents, stream=True),
    "openai_agents_chat": partial(openai_agents, api="chat_completions"),
    "openai_agents_chat_streamed": partial(openai_agents, api="chat_completions", stream=True),
    "smolagents_tools": smolagents_tools,
    "smolagents_tools_streamed": partial(smolagents_tools, stream=True),
    "smolagents_code": smolagents_code,
    "langgraph": langgraph,
    "langgraph_streamed": partial(langgraph, stream=True),
    "langgraph_responses": partial(langgraph, responses=True),
    "langgraph_responses_streamed": partial(langgraph, responses=True, stream=True),
    "pydantic_ai": pydantic_ai,
    "pydantic_ai_streamed": partial(pydantic_ai, stream=True),
    "pydantic_ai_responses": partial(pydantic_ai, kind="responses"),
    "pydantic_ai_responses_streamed": partial(pydantic_ai, kind="responses", stream=True),
    "pydantic_ai_messages": partial(pydantic_ai, kind="messages"),
    "pydantic_ai_messages_streamed": partial(pydantic_ai, kind="messages", stream=True),
    "autogen": autogen,
    "autogen_streamed": partial(autogen, stream=True),
    "agno": agno,
    "agno_streamed": partial(agno, stream=True),
    "agno_responses": partial(agno, responses=True),
    "ag2": ag2,
    "ag2_streamed": partial(ag2, stream=True),
    "ag2_responses": partial(ag2, responses=True),
    "agent_framework": agent_framework,
    "agent_framework_streamed": partial(agent_framework, stream=True),
    "agent_framework_responses": partial(agent_framework, responses=True),
    "agent_framework_responses_streamed": partial(agent_framework, responses=True, stream=True),
    "haystack": haystack,
    "haystack_streamed": partial(haystack, stream=True),
}
