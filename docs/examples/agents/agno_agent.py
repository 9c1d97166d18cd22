from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.models.openai.like import OpenAILike


async def agent(task, client):
    model = OpenAILike(id="policy", base_url=client.base_url, api_key=client.api_key)
    memory = {"db": InMemoryDb(), "session_id": "game", "add_history_to_context": True, "num_history_runs": 1000}
    player = Agent(model=model, telemetry=False, **memory)
    observation, done = await client.reset(), False
    while not done:
        result = await player.arun(observation)
        observation, done = await client.step(result.content)
