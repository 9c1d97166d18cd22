from agent_framework import Agent
from agent_framework.openai import OpenAIChatCompletionClient


async def agent(task, client):
    model = OpenAIChatCompletionClient("policy", base_url=client.base_url, api_key=client.api_key)
    player = Agent(model)
    session, observation, done = player.create_session(), await client.reset(), False
    while not done:
        result = await player.run(observation, session=session)
        observation, done = await client.step(result.text)
