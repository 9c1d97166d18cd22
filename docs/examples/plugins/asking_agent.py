"""An agent: one question to the model."""

import httpx

from rl_agents.envs.blackbox.agents import agent


@agent("own-asking", "asks once; the task's answer must occur in the reply")
async def solve(task, client):
    """Solve a task through the gateway, with any client; return the reward (docs/environments/blackbox.md)."""
    headers = {"Authorization": f"Bearer {client.api_key}"}
    body = {"model": "policy", "messages": [{"role": "user", "content": task["question"]}]}
    async with httpx.AsyncClient(base_url=client.base_url, headers=headers, timeout=None) as model:
        reply = await model.post("/chat/completions", json=body)
    reply.raise_for_status()
    return float(task["answer"] in reply.json()["choices"][0]["message"]["content"])
