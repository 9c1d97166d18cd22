"""smolagents: its model alone, as a chat; its agents with a tool that acts."""

import asyncio

from smolagents import CodeAgent, OpenAIModel, ToolCallingAgent, tool


async def chat(task, client):
    model = OpenAIModel("policy", api_base=client.base_url, api_key=client.api_key)
    messages, observation, done = [], await client.reset(), False
    while not done:
        messages.append({"role": "user", "content": [{"type": "text", "text": observation}]})
        answered = await asyncio.to_thread(model.generate, messages)
        messages.append(answered)
        observation, done = await client.step(answered.content)


async def run(task, client, kind):
    loop, observation = asyncio.get_running_loop(), await client.reset()

    @tool
    def act(response: str) -> str:
        """Play a turn, and see what happens.

        Args:
            response: A turn as the task describes it.
        """
        return asyncio.run_coroutine_threadsafe(client.step(response), loop).result()[0]

    model = OpenAIModel("policy", api_base=client.base_url, api_key=client.api_key)
    await asyncio.to_thread(kind([act], model, max_steps=task["max_turns"], verbosity_level=0).run, observation)


async def tools(task, client):
    await run(task, client, ToolCallingAgent)


async def code(task, client):
    await run(task, client, CodeAgent)
