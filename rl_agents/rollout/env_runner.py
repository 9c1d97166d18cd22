"""The env runner: RLlib's actor that runs episodes. It holds environments and a tokenizer, never weights."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.utils.debug import update_global_seed_if_necessary

from rl_agents.chat.template import ChatOptions, ContextPolicy, load_tokenizer, make_context
from rl_agents.config import Settings
from rl_agents.data.tasks import by_environment
from rl_agents.data.trajectory import EpisodeSpec, Trajectory
from rl_agents.errors import InputError
from rl_agents.gateway.agent_interpreter import close_hosts
from rl_agents.inference.base import Engine, Weights
from rl_agents.interrupts import event_loop
from rl_agents.rollout.agent_loop import Rollouts, collect_episodes
from rl_agents.rollout.blackbox import BlackBox, collect_blackbox, load_black_box
from rl_agents.rollout.branching import BranchSpec, Expansions, expand_all
from rl_agents.rollout.branching_check import BranchingCheck, check_branching
from rl_agents.rollout.env_pool import EnvPool, env_pool
from rl_agents.rollout.env_worker import CallNote
from rl_agents.rollout.recording import Recorder
from rl_agents.rollout.request_queue import JobBatch, RequestQueue
from rl_agents.rollout.turns import Limits, Player
from rl_agents.store.trajectory_store import PoolError


@dataclass
class Setup:
    """How the episodes of an environment run.

    Attributes:
        places: the limit that concurrent batches of ``black_box``'s agents share.
    """

    limits: Limits
    context: ContextPolicy
    pool: EnvPool
    black_box: BlackBox | None
    places: asyncio.Semaphore | None

    @classmethod
    def of(cls, settings: Settings, tokenizer: Any, note: CallNote | None) -> Setup:
        context = make_context(settings.context, tokenizer, ChatOptions.from_settings(settings))
        pool, box = env_pool(settings), load_black_box(settings)
        pool.watch.note = note
        places = None if box is None else asyncio.Semaphore(box.options.agent_concurrency)
        return cls(Limits.from_settings(settings), context, pool, box, places)

    async def episodes(
        self, specs: Sequence[EpisodeSpec], engine: Engine, temperature: float | None, recorder: Recorder | None
    ) -> Rollouts:
        """Run episodes by the built-in loop or by black-box agents; see `TextEnvRunner.sample`."""
        limits = self.limits if temperature is None else self.limits.for_evaluation(temperature)
        try:
            if self.black_box is None:
                return await collect_episodes(specs, self.pool, engine, self.context, limits, recorder)
            template = self.context.template
            return await collect_blackbox(specs, self.black_box, engine, template, limits, recorder, self.places)
        except InputError as error:
            return Rollouts(unfinished=list(specs), input_error=str(error))


class TextEnvRunner(EnvRunner):
    """Runs many episodes at once.

    All work arrives and leaves through `exchange`. RLlib ends an actor whose method raises, and the reason is only in
    the actor's log. Therefore failures of environments and engines, and user errors, are part of a batch's answer.
    """

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        """Build tokenizer, and context and an empty environment pool for every environment.

        Args:
            config: an `AlgorithmConfig` with ``agent`` (`Settings`) and ``model_dir`` (with the tokenizer).
            kwargs: RLlib's ``worker_index``, ``num_workers`` and so on.

        Raises:
            InputError: no usable tokenizer in ``model_dir``.
        """
        # With a seed RLlib makes torch deterministic, which imports its compiler: 0.5 s of CPU in every env runner.
        super().__init__(config=config.copy(copy_frozen=False).debugging(seed=None), **kwargs)
        agent: Settings = self.config.agent
        update_global_seed_if_necessary(None, agent.seed + (self.worker_index or 0))
        tokenizer, self.note = load_tokenizer(self.config.model_dir), _call_note()
        self.setups = {name: Setup.of(own, tokenizer, self.note) for name, own in agent.each.items()}
        #: In local mode the driver sets and closes it.
        self.engine: Engine | None = None
        self.recorder: Recorder | None = None
        #: Failures of engine actors by their index, until the driver takes them; requests went to other engines.
        self.engine_failures: dict[int, str] = {}
        # One loop for the whole life, because engine clients keep connections and locks that belong to it.
        self._loop = event_loop()
        self._bench = RequestQueue(self._loop, lambda batch: METHODS[batch.method](self, batch.jobs, **batch.options))

    def sync_engine(self, weights: Weights, version: int) -> None:
        """Give the engine in this process new weights (local mode)."""
        engine: Any = self.engine
        self._loop.run(engine.load_weights(weights, version))

    def set_engines(self, handles: Sequence[Any]) -> None:
        """Use engine actors; called again after actors were replaced."""
        from rl_agents.inference.client import RemoteEngine

        if isinstance(self.engine, RemoteEngine):
            self.engine.set_handles(handles)
            return
        # The same name after a restart, so that engines drop the requests of the dead predecessor.
        place = (max(0, self.worker_index - 1), max(1, self.num_workers))
        caller, timeout_s = f"training runner {self.worker_index}", self.config.agent.engine_timeout_s
        self.engine = RemoteEngine(handles, caller, timeout_s, place, self._engine_failed)

    def flush_recorder(self, timeout_s: float) -> bool:
        """Wait until all records are on disk; False if they are not, or if this process was restarted."""
        if self.recorder is None:
            return False
        try:
            self.recorder.flush(timeout_s)
        except (PoolError, TimeoutError):  # the driver then writes them, and reports the pool's error
            return False
        return True

    # --- work --------------------------------------------------------------------------------------------------

    def exchange(
        self, batches: Sequence[JobBatch] = (), wait_s: float | None = None, enough: int | None = None,
        drop: Collection[int] = (),
    ) -> dict[int, Any]:  # fmt: skip
        """Begin batches and return the answers of completed ones; see `RequestQueue.exchange`.

        The jobs and answers of a batch by its method: ``sample`` (`EpisodeSpec`, `Rollouts`), ``expand`` (`BranchSpec`,
        `Expansions`) and ``check_branching`` (`EpisodeSpec`, `BranchingCheck`).
        """
        return self._bench.exchange(batches, wait_s, enough, drop)

    @property
    def in_progress(self) -> dict[int, int]:
        return self._bench.in_progress()

    def _engine_failed(self, engine: int, event: str) -> None:
        self.engine_failures[engine] = event
        self._bench.hurry()

    def sample(  # type: ignore[override]
        self, specs: Sequence[EpisodeSpec], temperature: float | None = None, attempt: int | None = None
    ) -> Rollouts:
        """Run the episodes, all at once.

        Args:
            specs: the episodes; the result keeps their order.
            temperature: of an evaluation, which never truncates; None for training.
            attempt: number of earlier attempts at these episodes, see `Recorder`; None: nothing is recorded.
        """
        batch = JobBatch(-1, "sample", specs, {"temperature": temperature, "attempt": attempt})
        rollouts: Rollouts = self.exchange([batch])[batch.number]
        return rollouts

    @property
    def setup(self) -> Setup:
        """The setup of the run's only environment, or of the first one."""
        return next(iter(self.setups.values()))

    def lost_task(self) -> str:
        """Return, once, the task in whose environment this process's predecessor died; empty if there is none."""
        if self.note is None:
            return ""
        task, self.note.left = self.note.left, ""
        return task

    def recorder_of(self, attempt: int | None) -> Recorder | None:
        if self.recorder is None or attempt is None:
            return None
        return self.recorder.at(attempt)

    def player(self) -> Player:
        if self.engine is None:
            raise RuntimeError("this env runner has no engine yet")
        return Player(self.engine, self.setup.context, self.setup.limits)

    # --- RLlib's contract ----------------------------------------------------------------------------------------

    def assert_healthy(self) -> None:
        assert self.setups

    def get_spaces(self) -> dict[str, Any]:
        """Return nothing: the modules' spaces do not come from env runners."""
        return {}

    def stop(self) -> None:
        """Cancel all episodes, then close environments and the event loop."""
        with contextlib.ExitStack() as last:  # all of these run even if one of them raises
            if self.note is not None:
                last.callback(self.note.close)
            last.callback(self._loop.close)
            last.callback(close_hosts)
            for setup in self.setups.values():
                last.callback(lambda pool: self._loop.run(pool.close()), setup.pool)
            self._bench.stop()


# --- the methods of batches ------------------------------------------------------------------------------------------
# Functions instead of methods: a class with a coroutine method becomes an asynchronous actor of Ray, whose methods do
# not run in the main thread.


async def _sample(
    runner: TextEnvRunner, specs: Sequence[EpisodeSpec], temperature: float | None = None, attempt: int | None = None
) -> Rollouts:
    engine, recorder = runner.player().engine, runner.recorder_of(attempt)
    shares = {name: own for name, own in by_environment(runner.config.agent.parts, specs).items() if own}
    try:
        if not shares:
            return await runner.setup.episodes(specs, engine, temperature, recorder)
        setups = runner.setups
        played = [setups[name].episodes(own, engine, temperature, recorder) for name, own in shares.items()]
        return _joined(specs, await asyncio.gather(*played))
    finally:
        if recorder is not None:
            recorder.send()


def _joined(specs: Sequence[EpisodeSpec], shares: Sequence[Rollouts]) -> Rollouts:
    """Join the rollouts of several environments; if one cannot begin, for a user error, its episodes fail."""
    whole, played = Rollouts(), dict[EpisodeSpec, Trajectory]()
    for share in shares:
        whole.engine_errors += share.engine_errors
        if cause := share.input_error and f"env_error: {share.input_error}":
            lost = [*share.by_job(), *share.unfinished]
            share = Rollouts(
                [Trajectory(s.task_id, s.group_id, s.member, s.seed, end_cause=cause, failed=True) for s in lost]
            )
        whole.unfinished += share.unfinished
        played |= share.by_job()
    whole.trajectories = [played[spec] for spec in specs if spec in played]
    return whole


async def _expand(runner: TextEnvRunner, specs: Sequence[BranchSpec], attempt: int | None = None) -> Expansions:
    player = replace(runner.player(), recorder=runner.recorder_of(attempt))
    try:
        expansions = await expand_all(specs, runner.setup.pool, player, runner.config.agent.branching)
    finally:
        if player.recorder is not None:
            player.recorder.send()
    return expansions


async def _check_branching(runner: TextEnvRunner, specs: Sequence[EpisodeSpec]) -> BranchingCheck:
    agent: Settings = runner.config.agent
    return await check_branching(specs, runner.setup.pool, runner.player(), agent.branching, agent.env)


METHODS: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {
    "sample": _sample,
    "expand": _expand,
    "check_branching": _check_branching,
}


def _call_note() -> CallNote | None:
    """Return the note of this actor, whose id survives restarts; None in a process that is no actor."""
    actor = ray.get_runtime_context().get_actor_id() if ray.is_initialized() else None
    return CallNote(Path(tempfile.gettempdir()) / f"rl_agents-call-{actor}") if actor else None
