"""The engine actors of one run: start them, push weights, restore them after a crash, stop them.

Weights travel through Ray's object store: each engine gets references to the buckets of one copy, and loads them when
it has all. No wait for an engine exceeds a deadline. Engines that do not get the weights in time are reported by
number, and `InferenceGroup.restore` sends them again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.exceptions import ActorDiedError, ObjectLostError, RayActorError, RayError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rl_agents.errors import LearnerLost
from rl_agents.inference.actor import EngineActor
from rl_agents.inference.base import EngineError, EngineSettings
from rl_agents.inference.client import brief
from rl_agents.inference.weights import PackedWeights

#: The buckets of all weights, or references to them.
Packed = Sequence[PackedWeights | ray.ObjectRef]
#: Seconds for one engine to start.
START_S = 300.0
#: Seconds that a healthy engine may take to answer a ping.
PING_S = 10.0
#: Seconds that an engine may take to report a number that only metrics use.
FIGURE_S = 1.0
#: Seconds after which a starting engine is asked again, because a call made while Ray restarts it may be lost.
STARTED_S = 30.0
#: Calls in a row that must fail with `ActorDiedError` before an actor counts as gone for good. A call in progress also
#: fails with it when Ray is about to restart the actor.
CALLS_UNTIL_GONE = 3


@dataclass(frozen=True)
class CallOutcome:
    """The outcome of one engine's call.

    Attributes:
        kind: ``ok``; ``failed``: the engine lives; ``gone``: it lives, but the weights that it was to load are lost;
            ``dead``; ``late``: no answer in time.
        text: the reason.
    """

    kind: str
    text: str = ""


def stored(packed: Packed) -> list[ray.ObjectRef]:
    """Return references to the buckets in the object store."""
    return [bucket if isinstance(bucket, ray.ObjectRef) else ray.put(bucket) for bucket in packed]


def call_outcome(reference: Any) -> CallOutcome:
    try:
        ray.get(reference)
    except RayActorError as error:
        return CallOutcome("dead", brief(error))
    except ObjectLostError as error:  # of the call's argument: its cause is that error itself
        return CallOutcome("gone", brief(getattr(error, "cause", error)))
    except Exception as error:
        return CallOutcome("failed", brief(error))
    return CallOutcome("ok")


def await_all(calls: Mapping[int, Any], timeout_s: float) -> dict[int, CallOutcome]:
    """Wait for calls of several engines; return the outcomes that are not ``ok``, by engine."""
    pending = {reference: engine for engine, reference in calls.items()}
    ready, late = ray.wait(list(pending), num_returns=len(pending), timeout=timeout_s, fetch_local=False)
    outcomes = {pending[reference]: call_outcome(reference) for reference in ready}
    problems = {engine: outcome for engine, outcome in outcomes.items() if outcome.kind != "ok"}
    return problems | {
        pending[reference]: CallOutcome("late", f"no answer within {timeout_s:g} s") for reference in late
    }


class InferenceGroup:
    """Owns the engine actors. Engine ``i`` keeps its index when its actor is replaced."""

    def __init__(
        self,
        settings: EngineSettings,
        num_engines: int = 1,
        first_bundle: int | None = None,
        num_gpus: float | None = None,
        num_cpus: float | None = None,
        resources: Mapping[str, float] | None = None,
        wait: bool = True,
    ) -> None:
        """Start the actors and wait until they answer.

        Args:
            settings: of every engine; engine ``i`` gets ``seed + i``.
            first_bundle: bundle of engine 0 in the current placement group; engine ``i`` takes the ``i``-th after
                it. Required inside a placement group (a Tune trial), because an actor without an index may take an env
                runner's bundle, and then both wait forever.
            num_gpus: per engine; None: ``tensor_parallel`` where torch sees a GPU, else 0.
            num_cpus: per engine, for Ray's accounting; None: ``settings.threads``.
            wait: until they answer; False: call `await_start` before anything else.

        Raises:
            ValueError: inside a placement group without ``first_bundle``.
            EngineError: an engine does not start.
        """
        self._settings, self._first_bundle = settings, first_bundle
        self._placement_group = ray.util.get_current_placement_group()
        if self._placement_group is not None and first_bundle is None:
            raise ValueError("InferenceGroup needs first_bundle inside a placement group")
        if num_gpus is None:
            import torch

            num_gpus = float(settings.tensor_parallel) if torch.cuda.is_available() else 0.0
        self._num_gpus = num_gpus
        self._num_cpus = settings.threads if num_cpus is None else num_cpus
        self._resources = dict(resources or {})
        self._last: tuple[Packed, int] | None = None
        self._hung: set[int] = set()
        self._actors = [self._create(index) for index in range(num_engines)]
        if wait:
            self.await_start()

    def await_start(self) -> None:
        """Wait until all engines answer.

        Raises:
            EngineError: an engine does not start.
        """
        for index in range(len(self._actors)):
            self._await_start(index)

    def handles(self) -> list[Any]:
        """Return the actors, for `RemoteEngine`. They change only when `restore` had to replace one."""
        return list(self._actors)

    def push_weights(self, packed: Packed, version: int, timeout_s: float = 120.0) -> None:
        """Give all engines new weights.

        Args:
            timeout_s: for loading them; running calls have another `EngineSettings.switch_timeout_s` to end.

        Raises:
            EngineError: an engine died, refused, or did not answer in time; the others have the new weights.
                Call `restore` before sampling from the named engines.
        """
        self._last = (packed, version)
        self._complain(self._push(range(len(self._actors)), timeout_s), _sync_to(version))

    def sleep(self, level: int) -> None:
        """Have all engines free their GPUs until the next weights arrive.

        Raises:
            EngineError: an engine died, refused, or did not answer in time; the others sleep. The next `push_weights`
                wakes living engines and reports dead ones.
        """
        calls = {index: handle.sleep.remote(level) for index, handle in enumerate(self.handles())}
        self._complain(await_all(calls, START_S), "sleep")

    def restore(self, only: Collection[int] | None = None) -> list[int]:
        """Bring dead, hung and silently restarted engines back, with the last weights and version.

        Args:
            only: indices of engines to look at; None: all.

        Returns:
            The indices of the engines that were restored; call before every round of sampling, it is cheap.

        Raises:
            EngineError: an engine does not come back within `START_S`.
            LearnerLost: the last weights are gone with the learner that held them.
        """
        states = {index: self._state(index, answer) for index, answer in self._ask("health", PING_S, only).items()}
        broken = [index for index, state in states.items() if state != "ok"]
        for index in broken:
            # Not while Ray restarts it already: a second kill then loses the actor's start for minutes.
            if states[index] == "stuck":
                with contextlib.suppress(RayError):
                    ray.kill(self._actors[index], no_restart=False)
        for index in broken:
            self._await_start(index)
        self._hung.difference_update(states)
        if broken and self._last is not None:
            problems = self._push(broken, START_S)
            self._check_weights(problems)
            self._complain(problems, _sync_to(self._last[1]))
        for index in broken if self._last is None else []:
            ray.get(self._actors[index].trust_checkpoint.remote())
        return broken

    def busy_seconds(self) -> dict[int, float]:
        """Return `EngineActor.busy_seconds` by engine, without engines that do not answer at once."""
        found = self._ask("busy_seconds", FIGURE_S)
        return {index: answer for index, answer in found.items() if isinstance(answer, float)}

    def stop(self) -> None:
        for actor in self._actors:
            ray.kill(actor)
        self._actors = []

    def _create(self, index: int) -> Any:
        options: dict[str, Any] = {
            "num_cpus": self._num_cpus,
            "num_gpus": self._num_gpus,
            "resources": self._resources,
            "max_restarts": -1,
            "max_concurrency": 10_000,
        }
        if self._placement_group is not None:
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                self._placement_group, placement_group_bundle_index=(self._first_bundle or 0) + index
            )
        settings = replace(self._settings, seed=self._settings.seed + index)
        return ray.remote(EngineActor).options(**options).remote(settings, f"engine {index}")

    def _ask(self, method: str, timeout_s: float, only: Collection[int] | None = None) -> dict[int, Any]:
        """Return engines' answers to a method: the `RayError` of a failed call, None if it is late."""
        calls = {i: getattr(self._actors[i], method).remote() for i in only or range(len(self._actors))}
        done = set(ray.wait(list(calls.values()), num_returns=len(calls), timeout=timeout_s)[0])
        answers: dict[int, Any] = {}
        for index, call in calls.items():
            try:
                answers[index] = ray.get(call) if call in done else None
            except RayError as error:
                answers[index] = error
        return answers

    def _state(self, index: int, answer: Any) -> str:
        """Return the state of an engine by its answer to ``health``.

        ``ok``; ``stale``: alive, but restarted by Ray; ``gone``: Ray has noticed, and restarts it if it can; ``stuck``:
        its process lives and must be killed.
        """
        if isinstance(answer, RayActorError):
            return "gone"
        if index in self._hung or answer is None or isinstance(answer, Exception):
            return "stuck"
        alive, version = answer
        wanted = None if self._last is None else self._last[1]
        return "ok" if alive and wanted in (None, version) else "stale"

    def _push(self, indices: Iterable[int], timeout_s: float) -> dict[int, CallOutcome]:
        """Send the last weights to engines ``indices``; return the outcomes that are not ``ok``."""
        assert self._last is not None
        packed, version = self._last
        timeout_s += self._settings.switch_timeout_s if self._settings.weight_switch == "wait" else 0
        references = stored(packed)
        self._last = (references, version)
        return await_all({i: self._actors[i].load_weights.remote(version, *references) for i in indices}, timeout_s)

    def _check_weights(self, problems: Mapping[int, CallOutcome]) -> None:
        """Check whether engines found the last weights gone, which are lost with the learner that exported them.

        Only the engines can tell, because this process has just the reference.

        Raises:
            LearnerLost: the weights are gone.
        """
        gone = {index: outcome for index, outcome in problems.items() if outcome.kind == "gone"}
        if gone and self._last is not None:
            raise LearnerLost(
                f"engine {', '.join(map(str, sorted(gone)))} came back, and the weights of version {self._last[1]} are "
                f"gone with the learner that held them ({next(iter(gone.values())).text})"
            )

    def _complain(self, problems: Mapping[int, CallOutcome], call: str) -> None:
        """Raise `EngineError` with the engines that did not do what they were asked, if there are any."""
        self._hung |= {index for index, outcome in problems.items() if outcome.kind == "late"}
        texts = [
            f"engine {index} did not answer {call}: {outcome.text}"
            if outcome.kind == "late"
            else f"engine {index} failed in {call}: {outcome.text}"
            for index, outcome in sorted(problems.items())
        ]
        if texts:
            raise EngineError("; ".join(texts))

    def _await_start(self, index: int) -> None:
        """Wait until engine ``index`` answers; replace its actor if Ray no longer restarts it."""
        deadline, died, reason = time.monotonic() + START_S, 0, "no answer"
        while (left := deadline - time.monotonic()) > 0:
            try:
                ray.get(self._actors[index].ping.remote(), timeout=min(left, STARTED_S))
                return
            except ActorDiedError as error:
                if "error in its creation task" in str(error) or "__init__" in str(error):
                    raise EngineError(f"engine {index} cannot start: {str(error).strip().splitlines()[-1]}") from error
                died, reason = died + 1, str(error)
                if died >= CALLS_UNTIL_GONE:
                    self._actors[index] = self._create(index)
                    died = 0
            except RayError as error:  # restarting, or no answer within the time
                died, reason = 0, str(error)
            time.sleep(0.5)
        raise EngineError(f"engine {index} did not start within {START_S:g} s: {reason}")


def _sync_to(version: int) -> str:
    return f"sync to version {version}"
