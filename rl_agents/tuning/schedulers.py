"""Who decides about running trials: nobody, ASHA, or population based training."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler, PopulationBasedTraining, TrialScheduler

from rl_agents.tuning.space import Grid, Range
from rl_agents.tuning.sweep import Sweep

#: Keys of a trial's result that schedulers read.
ITERATION, VALUE = "iteration", "value"
#: Trial name -> (iteration, value) of every iteration before the sweep was stopped.
History = Mapping[str, Sequence[tuple[int, float]]]


def make_scheduler(sweep: Sweep, iterations: int, history: History) -> TrialScheduler:
    """Return the scheduler that the sweep asks for.

    Args:
        sweep: the sweep.
        iterations: of the longest trial.
        history: what trials reached before a resumed sweep was stopped.
    """
    if sweep.asha is not None:
        asha = sweep.asha
        return ResumableAsha(
            history, metric=VALUE, mode=sweep.mode, time_attr=ITERATION, max_t=iterations,
            grace_period=min(asha.grace, iterations), reduction_factor=asha.reduction,
            stop_last_trials=False,  # trials end by themselves, after their last evaluation
        )  # fmt: skip
    if sweep.pbt is not None:
        pbt = sweep.pbt
        return PopulationBasedTraining(
            metric=VALUE, mode=sweep.mode, time_attr=ITERATION, perturbation_interval=pbt.interval,
            quantile_fraction=pbt.quantile, resample_probability=pbt.resample,
            hyperparam_mutations={"trial": {"keys": {name: _mutation(choice) for name, choice in sweep.space.items()}}},
            custom_explore_fn=_ClampToRange(sweep), log_config=False,
        )  # fmt: skip
    return FIFOScheduler()


class ResumableAsha(AsyncHyperBandScheduler):
    """ASHA that counts what the trials of a stopped sweep had reached, those that are over included."""

    def __init__(self, history: History, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._history = dict(history)
        for name in self._history:
            stand_in = SimpleNamespace(trial_id=name)
            super().on_trial_add(None, stand_in)
            self._replay(stand_in, name)

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Take a trial in; one that goes on meets each rung once, so its stand-in gives way to it."""
        super().on_trial_add(tune_controller, trial)
        name = trial.custom_dirname
        if name in self._history:
            for bracket in self._brackets:
                for _, recorded in bracket._rungs:
                    recorded.pop(name, None)
            self._replay(trial, name)

    def _replay(self, trial: Any, name: str) -> None:
        for iteration, value in self._history[name]:
            super().on_trial_result(None, trial, {ITERATION: iteration, VALUE: value})


def _mutation(choice: Grid | Range) -> Sequence[Any] | Callable[[], Any]:
    if isinstance(choice, Grid):
        return list(choice.values)
    return (tune.loguniform if choice.log else tune.uniform)(choice.low, choice.high)  # type: ignore[no-any-return]


class _ClampToRange:
    """Keeps keys in their range: PBT multiplies by 0.8 and 1.2 without looking at it."""

    def __init__(self, sweep: Sweep) -> None:
        self._ranges = {name: choice for name, choice in sweep.space.items() if isinstance(choice, Range)}

    def __call__(self, config: dict[str, Any]) -> dict[str, Any]:
        config = copy.deepcopy(config)
        keys = config["trial"]["keys"]
        for name, limits in self._ranges.items():
            keys[name] = limits.clamp(keys[name])
        return config
