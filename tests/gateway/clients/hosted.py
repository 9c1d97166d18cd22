"""The agents of the tests, all in one process of ``.venv-clients``: functions of the pages that tasks name."""

import importlib
import importlib.util

# Here and not in the threads that play: libraries that import each other do not bear being imported side by side.
for name in (
    "httpx", "anthropic", "openai", "agents", "smolagents", "langchain_openai", "langgraph.prebuilt",
    "pydantic_ai.models.anthropic", "pydantic_ai.models.openai", "autogen_agentchat.agents",
    "autogen_ext.models.openai", "ag2.config", "agent_framework.openai", "agno.agent", "agno.models.openai.like",
    "agno.models.openai.responses", "haystack.components.agents", "haystack.components.generators.chat",
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


async def agent(task, client):
    """Play the game as a page's agent."""
    await getattr(module_of(task["file"]), task["function"])(task["game"], client)
