"""A minimal learner: a biased coin whose probability of heads rises with every iteration."""

import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import yaml

from rl_agents.algorithms import Settings
from rl_agents.data.trajectory import Step, Trajectory


class CoinAgent:
    """Has the methods of `AgentAlgorithm` that the train loop calls.

    ``signal_at`` sends this process a SIGTERM in that iteration: in its rollouts, or in its optimizer step
    when ``signal_while_learning`` (``signals`` times). ``fail_at`` raises ``failure`` in that iteration.
    """

    signal_at: int | None = None
    signal_while_learning = False
    signals = 1
    signal_in_evaluation: int | None = None
    fail_at: int | None = None
    failure: BaseException = RuntimeError("the coin rolled\nunder the table")

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.iteration = 0
        self.engine_description = "engine coin: flips"
        self.last_trajectories: list[Trajectory] = []
        self.learning = False
        self.heads = 0.2
        self.stopped = False

    def train(self) -> dict[str, Any]:
        self.learning = False
        now = self.iteration + 1
        if now == self.signal_at and not self.signal_while_learning:
            os.kill(os.getpid(), signal.SIGTERM)
        if now == self.fail_at:
            raise self.failure
        self.last_trajectories = self._flip(8, seed=now)
        self.learning = True
        self.heads += 0.05
        if now == self.signal_at and self.signal_while_learning:
            for _ in range(self.signals):
                os.kill(os.getpid(), signal.SIGTERM)
        self.iteration = now
        wins = sum(t.success for t in self.last_trajectories)
        return {
            "agent": {
                "rollout/success_rate": wins / 8,
                "rollout/episodes": 8.0,
                "rollout/failed_episodes": 0.0,
                "rollout/response_tokens": 16.0,
                "rollout_corr/logprob_diff_mean": 2e-6,
            }
        }

    def evaluate_policy(
        self, split: str = "test", episodes: int = 128, temperature: float = 1.0, seed: int = 0
    ) -> list[Trajectory]:
        if self.iteration == self.signal_in_evaluation:
            os.kill(os.getpid(), signal.SIGINT)
        return self._flip(episodes, seed=1000 + seed)

    def save_run_checkpoint(self, folder: Path) -> None:
        draft = folder.parent / f".tmp-{folder.name}"
        (draft / "hf").mkdir(parents=True)
        (draft / "state.json").write_text(json.dumps({"iteration": self.iteration, "heads": self.heads}))
        (draft / "config.yaml").write_text(yaml.safe_dump(self.settings.to_dict()))
        draft.rename(folder)

    def restore_run_checkpoint(self, folder: Path) -> None:
        state = json.loads((folder / "state.json").read_text())
        self.iteration, self.heads = state["iteration"], state["heads"]

    def stop(self) -> None:
        self.stopped = True

    def _flip(self, count: int, seed: int) -> list[Trajectory]:
        return [coin_episode(random.Random(f"{seed}-{i}").random() < self.heads, member=i) for i in range(count)]


def coin_episode(heads: bool, member: int = 0, failed: bool = False) -> Trajectory:
    """One flip as an episode of one step and two tokens."""
    step = Step([1, 2], [3, 4], [-0.1, -0.2], 0, "stop", "flip", "flip", "heads" if heads else "tails", float(heads))
    cause = "env_error: lost the coin" if failed else "terminated"
    return Trajectory(f"coin {member}", 0, member, member, [step], True, False, cause, failed, heads and not failed)
