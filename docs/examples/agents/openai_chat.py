"""An agent that knows nothing of rl_agents' training: it asks a model through OpenAI's client and plays a game.

    python run.py --algo grpo --env blackbox --set env.tasks=guess_numbers \
        env.agent_command='python docs/examples/agents/openai_chat.py'

The client finds its address and its key in OPENAI_BASE_URL and OPENAI_API_KEY.
"""

import json
import os

from openai import OpenAI

from rl_agents.envs.base import make_env

task = json.loads(os.environ["RL_AGENTS_TASK"])
game = make_env(task["env"], task["options"], task["max_turns"])
observation, info = game.reset(seed=int(os.environ["RL_AGENTS_SEED"]), options={"task_id": task["id"]})

client, messages = OpenAI(), [{"role": "user", "content": observation}]
reward, terminated, truncated = 0.0, False, False
while not (terminated or truncated):
    answer = client.chat.completions.create(model="policy", messages=messages).choices[0].message.content
    observation, reward, terminated, truncated, info = game.step(answer)
    messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": observation}]

print(json.dumps({"reward": reward, "success": info["success"], "truncated": truncated, "metrics": info["metrics"]}))
