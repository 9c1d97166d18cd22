"""OpenAI's agents SDK, over Responses (its default) and over Chat Completions."""

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, set_tracing_disabled
from agents.exceptions import ModelBehaviorError
from openai import AsyncOpenAI

set_tracing_disabled(True)


async def play(client, kind):
    async with AsyncOpenAI(base_url=client.base_url, api_key=client.api_key) as model:
        player = Agent(name="player", model=kind("policy", model))
        history, observation, done = [], await client.reset(), False
        while not done:
            result = await Runner.run(player, [*history, {"role": "user", "content": observation}])
            history = result.to_input_list()
            observation, done = await client.step(result.final_output)


async def responses(task, client):
    try:
        await play(client, OpenAIResponsesModel)
    except ModelBehaviorError:
        pass  # an answer that its budget cut: the episode ends with the rewards that it has


async def chat(task, client):
    await play(client, OpenAIChatCompletionsModel)
