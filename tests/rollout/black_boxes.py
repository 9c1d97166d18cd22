"""Black-box agents for tests: coroutines that ask with plain HTTP and play an environment of their own."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import httpx
from chat_tokenizers import qwen
from tiny_models import tiny_qwen
from transformers import Qwen2ForCausalLM

from rl_agents.chat.template import make_context
from rl_agents.data.trajectory import EpisodeSpec
from rl_agents.envs.blackbox import BlackboxOptions
from rl_agents.gateway.process_supervisor import Agent, AgentClient, FunctionAgent
from rl_agents.inference.torch_engine import TorchEngine
from rl_agents.rollout.agent_loop import Rollouts
from rl_agents.rollout.blackbox import BlackBox, collect_blackbox
from rl_agents.rollout.recording import Recorder
from rl_agents.rollout.turns import Limits

LIMITS = Limits(max_turns=5, max_response_tokens=6, max_model_len=400)
CONTEXT = make_context("append", qwen())


class Asker:
    """Asks the model in one conversation after the other."""

    def __init__(self, client: AgentClient) -> None:
        self.http = httpx.AsyncClient(headers={"Authorization": f"Bearer {client.api_key}"}, timeout=60)
        self.url, self.root = client.base_url, client.base_url.split("/s/")[0]

    async def __aenter__(self) -> "Asker":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def message(self, messages: Sequence[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        """Return the answer's message.

        Raises:
            httpx.HTTPStatusError: a refusal.
        """
        body = {"model": "x", "messages": list(messages), **fields}
        reply = await self.http.post(f"{self.url}/chat/completions", json=body)
        reply.raise_for_status()
        return reply.json()["choices"][0]["message"]

    async def say(self, messages: Sequence[dict[str, Any]], **fields: Any) -> str:
        """Return the answer's text."""
        return (await self.message(messages, **fields))["content"] or ""

    async def streamed(self, messages: Sequence[dict[str, Any]]) -> str:
        """Return the answer's text, which comes in pieces."""
        body, text = {"model": "x", "messages": list(messages), "stream": True}, ""
        async with self.http.stream("POST", f"{self.url}/chat/completions", json=body) as reply:
            async for line in reply.aiter_lines():
                if line.startswith("data: {"):
                    text += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
        return text

    async def reward(self, value: float, call: int = 0) -> None:
        """Report a reward."""
        body = {"value": value, **({"call": call} if call else {})}
        reply = await self.http.post(f"{self.root}/rl/reward", json=body)
        reply.raise_for_status()


def user(text: str) -> dict[str, Any]:
    """A user message."""
    return {"role": "user", "content": text}


def player(make_env: Callable[[], Any], stream: bool = False) -> FunctionAgent:
    """An agent that plays an environment in its own process, to its end."""

    async def agent(task: dict[str, Any], client: AgentClient) -> dict[str, Any]:
        env = make_env()
        observation, _ = env.reset(seed=client.seed, options={"task_id": task["id"]})
        messages, done, cut, total, info = [user(observation)], False, False, 0.0, {}
        async with Asker(client) as model:
            while not (done or cut):
                text = await (model.streamed if stream else model.say)(messages)
                observation, reward, done, cut, info = env.step(text)
                total += reward
                messages += [{"role": "assistant", "content": text}, user(observation)]
        metrics = {name: value for name, value in info.get("metrics", {}).items() if not isinstance(value, str)}
        return {"reward": total, "success": info["success"], "truncated": cut, "metrics": metrics}

    return FunctionAgent(agent)


def tiny_model() -> Qwen2ForCausalLM:
    """A random model over bytes."""
    return tiny_qwen(len(qwen()))


def specs(count: int) -> list[EpisodeSpec]:
    """Members of one group, with unequal seeds."""
    return [EpisodeSpec(f"task-{n}", 0, n, seed=50 + n) for n in range(count)]


def task_file(folder: Any, count: int = 40) -> str:
    """A file with the tasks ``task-0`` ..."""
    path = folder / "tasks.jsonl"
    path.write_text("".join(json.dumps({"id": f"task-{n}", "split": "train"}) + "\n" for n in range(count)))
    return str(path)


def collect(
    agent: Agent | Callable[..., Any], tasks: str, count: int = 1, limits: Limits = LIMITS, engine: Any = None,
    recorder: Recorder | None = None, **options: Any,
) -> Rollouts:  # fmt: skip
    """Play episodes of an agent through a real gateway and its HTTP server."""
    options = {"agent_timeout_s": 60.0, **options}
    box = BlackBox(
        FunctionAgent(agent) if callable(agent) else agent, BlackboxOptions(tasks=tasks, agent="x:y", **options), 5
    )
    engine = engine or TorchEngine(tiny_model(), max_model_len=400)
    return asyncio.run(collect_blackbox(specs(count), box, engine, CONTEXT.template, limits, recorder))
