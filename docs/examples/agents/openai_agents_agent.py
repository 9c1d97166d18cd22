import agents
from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner
from openai import AsyncOpenAI

agents.set_tracing_disabled(True)  # it would go to OpenAI


async def responses(task, client, kind=OpenAIResponsesModel):
    model = kind("policy", AsyncOpenAI(base_url=client.base_url, api_key=client.api_key))
    player, history, observation, done = Agent(name="player", model=model), [], await client.reset(), False
    while not done:
        try:
            result = await Runner.run(player, [*history, {"role": "user", "content": observation}])
        except agents.ModelBehaviorError:  # Responses: the token budget cut an answer
            return
        history = result.to_input_list()
        observation, done = await client.step(result.final_output)


async def chat(task, client):
    await responses(task, client, OpenAIChatCompletionsModel)
