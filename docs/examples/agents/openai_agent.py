from openai import AsyncOpenAI


async def chat(task, client):
    messages, observation, done = [], await client.reset(), False
    async with AsyncOpenAI(base_url=client.base_url, api_key=client.api_key) as model:
        while not done:
            messages.append({"role": "user", "content": observation})
            answered = await model.chat.completions.create(model="policy", messages=messages)
            messages.append(answered.choices[0].message)
            observation, done = await client.step(answered.choices[0].message.content)


async def responses(task, client):
    last, observation, done = None, await client.reset(), False
    async with AsyncOpenAI(base_url=client.base_url, api_key=client.api_key) as model:
        while not done:
            answered = await model.responses.create(model="policy", input=observation, previous_response_id=last)
            last = answered.id
            observation, done = await client.step(answered.output_text)
