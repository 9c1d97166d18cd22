import json

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


async def tools(task, client):
    provider = OpenAIProvider(base_url=client.base_url, api_key=client.api_key)
    player = Agent(OpenAIChatModel("policy", provider=provider))

    @player.tool_plain(sequential=True)
    async def search(query: str) -> str:
        """Find passages in the collection."""
        call = json.dumps({"name": "search", "arguments": {"query": query}})
        return (await client.step(f"<tool_call>{call}</tool_call>"))[0]

    history, observation, done = [], await client.reset(), False
    while not done:
        result = await player.run(observation, message_history=history)
        history = result.all_messages()
        observation, done = await client.step(result.output)
