"""Engines in the env runners' own processes (``placement=together``): one in each, which lives and dies with it.

There is one call, `HostEngine`: have an engine with these weights. A runner that has none builds it, one with other
weights loads these, and one that has both does nothing. It is made at the start, with new weights, after losses,
and to every runner that comes back (`rl_agents.orchestrator.fault_tolerance`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import ray

from rl_agents.errors import LearnerLost
from rl_agents.inference.base import EngineError, EngineSettings
from rl_agents.inference.weight_sync import Outcome
from rl_agents.orchestrator.env_runner_handles import RunnerLost, Runners
from rl_agents.orchestrator.runner_calls import HostEngine

#: For an engine to be built, in seconds.
START_S = 300.0


@dataclass
class RunnerEngines:
    """The engines of a run whose env runners have one each."""

    runners: Runners
    settings: EngineSettings
    #: The last weights, their version, and how many were pushed before and with them; the checkpoint's before any.
    last: tuple[Any, int, int] = field(default=(None, 0, 0))

    def call(self) -> HostEngine:
        """Return what gives a runner its engine."""
        return HostEngine(self.settings, *self.last)

    def await_start(self) -> None:
        """Build all engines, side by side.

        Raises:
            EngineError: one cannot be built, or not in time.
        """
        self._complain(self._equip(START_S))

    def sync(self, packed: Any, version: int, timeout_s: float) -> None:
        """Give all engines weights, packed or a reference to them.

        Args:
            timeout_s: to load them; running calls have `EngineSettings.switch_timeout_s` beside to end.

        Raises:
            EngineError: an engine does not have them; call `restore` before sampling.
            LearnerLost: they are gone with the learner that held them.
        """
        self.last = (packed if isinstance(packed, ray.ObjectRef) else ray.put(packed), version, self.last[2] + 1)
        self._complain(self._equip(timeout_s + self.settings.switch_timeout_s))

    def restore(self) -> None:
        """Have runners restarted whose engines have died or hang, and give all others the last weights.

        Who is restarted gets its engine as it is welcomed back
        (`rl_agents.orchestrator.fault_tolerance.Losses.welcome`).

        Raises:
            EngineError: a living engine does not take the weights.
            LearnerLost: see `sync`.
        """
        outcomes = self._equip(START_S)
        for runner in [runner for runner, outcome in outcomes.items() if outcome.lost]:
            self.runners.lose(runner, kill=outcomes.pop(runner).text != RUNNER)
        self._complain(outcomes)

    def _equip(self, timeout_s: float) -> dict[int, Outcome]:
        """Make the call to all living runners; return what went wrong, by runner."""
        call, end = self.call(), time.monotonic() + timeout_s
        asked = {runner: self.runners.send(runner, call) for runner in self.runners.ids()}
        problems = dict[int, Outcome]()
        while asked and (ready := self.runners.wait(list(asked.values()), max(0.0, end - time.monotonic()))):
            for runner in [runner for runner, sent in asked.items() if sent in ready]:
                try:
                    outcome: Outcome = self.runners.answer(asked.pop(runner))
                except RunnerLost:
                    outcome = Outcome("dead", RUNNER)
                if outcome.kind != "ok":
                    problems[runner] = outcome
        return problems | dict.fromkeys(asked, Outcome("late", f"no answer within {timeout_s:g} s"))

    def _complain(self, problems: Mapping[int, Outcome]) -> None:
        texts = [f"engine of env runner {runner}: {outcome.text}" for runner, outcome in sorted(problems.items())]
        if any(outcome.kind == "gone" for outcome in problems.values()):
            raise LearnerLost("; ".join(texts))
        if texts:
            raise EngineError("; ".join(texts))


#: What is told of an engine whose runner has died with it.
RUNNER = "its process has died"
