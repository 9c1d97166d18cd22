"""Early stopping as set in a sweep file."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from rl_agents.tuning.driver import ResumableAsha, make_scheduler
from rl_agents.tuning.sweep import Asha, Range, Sweep

SWEEP = Sweep(
    "s", keys={}, space={"lr": Range(1e-4, 1e-2, log=True)}, samples=4, asha=Asha(grace=1, reduction=2), source={}
)


def trial(name: str) -> Any:
    return SimpleNamespace(trial_id=f"id-{name}", custom_dirname=name)


def asha(history: dict[str, list[tuple[int, float]]]) -> Any:
    scheduler = make_scheduler(SWEEP, 8, history)
    assert isinstance(scheduler, ResumableAsha)
    return scheduler


def feed(scheduler: Any, name: str, values: list[tuple[int, float]]) -> list[str]:
    member = trial(name)
    scheduler.on_trial_add(None, member)
    return [scheduler.on_trial_result(None, member, {"iteration": i, "value": v}) for i, v in values]


def test_asha_stops_what_is_worse_than_those_before() -> None:
    scheduler = asha({})
    assert TrialScheduler.STOP not in feed(scheduler, "a", [(1, 0.5), (2, 0.6)])
    assert feed(scheduler, "b", [(1, 0.4)]) == [TrialScheduler.STOP]


def test_a_resumed_asha_decides_like_one_that_was_never_stopped() -> None:
    past = {"a": [(1, 0.5), (2, 0.6)], "b": [(1, 0.7)]}
    straight, resumed = asha({}), asha(past)
    for name, values in past.items():
        feed(straight, name, values)
    for name, value in (("c", 0.55), ("d", 0.65)):
        assert feed(resumed, name, [(1, value)]) == feed(straight, name, [(1, value)])
    assert feed(resumed, "b", [(2, 0.5)]) == feed(straight, "b", [(2, 0.5)]) == [TrialScheduler.STOP]
    rungs = {milestone: len(recorded) for milestone, recorded in resumed._brackets[0]._rungs}
    assert rungs[1] == 4, "a trial that continues counts once"


def test_no_scheduler_runs_all_to_the_end() -> None:
    assert isinstance(make_scheduler(replace(SWEEP, asha=None), 8, {}), FIFOScheduler)
