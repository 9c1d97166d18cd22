"""A run that ends in its episodes or engines leaves a checkpoint of the last whole iteration."""

import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from rl_agents.algorithms import Settings
from rl_agents.errors import EpisodesFail, InputError, LearnerLost, RolloutError
from rl_agents.inference.base import EngineError
from rl_agents.interrupts import Interrupts
from rl_agents.reporting.progress import Progress
from rl_agents.reporting.run_folder import RunFolder
from rl_agents.trainer.train_loop import TrainLoop
from tests.cli.coin_agent import CoinAgent


def begun(tmp_path: Path, failure: BaseException, shown: io.StringIO) -> tuple[TrainLoop, RunFolder]:
    """Run until a failure in the third iteration."""
    settings = Settings.from_dict({"iterations": 5, "eval_episodes": 0, "checkpoint_interval": 0})
    agent, folder = CoinAgent(settings), RunFolder.create(tmp_path / "run", settings)
    agent.fail_at, agent.failure = 3, failure
    return TrainLoop(agent, folder, Progress(shown), Interrupts()), folder


@pytest.mark.parametrize("kind", [EpisodesFail, RolloutError, EngineError])
def test_where_nobody_can_play_any_more_what_was_learned_is_kept(tmp_path: Path, kind: type[Exception]) -> None:
    loop, folder = begun(tmp_path, kind("engine 0 did not start within 300 s"), io.StringIO())
    with pytest.raises(kind, match="engine 0 did not start"):
        loop.run()
    assert [iteration for iteration, _ in folder.complete_checkpoints()] == [2]


def test_where_the_learners_are_gone_too_the_first_cause_is_what_is_said(tmp_path: Path) -> None:
    shown = io.StringIO()
    loop, folder = begun(tmp_path, EngineError("engine 0 did not start within 300 s"), shown)

    def save(path: Path) -> None:
        raise LearnerLost("learner 0 of 1 died while reading the training state")

    loop.algo.save_run_checkpoint = save  # type: ignore[method-assign]
    with pytest.raises(EngineError, match="engine 0 did not start"):
        loop.run()
    assert not folder.complete_checkpoints()
    lost = "learner 0 of 1 died while reading the training state; no checkpoint could be written after 2 iterations"
    assert lost in shown.getvalue()


@pytest.mark.parametrize("problem", [LearnerLost("learner 0 of 1 died while exporting"), KeyboardInterrupt()])
def test_an_interrupted_run_that_cannot_save_ends_as_an_interrupted_one(tmp_path: Path, problem: BaseException) -> None:
    shown = io.StringIO()
    loop, folder = begun(tmp_path, KeyboardInterrupt(), shown)

    def save(path: Path) -> None:
        raise problem

    loop.algo.save_run_checkpoint = save  # type: ignore[method-assign]
    assert not loop.run()
    assert folder.read_summary()["status"] == "interrupted"
    assert "no checkpoint could be written after 2 iterations" in shown.getvalue()


def test_a_signal_while_learners_are_replaced_saves_nothing_of_the_new_ones(tmp_path: Path) -> None:
    loop, folder = begun(tmp_path, RuntimeError(), io.StringIO())
    loop.algo.settings.checkpoint_interval = 2
    save, losses = loop.algo.save_run_checkpoint, [LearnerLost("learner 0 of 1 died while reading the training state")]

    def lose_or_save(path: Path) -> None:
        if losses:
            raise losses.pop()
        save(path)  # of new learners, whose weights are the first ones

    def interrupted(checkpoint: Path | None) -> None:
        raise KeyboardInterrupt

    loop.algo.save_run_checkpoint = lose_or_save  # type: ignore[method-assign]
    loop.algo.restart_learners = interrupted  # type: ignore[method-assign]
    assert not loop.run() and not folder.complete_checkpoints()


def test_an_iteration_says_what_the_checkpoint_before_it_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With lag, the time spent waiting for the batch in progress is counted."""
    settings = Settings.from_dict({"iterations": 3, "eval_episodes": 0, "checkpoint_interval": 2})
    agent, folder = CoinAgent(settings), RunFolder.create(tmp_path / "run", settings)
    clock, save = [0.0], agent.save_run_checkpoint

    def slowly(path: Path) -> None:
        clock[0] += 7.0
        save(path)

    agent.save_run_checkpoint = slowly  # type: ignore[method-assign]
    monkeypatch.setattr("rl_agents.trainer.train_loop.time", SimpleNamespace(monotonic=lambda: clock[0]))
    assert TrainLoop(agent, folder, Progress(io.StringIO()), Interrupts()).run()
    assert [record["timing_s/checkpoint"] for record in folder.read_metrics()] == [0.0, 0.0, 7.0]


def test_a_pool_that_cannot_be_opened_leaves_nothing_new_in_a_resumed_run(tmp_path: Path) -> None:
    def refuse(path: Path) -> None:
        raise InputError(f"{path}: not a pool, or a damaged one")

    agent, folder = CoinAgent(Settings()), RunFolder.create(tmp_path / "run", Settings())
    agent.open_pool = refuse  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="not a pool"):
        TrainLoop(agent, folder, Progress(io.StringIO()), Interrupts())
    assert not list(folder.tensorboard.iterdir())
