"""The agent of coroutine.py with a subagent, which it asks after the first hint, and whose answer it quotes.

    python run.py --algo grpo --env blackbox --local --set env.tasks=guess_numbers eval_episodes=64 \
        env.agent=docs.examples.agents.subagent:agent
"""

from openai import AsyncOpenAI

from rl_agents.envs.base import make_env


async def agent(task, client):
    game = make_env(task["env"], task["options"], task["max_turns"])
    observation, info = game.reset(seed=client.seed, options={"task_id": task["id"]})
    messages, helping = ([{"role": "user", "content": observation}] for _ in range(2))
    async with AsyncOpenAI(base_url=client.base_url, api_key=client.api_key) as model:

        async def say(conversation):
            answered = await model.chat.completions.create(model="policy", messages=conversation)
            conversation.append({"role": "assistant", "content": answered.choices[0].message.content})
            return answered.choices[0].message.content

        while True:
            observation, reward, terminated, truncated, info = game.step(await say(messages))
            if terminated or truncated:
                return {"reward": reward, "success": info["success"], "truncated": truncated}
            if len(messages) == 2:
                await say(helping)
                helping.append({"role": "user", "content": observation})
                observation = f"{observation} {await say(helping)}"
            messages.append({"role": "user", "content": observation})
