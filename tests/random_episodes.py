"""Episodes of random actions: whatever an agent writes, an environment answers, and it keeps nothing."""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections.abc import Sequence

from rl_agents.envs.base import TextEnv

MAX_GROWTH = 100_000


def check_memory(env: TextEnv, task_ids: Sequence[str], pieces: Sequence[str], most: int) -> None:
    """Play a thousand episodes of actions made of fewer than ``most`` pieces; the last 700 leave < 100 kB behind."""
    rng = random.Random(0)

    def play(episodes: int) -> None:
        for _ in range(episodes):
            env.reset(options={"task_id": rng.choice(task_ids)})
            over = False
            while not over:
                action = "".join(rng.choices(pieces, k=rng.randrange(most)))
                observation, _, terminated, truncated, _ = env.step(action + "x" * rng.choice((0, 0, 5000)))
                assert observation in env.observation_space
                over = terminated or truncated

    play(200)
    tracemalloc.start()
    play(100)
    gc.collect()  # circles that earlier tests left behind are none of this environment's
    early = tracemalloc.get_traced_memory()[0]
    play(700)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - early
    tracemalloc.stop()
    assert grown < MAX_GROWTH
