"""Processes of a run, and how tests end them."""

import io
import os
import signal
import threading
import time
from pathlib import Path

import ray

from rl_agents.interrupts import Interrupts
from rl_agents.reporting.progress import Progress
from rl_agents.reporting.run_folder import RunFolder
from rl_agents.trainer.algorithm import AgentAlgorithm
from rl_agents.trainer.train_loop import TrainLoop


def engine_pid(algo: AgentAlgorithm, number: int = 0) -> int:
    assert algo.rollout_workers is not None and algo.rollout_workers.engine_group is not None
    place, _ = ray.get(algo.rollout_workers.engine_group.handles()[number].place.remote())
    return int(place.split()[1].rstrip(","))


def runner_pids(algo: AgentAlgorithm) -> list[int]:
    return algo.env_runner_group.foreach_env_runner(lambda runner: os.getpid(), local_env_runner=False)


def kill_learner(algo: AgentAlgorithm, number: int) -> None:
    pids = algo.learner_group.foreach_learner(lambda learner: os.getpid())
    os.kill([result.get() for result in pids][number], signal.SIGKILL)


def kill_during(seconds: float, pid: int) -> threading.Thread:
    thread = threading.Thread(target=lambda: (time.sleep(seconds), os.kill(pid, signal.SIGKILL)))
    thread.start()
    return thread


def open_loop(algo: AgentAlgorithm, path: Path) -> tuple[TrainLoop, io.StringIO]:
    shown = io.StringIO()
    return TrainLoop(algo, RunFolder.create(path, algo.settings), Progress(shown), Interrupts()), shown
