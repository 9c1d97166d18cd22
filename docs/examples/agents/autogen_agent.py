"""AutoGen: an AssistantAgent."""

from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import ModelFamily
from autogen_ext.models.openai import OpenAIChatCompletionClient

ABOUT = {
    "vision": False,
    "function_calling": True,
    "json_output": False,
    "structured_output": False,
    "family": ModelFamily.UNKNOWN,
}


async def agent(task, client):
    model = OpenAIChatCompletionClient(
        model="policy", base_url=client.base_url, api_key=client.api_key, model_info=ABOUT
    )
    player = AssistantAgent("player", model_client=model, system_message=None)
    observation, done = await client.reset(), False
    while not done:
        result = await player.run(task=observation)
        observation, done = await client.step(result.messages[-1].content)
    await model.close()
