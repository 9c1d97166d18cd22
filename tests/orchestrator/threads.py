"""Env runners that are threads with event loops: real exchanges, random times, losses."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from rl_agents.data.trajectory import EpisodeSpec, Step, Trajectory
from rl_agents.orchestrator.env_runner_handles import RunnerLost
from rl_agents.rollout.agent_loop import Rollouts
from rl_agents.rollout.request_queue import JobBatch, RequestQueue

TASKS = [f"t{number}" for number in range(12)]

STEPS = 3


class Killed(BaseException):
    """The process of an env runner is gone."""


class Runner:
    """An env runner in a thread: episodes of three steps, each of which takes a while."""

    def __init__(self, world: "World") -> None:
        self.world, self.died_in = world, ""
        self.engine, self.recorder, self.engine_failures = "the engine", None, dict[int, str]()
        self.thread = ThreadPoolExecutor(1)
        self.loop = asyncio.Runner()
        self.bench = RequestQueue(self.loop, self._work)

    def exchange(self, *args: Any) -> dict[int, Any]:
        return self.bench.exchange(*args)

    @property
    def in_progress(self) -> dict[int, int]:
        return self.bench.in_progress()

    def lost_task(self) -> str:
        task, self.died_in = self.died_in, ""
        return task

    async def _work(self, batch: JobBatch) -> Rollouts:
        results = await asyncio.gather(*(self._play(spec) for spec in batch.jobs), return_exceptions=True)
        for result in results:
            if isinstance(result, Killed):
                raise result
        played = [result for result in results if isinstance(result, Trajectory)]
        unfinished = [s for s, result in zip(batch.jobs, results, strict=True) if not isinstance(result, Trajectory)]
        errors = ["engine 0 died"] * len(unfinished)
        return Rollouts(played, unfinished, engine_errors=errors, input_error=self.world.user_error)

    async def _play(self, spec: EpisodeSpec) -> Trajectory:
        world = self.world
        world.asked.append(spec)
        trajectory = Trajectory(spec.task_id, spec.group_id, spec.member, spec.seed, end_cause="terminated")
        for _ in range(STEPS):
            trajectory.steps.append(Step([1], [2], [0.0], world.version, "stop", "", "", ""))
            await asyncio.sleep(world.seconds(spec))
        if spec.task_id in world.deadly:
            self.died_in = spec.task_id
            raise Killed
        if world.engine_deaths and spec.member == 0:
            world.engine_deaths -= 1
            raise ConnectionError
        return trajectory


class World:
    """Env runners, engines and learners."""

    def __init__(self, runners: int = 2, seed: int = 0) -> None:
        self.draw, self.version, self.exported = random.Random(seed), -1, 0
        self.deadly: set[str] = set()
        self.slow: set[str] = set()
        self.engine_deaths, self.user_error = 0, ""
        self.asked: list[EpisodeSpec] = []
        self.members = [Runner(self) for _ in range(runners)]
        self.alive, self.causes = set(range(runners)), dict[int, str]()

    def seconds(self, spec: EpisodeSpec) -> float:
        return 0.1 if spec.task_id in self.slow else self.draw.random() * 0.01

    # --- `Runners` ---

    @property
    def remote(self) -> int:
        return len(self.members)

    def ids(self) -> list[int]:
        return sorted(self.alive)

    def send(self, runner: int, call: Any) -> Future[Any]:
        return self.members[runner].thread.submit(call, self.members[runner])

    def wait(self, sent: Sequence[Any], timeout_s: float | None) -> list[Any]:
        return list(wait(sent, timeout_s, FIRST_COMPLETED).done)

    def answer(self, sent: Any) -> Any:
        try:
            return sent.result()
        except Killed as error:
            raise RunnerLost from error

    def lose(self, runner: int, *, kill: bool) -> None:
        self.alive.discard(runner)

    def tell(self, runners: Sequence[int], call: Any) -> None:
        for runner in runners:
            self.send(runner, call)

    def absent(self) -> list[int]:
        return [number for number in range(len(self.members)) if number not in self.alive]

    def come_back(self, wait_s: float, late: Any = ()) -> list[int]:
        back, self.alive = self.absent(), set(range(len(self.members)))
        return back

    def stop(self) -> None:
        for runner in self.members:
            runner.thread.submit(runner.loop.close).result()
            runner.thread.shutdown()


def eventually(so: Callable[[], bool]) -> bool:
    end = time.monotonic() + 60
    while not so() and time.monotonic() < end:
        time.sleep(0.01)
    return so()
