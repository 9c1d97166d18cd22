"""Environments that wait, compute, draw and hang, as ``gymnasium:rollout.waiting:NAME``."""

import asyncio
import contextlib
import hashlib
import os
import random
import sys
import threading
import time
from typing import Any

import gymnasium
from gymnasium.spaces import Text

#: Not the global one: how long something takes must not move what an environment draws.
CLOCK = random.Random()
Reset = tuple[str, dict[str, Any]]
Step = tuple[str, float, bool, bool, dict[str, Any]]


class Waiting(gymnasium.Env[str, str]):
    """Three steps, whose observations depend on the seed and on all that was said; each takes a while."""

    observation_space = action_space = Text(max_length=1 << 16)
    longest_s = 0.02

    @staticmethod
    def task_ids(split: str) -> list[str]:
        return [f"task-{number}" for number in range(64)]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        self.wait()
        return self.begun(seed, options)

    def step(self, action: str) -> Step:
        self.wait()
        return self.stepped(action)

    def wait(self) -> None:
        time.sleep(CLOCK.uniform(0, self.longest_s))

    def begun(self, seed: int | None, options: dict[str, Any] | None) -> Reset:
        super().reset(seed=seed)
        self.task, self.said = (options or {})["task_id"], ""
        return f"task {self.task} of {self.np_random.integers(1000)}", {}

    def stepped(self, action: str) -> Step:
        self.said += f"{action}\n"
        digest = hashlib.sha256(self.said.encode()).hexdigest()[:8]
        done = self.said.count("\n") >= 3
        return f"{digest} {self.drawn()}", float(len(action)), done, False, {"success": done}

    def drawn(self) -> float:
        return float(self.np_random.random())

    def snapshot(self) -> tuple[Any, ...]:
        return self.task, self.said, self.np_random.bit_generator.state

    def restore(self, state: tuple[Any, ...]) -> None:
        self.task, self.said, self.np_random.bit_generator.state = state


class Awaiting(Waiting):
    """The same as coroutines."""

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:  # type: ignore[override]
        await asyncio.sleep(CLOCK.uniform(0, self.longest_s))
        return self.begun(seed, options)

    async def step(self, action: str) -> Step:  # type: ignore[override]
        await asyncio.sleep(CLOCK.uniform(0, self.longest_s))
        return self.stepped(action)


class Drawing(Waiting):
    """Draws from Python's global generator."""

    def drawn(self) -> float:
        return random.random()


class DrawingAwaiting(Awaiting):
    """The same as coroutines."""

    def drawn(self) -> float:
        return random.random()


class Together(Waiting):
    """A step returns when 64 environments are in one."""

    longest_s = 0.0
    barrier = threading.Barrier(64)

    def step(self, action: str) -> Step:
        self.barrier.wait()
        return super().step(action)


class Windowed(Waiting):
    """Writes its own window, and says whether that is done where it was made."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()

    def render_window(self, task: str, history: tuple[tuple[str, str], ...], observation: str) -> str:
        return f"{observation} in the window: {threading.get_ident() == self.thread}"


class Declared(Waiting):
    """Says where it wants to be called, and tells where it was."""

    blocking = "thread"
    longest_s = 0.0

    def drawn(self) -> float:
        return float(threading.get_ident())


class DeclaredInline(Waiting):
    """Calls that are over at once."""

    blocking = "inline"


class Inline(DeclaredInline):
    """Waits for nothing, and is called in the order of the answers."""

    longest_s = 0.0


class Sometimes(Inline):
    """Ten tasks, of which an episode solves some, as its answers and its task decide."""

    @staticmethod
    def task_ids(split: str) -> list[str]:
        return [f"task-{number}" for number in range(10)]

    def stepped(self, action: str) -> Step:
        observation, reward, done, truncated, _ = super().stepped(action)
        return observation, reward, done, truncated, {"success": done and int(observation[0], 16) > int(self.task[-1])}


class Seeded(Inline):
    """Its tasks are seeds, as many as ``env.train_tasks`` and ``env.test_tasks``."""

    task_ids = None  # type: ignore[assignment]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        return self.begun(seed, {"task_id": str(seed)})


class Misdeclared(Waiting):
    """Names no place that there is."""

    blocking = "theads"


class NeverMade(Waiting):
    """Hangs while it is made."""

    def __init__(self) -> None:
        with contextlib.suppress(KeyError), open(os.environ["NOTED"], "a") as file:
            file.write("begun\n")
        while True:
            time.sleep(0.05)


class AwaitingBroken(Awaiting):
    """Hangs as coroutines do: it waits, it computes, or it does not want to be cancelled."""

    longest_s = 0.0

    async def step(self, action: str) -> Step:  # type: ignore[override]
        if self.task == "task-1":
            raise KeyError("no such thing")
        if self.task == "task-2":
            await asyncio.sleep(60)
        if self.task == "task-3":
            time.sleep(60)
        while self.task == "task-4":
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
        if self.task == "task-5":
            raise asyncio.CancelledError
        if self.task == "task-6":
            sys.exit(3)
        return await super().step(action)
