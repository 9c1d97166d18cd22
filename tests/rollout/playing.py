"""Episodes of the environments in rollout/waiting.py, wherever they are called."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from chat_tokenizers import qwen
from rollout.scripted import ScriptedEngine

from rl_agents.chat.template import make_context
from rl_agents.config import Settings
from rl_agents.data.trajectory import EpisodeSpec, Trajectory
from rl_agents.rollout.agent_loop import collect_episodes
from rl_agents.rollout.env_pool import EnvPool, env_pool
from rl_agents.rollout.turns import Limits

CONTEXT = make_context("append", qwen())

LIMITS = Limits(max_turns=5, max_response_tokens=6, max_model_len=600, env_timeout_s=20.0)

MODES = ("inline", "thread")


def pool_of(name: str, blocking: str = "auto", **keys: Any) -> EnvPool:
    return env_pool(Settings.from_dict({"env": f"gymnasium:rollout.waiting:{name}", "env_blocking": blocking, **keys}))


def play(pool: EnvPool, tasks: Sequence[int], engine: Any = None, limits: Limits = LIMITS) -> list[Trajectory]:
    specs = [EpisodeSpec(f"task-{number}", number, 0, seed=number) for number in tasks]
    engine = engine or ScriptedEngine(qwen(), lambda text: "go on")

    async def played() -> list[Trajectory]:
        rollouts = await collect_episodes(specs, pool, engine, CONTEXT, limits)
        assert not rollouts.input_error and not rollouts.engine_errors
        return rollouts.trajectories

    return asyncio.run(played())


def close(pool: EnvPool) -> None:
    asyncio.run(pool.close())


def told(trajectories: Sequence[Trajectory]) -> list[Any]:
    """All that was read, sampled and earned."""
    return [
        [t.task_id, t.end_cause, t.success, [(s.prompt_ids, s.response_ids, s.reward) for s in t.steps]]
        for t in trajectories
    ]


def gone(check: Any, seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while not check() and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(check())
