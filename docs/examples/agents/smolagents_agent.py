import asyncio

from smolagents import OpenAIModel


async def chat(task, client):
    model = OpenAIModel("policy", api_base=client.base_url, api_key=client.api_key)
    messages, observation, done = [], await client.reset(), False
    while not done:
        messages.append({"role": "user", "content": [{"type": "text", "text": observation}]})
        answered = await asyncio.to_thread(model.generate, messages)
        messages.append(answered)
        observation, done = await client.step(answered.content)
