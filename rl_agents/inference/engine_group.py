"""The engine actors of one run: start, push weights, restore after a crash, stop."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayActorError, RayError
from ray.rllib.utils.actor_manager import FaultTolerantActorManager
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rl_agents.errors import LearnerLost
from rl_agents.inference.actor import EngineActor
from rl_agents.inference.base import EngineError, EngineSettings
from rl_agents.inference.weight_sync import Outcome, await_all, push
from rl_agents.inference.weights import PackedWeights

#: Seconds that a healthy engine may take to answer a ping.
PING_S = 10.0
#: Seconds that one may take to tell a figure that nothing depends on.
FIGURE_S = 1.0
#: Seconds after which an engine that starts is asked again: a call made while Ray restarts it may be lost.
STARTED_S = 30.0
#: Calls in a row that must fail with `ActorDiedError` before an actor counts as gone for good: a call that was
#: under way fails with it too when Ray is about to restart the actor.
CALLS_UNTIL_GONE = 3


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
        start_timeout_s: float = 300.0,
        wait: bool = True,
    ) -> None:
        """Start the actors and wait until they answer.

        Args:
            settings: of every engine; engine ``i`` gets ``seed + i``.
            first_bundle: bundle of engine 0 in the current placement group; engine ``i`` takes the ``i``-th after
                it. Required inside a placement group (a Tune trial): an actor without an index may take an env
                runner's bundle, and both wait for ever.
            num_gpus: per engine; None: ``tensor_parallel`` where torch sees a GPU, else 0.
            num_cpus: per engine, for Ray's accounting; None: ``settings.threads``.
            start_timeout_s: for one engine to start, in seconds.
            wait: until they answer; False: call `await_start` before anything else.

        Raises:
            ValueError: inside a placement group without ``first_bundle``.
            EngineError: an engine does not start.
        """
        self._settings, self._first_bundle, self._start_timeout_s = settings, first_bundle, start_timeout_s
        self._placement_group = ray.util.get_current_placement_group()
        if self._placement_group is not None and first_bundle is None:
            raise ValueError("InferenceGroup needs first_bundle inside a placement group")
        self._num_gpus = _default_gpus(settings) if num_gpus is None else num_gpus
        self._num_cpus = settings.threads if num_cpus is None else num_cpus
        self._resources = dict(resources or {})
        self._last: tuple[Any, int] | None = None
        self._hung: set[int] = set()
        self._manager = FaultTolerantActorManager([self._create(index) for index in range(num_engines)])
        self._actor_ids = self._manager.actor_ids()
        if wait:
            self.await_start()

    def await_start(self) -> None:
        """Wait until all engines answer.

        Raises:
            EngineError: an engine does not start.
        """
        for index in range(len(self._actor_ids)):
            self._await_start(index)

    def handles(self) -> list[Any]:
        """Return the actors, for `RemoteEngine`. They change only when `restore` had to replace one."""
        return [self._handle(index) for index in range(len(self._actor_ids))]

    def sync(self, packed: PackedWeights | ray.ObjectRef, version: int, timeout_s: float = 120.0) -> None:
        """Give all engines weights, or those that a reference names, through one copy in the object store.

        Args:
            timeout_s: to load them; running calls have a further `EngineSettings.switch_timeout_s` to end.

        Raises:
            EngineError: an engine died, refused, or did not answer in time; the others have the new weights.
                Call `restore` before sampling from the ones named.
        """
        self._last = (packed, version)
        self._complain(self._push(list(range(len(self._actor_ids))), timeout_s), _sync_to(version))

    def sync_by(
        self, send: Callable[[list[Any]], Mapping[int, Outcome]], export: Callable[[], Any], version: int
    ) -> None:
        """Have a learner give all engines the weights.

        Args:
            send: gets the actors, and returns the outcomes of those that do not have the weights then.
            export: returns the same weights for the object store, if an engine has to be restored.

        Raises:
            EngineError: see `sync`.
        """
        self._last = (export, version)
        self._complain(send(self.handles()), _sync_to(version))

    def sleep(self, level: int) -> None:
        """Have all engines free their GPUs until the next weights arrive.

        Raises:
            EngineError: an engine died, refused, or did not answer in time; the others sleep. The next `sync` wakes
                who lives, and finds who does not.
        """
        calls = {index: handle.sleep.remote(level) for index, handle in enumerate(self.handles())}
        self._complain(await_all(calls, self._start_timeout_s), "sleep")

    def restore(self) -> list[int]:
        """Bring dead, hung and silently restarted engines back, with the last weights and version.

        Returns:
            The indices of the engines that were restored; call before every round of sampling, it is cheap.

        Raises:
            EngineError: an engine does not come back within ``start_timeout_s``.
            LearnerLost: the last weights are gone with the learner that held them.
        """
        states = self._states()
        broken = [index for index, state in enumerate(states) if state != "ok"]
        for index in broken:
            # Not while Ray restarts it already: a second kill then loses the actor's start for minutes.
            if states[index] == "stuck":
                with contextlib.suppress(RayError):
                    ray.kill(self._handle(index), no_restart=False)
        for index in broken:
            self._await_start(index)
            self._manager.set_actor_state(self._actor_ids[index], healthy=True)
        self._hung.clear()
        if broken and self._last is not None:
            problems = self._push(broken, self._start_timeout_s)
            self._check_weights(problems)
            self._complain(problems, _sync_to(self._last[1]))
        for index in broken if self._last is None else []:
            ray.get(self._handle(index).trust_checkpoint.remote())
        return broken

    def busy_seconds(self) -> dict[int, float]:
        """Return `EngineActor.busy_seconds` by engine, without those that do not answer at once."""
        calls = {index: handle.busy_seconds.remote() for index, handle in enumerate(self.handles())}
        done, _ = ray.wait(list(calls.values()), num_returns=len(calls), timeout=FIGURE_S)
        told = {}
        for index, call in calls.items():
            with contextlib.suppress(RayError):  # dead: the next call to the engine finds out
                told.update({index: ray.get(call)} if call in done else {})
        return told

    def stop(self) -> None:
        self._manager.clear()
        self._actor_ids = []

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

    def _handle(self, index: int) -> Any:
        return self._manager.actors()[self._actor_ids[index]]

    def _states(self) -> list[str]:
        """Ask every engine for its version and return one word for each.

        ``ok``; ``stale``: alive, but restarted by Ray; ``gone``: Ray has noticed, and restarts it where it
        can; ``stuck``: its process lives and must be killed.
        """
        results = self._manager.foreach_actor("health", healthy_only=False, timeout_seconds=PING_S)
        answers = {result.actor_id: result.get() for result in results}
        return [self._state(index, answers.get(actor_id)) for index, actor_id in enumerate(self._actor_ids)]

    def _state(self, index: int, answer: Any) -> str:
        if isinstance(answer, RayActorError):
            return "gone"
        if index in self._hung or answer is None or isinstance(answer, Exception):
            return "stuck"
        alive, version = answer
        wanted = None if self._last is None else self._last[1]
        return "ok" if alive and wanted in (None, version) else "stale"

    def _push(self, indices: list[int], timeout_s: float) -> dict[int, Outcome]:
        """Send the last weights to engines ``indices`` through one copy in the object store; return what went wrong."""
        assert self._last is not None
        packed, version = self._last
        timeout_s += self._settings.switch_timeout_s if self._settings.weight_switch == "wait" else 0
        packed = packed() if callable(packed) else packed
        reference = packed if isinstance(packed, ray.ObjectRef) else ray.put(packed)
        self._last = (reference, version)
        return push({index: self._handle(index) for index in indices}, reference, version, timeout_s)

    def _check_weights(self, problems: Mapping[int, Outcome]) -> None:
        """See whether engines found the last weights gone: a learner owns what it exported, and takes it along.

        The engines find out, since they load them: this process has only the reference.

        Raises:
            LearnerLost: they did.
        """
        gone = {index: outcome for index, outcome in problems.items() if outcome.kind == "gone"}
        if gone and self._last is not None:
            raise LearnerLost(
                f"engine {', '.join(map(str, sorted(gone)))} came back, and the weights of version {self._last[1]} are "
                f"gone with the learner that held them ({next(iter(gone.values())).text})"
            )

    def _complain(self, problems: Mapping[int, Outcome], call: str) -> None:
        """Name the engines that did not do what they were asked.

        Raises:
            EngineError: there are any.
        """
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
        """Wait until engine ``index`` answers; replace its actor when Ray has given it up."""
        deadline, died, reason = time.monotonic() + self._start_timeout_s, 0, "no answer"
        while (left := deadline - time.monotonic()) > 0:
            try:
                ray.get(self._handle(index).ping.remote(), timeout=min(left, STARTED_S))
                return
            except ActorDiedError as error:
                if "error in its creation task" in str(error) or "__init__" in str(error):
                    raise EngineError(f"engine {index} cannot start: {str(error).strip().splitlines()[-1]}") from error
                died, reason = died + 1, str(error)
                if died >= CALLS_UNTIL_GONE:
                    self._replace(index)
                    died = 0
            except RayError as error:  # restarting, or no answer within the time
                died, reason = 0, str(error)
            time.sleep(0.5)
        raise EngineError(f"engine {index} did not start within {self._start_timeout_s:g} s: {reason}")

    def _replace(self, index: int) -> None:
        self._manager.remove_actor(self._actor_ids[index])
        self._manager.add_actors([self._create(index)])
        self._actor_ids[index] = max(self._manager.actor_ids())


def _sync_to(version: int) -> str:
    return f"sync to version {version}"


def _default_gpus(settings: EngineSettings) -> float:
    import torch

    return float(settings.tensor_parallel) if torch.cuda.is_available() else 0.0
