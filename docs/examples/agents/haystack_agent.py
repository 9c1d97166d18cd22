from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret


async def agent(task, client):
    key = Secret.from_token(client.api_key)
    player = Agent(chat_generator=OpenAIChatGenerator(key, "policy", api_base_url=client.base_url))
    messages, observation, done = [], await client.reset(), False
    while not done:
        messages.append(ChatMessage.from_user(observation))
        result = await player.run_async(messages)
        messages = result["messages"]
        observation, done = await client.step(result["last_message"].text)
