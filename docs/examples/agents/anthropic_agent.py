from anthropic import AsyncAnthropic


async def agent(task, client):
    messages, observation, done = [], await client.reset(), False
    async with AsyncAnthropic(base_url=client.anthropic_url, api_key=client.api_key) as model:
        while not done:
            messages.append({"role": "user", "content": observation})
            answered = await model.messages.create(model="policy", max_tokens=1024, messages=messages)
            messages.append({"role": "assistant", "content": answered.content})
            text = "".join(block.text for block in answered.content if block.type == "text")
            observation, done = await client.step(text)
