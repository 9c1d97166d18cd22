"""A pipeline that plays in a thread of its own while the learners learn."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from rl_agents.data.trajectory import Trajectory
from rl_agents.orchestrator.rollout_batch import Experience, Place
from rl_agents.orchestrator.rollout_buffer import Pipeline, Producer
from rl_agents.orchestrator.worker_thread import POLL_S, Beside


class Ahead(Pipeline):
    """Plays batch ``i`` as soon as the weights of iteration ``i - lag`` are published.

    The thread alone plays, counts tasks and gives engines weights; the learners' thread exports these. Where a judge is
    asked, each batch has a thread of its own for that, and the next one is played meanwhile. What a thread raises is
    raised by `next` when its batch is asked for, not before.
    """

    def __init__(self, producer: Producer, lag: int, iterations: int) -> None:
        self._beside = Beside("rollouts")
        self._changed = self._beside.changed
        self._held = self._busy = False
        #: Weights and version by the iteration that made them, while batches wait for them.
        self._weights: dict[int, tuple[Any, int]] = {}
        super().__init__(producer, lag, iterations)

    # --- the learning side -------------------------------------------------------------------------------------

    def begin(self, iteration: int, version: int, place: Place, before: Sequence[int] = ()) -> None:
        """See `Pipeline.begin`; the batch under way is played to its end first, so that the pool has it."""
        self._beside.end()
        super().begin(iteration, version, place, before)

    def _restart(self, iteration: int, place: Place) -> None:
        self._beside.end()
        self._weights.clear()
        super()._restart(iteration, place)

    def publish(self, version: int) -> None:
        """See `Pipeline.publish`; raises `LearnerLost`."""
        with self._changed:
            known = {older: weights for weights, older in self._weights.values()}
            super().publish(version)
        if self.iteration + self.lag < self._horizon:
            self._offer(known[version] if version in known else self.producer.export())

    def settle(self) -> list[Trajectory]:
        end = min(self.iteration + self.lag, self._horizon)
        with self._changed:
            self._beside.wait(lambda: not self._beside.started or self._number >= end)
            waiting = [batch for number, batch in self._batches.items() if number < end and not batch.recorded]
        return [trajectory for batch in waiting for trajectory in batch.experience.played]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """See `Pipeline.paused`; the batch under way is waited for."""
        try:
            with self._changed:
                self._held = True
                self._beside.wait(lambda: not self._busy)
            yield
        finally:
            with self._changed:
                self._held = False
                self._changed.notify_all()

    def close(self) -> None:
        self._beside.close()

    def join(self) -> None:
        """See `Pipeline.join`; gives up after some seconds."""
        self._beside.join()

    def _await(self, iteration: int) -> None:
        if not self._beside.started:
            self._offer(self.producer.export())
            self._beside.start(self._work)
        with self._changed:
            if not self._beside.wait(lambda: iteration in self._batches):
                raise self._beside.reason()
            batch = self._batches[iteration]
            if batch.judging is not None and not batch.judging.wait(lambda: batch.experience.unjudged is None):
                raise batch.judging.reason()

    def _version_of(self, number: int) -> int:
        """See `Pipeline._version_of`; a batch that has failed, and is not there, had its weights all the same."""
        offered = self._weights.get(self._generation(number))
        if offered is None or number in self._batches or number in self._before:
            return super()._version_of(number)
        return offered[1]

    def _offer(self, weights: Any) -> None:
        with self._changed:
            self._weights[self.iteration] = (weights, self.version)
            self._changed.notify_all()

    # --- the producing side ------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while (due := self._due()) is not None:
                number, weights, version = due
                started = time.perf_counter()
                self.producer.push(weights, version)
                batch = self._played(number, version, started)
                judging = self._judging(batch.experience)
                batch = replace(batch, judging=judging, recorded=self.producer.recorded())
                with self._changed:
                    self._keep(number, batch)
                    self._changed.notify_all()
        finally:
            self._busy = False

    def _judge(self, experience: Experience) -> None:
        """Nobody waits for that here, see `_judging`."""

    def _judging(self, experience: Experience) -> Beside | None:
        """Begin to ask for the rewards of a batch; those of one that is given up are left to end by themselves."""
        if experience.unjudged is None:
            return None
        judging = Beside("reward", self._changed)
        judging.start(experience.judge)
        return judging

    def _due(self) -> tuple[int, Any, int] | None:
        """Wait for a batch that may be played; return its number and weights, None at the end."""
        with self._changed:
            self._busy = False
            self._changed.notify_all()
            while not self._beside.closing:
                number, generation = self._number, self._generation(self._number)
                for older in [made for made in self._weights if made < generation]:
                    del self._weights[older]
                if not self._held and number < self._horizon and generation in self._weights:
                    self._busy = True
                    return (number, *self._weights[generation])
                self._changed.wait(POLL_S)
        return None
