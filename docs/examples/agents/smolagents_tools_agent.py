import asyncio

from smolagents import CodeAgent, OpenAIModel, ToolCallingAgent, tool


async def tools(task, client, kind=ToolCallingAgent):
    loop, observation = asyncio.get_running_loop(), await client.reset()

    @tool
    def act(response: str) -> str:
        """Plays a turn, and tells what happens.

        Args:
            response: The turn, in the form that the task describes.
        """
        return asyncio.run_coroutine_threadsafe(client.step(response), loop).result()[0]

    model = OpenAIModel("policy", api_base=client.base_url, api_key=client.api_key)
    await asyncio.to_thread(kind([act], model, max_steps=task["max_turns"], verbosity_level=0).run, observation)


async def code(task, client):
    await tools(task, client, CodeAgent)
