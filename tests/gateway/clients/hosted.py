"""The agents of the tests, all in one process of ``.venv-clients``: what a task's ``kind`` names."""

import importlib
import importlib.util

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

# Here and not in the threads that play: libraries that import each other do not bear being imported side by side.
for name in (
    "httpx", "agents", "smolagents", "langchain_openai", "langgraph.prebuilt", "pydantic_ai.models.anthropic",
    "pydantic_ai.models.openai", "autogen_agentchat.agents", "autogen_ext.models.openai", "ag2.config",
    "agent_framework.openai", "agno.agent", "agno.models.openai.like", "agno.models.openai.responses",
    "haystack.components.agents", "haystack.components.generators.chat",
):  # fmt: skip
    importlib.import_module(name)

PAGES = {}


def module_of(path):
    """Import the code of a page, once."""
    if path not in PAGES:
        spec = importlib.util.spec_from_file_location(f"page_{len(PAGES)}", path)
        PAGES[path] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(PAGES[path])
    return PAGES[path]


async def page(task, client):
    """Play the game as a page's agent."""
    await getattr(module_of(task["file"]), task["function"])(task["game"], client)


async def impatient(task, client):
    """Ask twice, with less patience than the engine needs; the SDK retries by itself."""
    patience = {"api_key": client.api_key, "timeout": 0.6, "max_retries": 5}
    messages, said = [], []
    for text in ("first", "second"):
        messages.append({"role": "user", "content": text})
        if task["client"] == "anthropic":
            async with AsyncAnthropic(base_url=client.anthropic_url, **patience) as model:
                answer = await model.messages.create(model="policy", max_tokens=99, messages=messages)
                said.append(answer.content[0].text)
        elif task["client"] == "openai_chat":
            async with AsyncOpenAI(base_url=client.base_url, **patience) as model:
                answer = await model.chat.completions.create(model="policy", messages=messages)
                said.append(answer.choices[0].message.content)
        else:
            async with AsyncOpenAI(base_url=client.base_url, **patience) as model:
                said.append((await model.responses.create(model="policy", input=messages)).output_text)
        messages.append({"role": "assistant", "content": said[-1]})
    return {"reward": 1.0, "references": said}


async def agent(task, client):
    """Do what the task says."""
    return await globals()[task["kind"]](task, client)
