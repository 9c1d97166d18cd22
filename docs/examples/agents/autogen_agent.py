from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient

CAN = {"vision": False, "function_calling": True, "json_output": False, "structured_output": False, "family": "unknown"}


async def agent(task, client):
    model = OpenAIChatCompletionClient(model="policy", base_url=client.base_url, api_key=client.api_key, model_info=CAN)
    player, observation, done = AssistantAgent("player", model, system_message=None), await client.reset(), False
    while not done:
        result = await player.run(task=observation)
        observation, done = await client.step(result.messages[-1].content)
    await model.close()
