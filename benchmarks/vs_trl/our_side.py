"""Our side: a training run of rl_agents, in one process, or with actors and either engine."""

from __future__ import annotations

import sys
import time
from typing import Any

import ray
import torch

from benchmarks.timing import cpu_of
from benchmarks.vs_trl import common
from rl_agents.trainer import training_step
from rl_agents.trainer.algorithm import AgentConfig


class Run:
    def __init__(self, model_dir: str, path: str, job: common.Job) -> None:
        config: Any = AgentConfig().environment(job.env, **job.options).training(
            algo="grpo", model=model_dir, seed=common.SEED, minibatches=1,
            tasks_per_iteration=job.groups, group_size=job.group_size,
            max_response_tokens=job.max_response_tokens, max_model_len=job.max_model_len, dtype=job.dtype,
            tokens_per_microbatch=job.tokens_per_microbatch, prefix_sharing=job.prefix_sharing,
            lr=job.lr, betas=list(common.BETAS), grad_clip=common.GRAD_CLIP,
        )  # fmt: skip
        config = config.local() if path == "local" else config.training(engine=path)
        self.algo = config.build_algo()
        self.actors: list[Any] = []
        if path != "local":
            runners = self.algo.env_runner_group._worker_manager.actors().values()
            self.actors = [*runners, *self.algo.rollout_workers.engine_group.handles()]
        self.learner_s, self._learn = 0.0, training_step.learn
        training_step.learn = self.timed_learn

    def timed_learn(self, *args: Any) -> Any:
        started = time.process_time()
        metrics = self._learn(*args)
        self.learner_s = time.process_time() - started
        return metrics

    def actors_s(self) -> float:
        return sum(ray.get([actor.apply.remote(cpu_of) for actor in self.actors])) if self.actors else 0.0

    def iterate(self) -> common.Iteration:
        actors, started = self.actors_s(), common.await_turn()
        self.algo.train()
        cpu_s = time.process_time() - started + self.actors_s() - actors
        episodes = self.algo.last_trajectories
        return common.Iteration(
            tokens=sum(t.response_tokens for t in episodes), episodes=len(episodes),
            reward=sum(t.episode_return for t in episodes) / len(episodes), cpu_s=cpu_s,
            rollout_cpu_s=cpu_s - self.learner_s, learner_cpu_s=self.learner_s,
        )  # fmt: skip


def main() -> None:
    """``our_side MODEL_DIR ITERATIONS local|auto|vllm JOB``."""
    torch.set_num_threads(1)
    model_dir, iterations, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    run = Run(model_dir, path, common.JOBS[sys.argv[4]])
    try:
        common.hand_over()
        for _ in range(iterations):
            common.hand_over(run.iterate())
    finally:
        run.algo.stop()


if __name__ == "__main__":
    main()
