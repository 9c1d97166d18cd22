"""The same agent as a coroutine: it runs in the rollout process's event loop, without a process of its own.

    python run.py --algo grpo --env blackbox --local --set env.tasks=guess_numbers eval_episodes=64 \
        env.agent=docs.examples.agents.coroutine:agent
"""

from openai import AsyncOpenAI

from rl_agents.envs.base import make_env


async def agent(task, client):
    game = make_env(task["env"], task["options"], task["max_turns"])
    observation, info = game.reset(seed=client.seed, options={"task_id": task["id"]})
    messages, reward, terminated, truncated = [{"role": "user", "content": observation}], 0.0, False, False
    async with AsyncOpenAI(base_url=client.base_url, api_key=client.api_key) as model:
        while not (terminated or truncated):
            answered = await model.chat.completions.create(model="policy", messages=messages)
            answer = answered.choices[0].message.content
            observation, reward, terminated, truncated, info = game.step(answer)
            messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": observation}]
    return {"reward": reward, "success": info["success"], "truncated": truncated, "metrics": info["metrics"]}
