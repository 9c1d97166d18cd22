from ag2 import Agent
from ag2.config import OpenAIResponsesConfig


async def agent(task, client):
    config = OpenAIResponsesConfig(model="policy", base_url=client.base_url, api_key=client.api_key)
    talk, observation, done = Agent("player", config=config), await client.reset(), False
    while not done:
        talk = await talk.ask(observation)
        observation, done = await client.step(talk.body or "")
