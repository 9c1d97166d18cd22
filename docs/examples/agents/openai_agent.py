"""OpenAI's client: Chat Completions, and Responses."""

from openai import AsyncOpenAI


async def chat(task, client):
    async with AsyncOpenAI(base_url=client.base_url, api_key=client.api_key) as model:
        messages, observation, done = [], await client.reset(), False
        while not done:
            messages.append({"role": "user", "content": observation})
            answered = await model.chat.completions.create(model="policy", messages=messages)
            messages.append(answered.choices[0].message)
            observation, done = await client.step(answered.choices[0].message.content)


async def responses(task, client):
    async with AsyncOpenAI(base_url=client.base_url, api_key=client.api_key) as model:
        last, observation, done = None, await client.reset(), False
        while not done:
            answered = await model.responses.create(model="policy", input=observation, previous_response_id=last)
            last = answered.id
            observation, done = await client.step(answered.output_text)
