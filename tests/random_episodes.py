"""Episodes of random actions: environments answer any text, and keep no memory of finished episodes."""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Sequence
from itertools import pairwise

from rl_agents.envs.base import TextEnv

STRETCH, STRETCHES = 100, 7


def check_memory(env: TextEnv, task_ids: Sequence[str], pieces: Sequence[str], most: int) -> None:
    """Play a thousand episodes of actions made of fewer than ``most`` pieces; the last seven hundred leave nothing.

    A leak grows in every hundred episodes, by a block of memory each or more. What other threads of the test's process
    allocate does not, or it does just as much while nobody plays.
    """
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

    def blocks_after(episodes: int) -> int:
        play(episodes)
        gc.collect()
        return sys.getallocatedblocks()

    play(200)

    def growth(episodes: int) -> int:
        kept = [blocks_after(episodes) for _ in range(STRETCHES + 1)]
        return min(after - before for before, after in pairwise(kept))

    def growth_alone(seconds: float) -> int:
        before = blocks_after(0)
        time.sleep(seconds)
        return blocks_after(0) - before

    started = time.monotonic()
    grown = growth(STRETCH)
    if grown >= STRETCH / 2:
        grown -= growth_alone((time.monotonic() - started) / (STRETCHES + 1))
    assert grown < STRETCH / 2
