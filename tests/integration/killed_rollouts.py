"""A program for `test_killed_rollouts`: runs, kills and resumptions in forks of one process that has imported all.

python killed_rollouts.py MODEL OUTPUT KILLS ENV [KEY=VALUE ...]
"""

import contextlib
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rl_agents.cli import main
from rl_agents.rollout.recording import Recorder

#: Imported once, for all forks.
LATE = (
    "matplotlib.pyplot", "tensorboard.summary.writer.event_file_writer", "transformers.models.qwen2.modeling_qwen2",
    "rl_agents.inference.torch_engine", "rl_agents.learner.learner", "rl_agents.trainer.train_loop",
)  # fmt: skip
#: A checkpoint only after the second of three iterations: what is lost spans weights that were saved and that were not.
KEYS = {
    "tasks_per_iteration": 2, "group_size": 4, "max_response_tokens": 8, "max_model_len": 600, "eval_episodes": 0,
    "lr": 1e-3, "minibatches": 1, "checkpoint_interval": 2, "save_trajectories": 0, "collapse_monitor": "off",
}  # fmt: skip


def forked(work: Callable[[], int]) -> int:
    """Run ``work`` in a fork; return its exit code, or minus the signal that killed it."""
    child = os.fork()
    if not child:
        code = 70
        with contextlib.suppress(BaseException):
            try:
                code = work()
            except BaseException:
                traceback.print_exc()
        sys.stdout.flush()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def train(model: str, output: Path, env: str, keys: Sequence[str], kill_at: int = 0) -> int:
    """Train; end by SIGKILL as soon as ``kill_at`` answers are on disk, or write how many there were."""
    record, answers = Recorder.record, 0

    def counted(self, *given, **named):
        nonlocal answers
        completion = record(self, *given, **named)
        answers += 1
        if answers == kill_at:
            self.flush(60)
            os.kill(os.getpid(), signal.SIGKILL)
        return completion

    Recorder.record = counted  # type: ignore[method-assign]
    argv = ["--local", "--algo", "grpo", "--env", f"gymnasium:rollout.waiting:{env}", "--model", model]
    keys = [*(f"{name}={value}" for name, value in KEYS.items()), *keys]
    code = main([*argv, "--iterations", "3", "--output", str(output), "--set", *keys])
    (output / "answers").write_text(str(answers))
    return code


def run(model: str, output: Path, kills: int, *given: Any) -> None:
    assert forked(lambda: train(model, output / "whole", *given)) == 0
    answers = int((output / "whole" / "answers").read_text())
    for kill in range(kills):
        folder, at = output / f"killed-{kill}", 1 + kill * (answers - 1) // (kills - 1)
        assert forked(lambda: train(model, folder, *given, at)) == -signal.SIGKILL  # noqa: B023  (called at once)
        assert forked(lambda: main(["--resume", str(folder)])) == 0  # noqa: B023


if __name__ == "__main__":
    for module in LATE:
        importlib.import_module(module)
    run(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5:])
