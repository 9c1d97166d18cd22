"""The env runner: RLlib's actor that plays episodes. It holds environments and a tokenizer, never weights."""

from __future__ import annotations

import tempfile
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import ray
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.env import INPUT_ENV_SPACES
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.utils.checkpoints import Checkpointable
from ray.rllib.utils.metrics import (
    EPISODE_RETURN_MEAN,
    NUM_ENV_STEPS_SAMPLED,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_EPISODES,
)

from rl_agents.chat.context import load_tokenizer, make_context
from rl_agents.data.trajectory import EpisodeSpec
from rl_agents.engines.base import Engine
from rl_agents.engines.weights import PackedWeights, unpack
from rl_agents.errors import InputError
from rl_agents.gateway.host import close_hosts
from rl_agents.interrupts import event_loop
from rl_agents.rollout.agent_loop import Rollouts, collect_episodes
from rl_agents.rollout.blackbox import collect_blackbox, load_black_box
from rl_agents.rollout.branching import BranchSpec, Expansions, expand_all
from rl_agents.rollout.branching_check import BranchingCheck, Reached, check_branching, confirm_branching
from rl_agents.rollout.env_guard import CallNote
from rl_agents.rollout.env_pool import env_pool
from rl_agents.rollout.recording import Recorder
from rl_agents.rollout.turns import Limits, Player
from rl_agents.settings import Settings

TEXT_SPACE = gymnasium.spaces.Text(max_length=1 << 20)


class TextEnvRunner(EnvRunner, Checkpointable):
    """Plays many episodes at once.

    RLlib ends an actor whose method raises, and says why in the actor's log only. Therefore `sample`, `expand` and
    `check_branching` report failing environments and engines, and user errors, in what they
    return.
    """

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        """Build tokenizer, context and an empty environment pool.

        Args:
            config: an `AlgorithmConfig` with ``agent`` (`Settings`) and ``model_dir`` (where the tokenizer lies).
            kwargs: RLlib's ``worker_index``, ``num_workers`` and so on.

        Raises:
            InputError: no usable tokenizer in ``model_dir``.
        """
        super().__init__(config=config, **kwargs)
        agent: Settings = self.config.agent
        self.limits = Limits.from_settings(agent)
        self.context = make_context(agent.context, load_tokenizer(self.config.model_dir))
        self.pool = env_pool(agent)
        self.pool.watch.note = _call_note()
        self.black_box = load_black_box(agent)
        self.engine: Engine | None = None
        self.recorder: Recorder | None = None
        # One loop for life: engine clients keep connections and locks that belong to it.
        self._loop = event_loop()

    def set_engine(self, engine: Engine) -> None:
        """Use an engine in this process (local mode). It belongs to the caller, who closes it."""
        self.engine = engine

    def sync_engine(self, packed: PackedWeights, version: int) -> None:
        """Give the engine in this process new weights (local mode)."""
        assert self.engine is not None
        self._loop.run(self.engine.sync(unpack(packed), version))

    def set_engines(self, handles: Sequence[Any]) -> None:
        """Use engine actors; called again when actors were replaced."""
        from rl_agents.engines.client import RemoteEngine

        if isinstance(self.engine, RemoteEngine):
            self.engine.set_handles(handles)
            return
        # The same name after a restart, so that engines drop what the dead predecessor had asked for.
        caller = f"{'evaluation' if self.config.in_evaluation else 'training'} runner {self.worker_index}"
        self.engine = RemoteEngine(handles, caller, self.config.agent.engine_timeout_s)

    def set_recorder(self, recorder: Recorder) -> None:
        """Record what is sampled for training from now on."""
        self.recorder = recorder

    def flush_recorder(self, timeout_s: float) -> bool:
        """Wait until all that was recorded is on disk; False when this process was restarted and knows of nothing."""
        if self.recorder is None:
            return False
        self.recorder.flush(timeout_s)
        return True

    def sample(  # type: ignore[override]
        self, specs: Sequence[EpisodeSpec], temperature: float | None = None, attempt: int | None = None
    ) -> Rollouts:
        """Play the episodes, all at once.

        Args:
            specs: what to play; the result keeps their order.
            temperature: of an evaluation, which never truncates; None for training.
            attempt: how often these were asked for before, see `Recorder`; None: nothing is recorded.
        """
        if self.engine is None:
            raise RuntimeError("call set_engine or set_engines before sample")
        limits = self.limits if temperature is None else self.limits.for_evaluation(temperature)
        recorder = self._recorder(attempt)
        try:
            rollouts = self._loop.run(self._episodes(specs, self.engine, limits, recorder))
        except InputError as error:
            rollouts = Rollouts(unfinished=list(specs), input_error=str(error))
        finally:
            if recorder is not None:
                recorder.send()
        self._log(rollouts)
        return rollouts

    def _episodes(
        self, specs: Sequence[EpisodeSpec], engine: Engine, limits: Limits, recorder: Recorder | None
    ) -> Coroutine[Any, Any, Rollouts]:
        if self.black_box is None:
            return collect_episodes(specs, self.pool, engine, self.context, limits, recorder)
        return collect_blackbox(specs, self.black_box, engine, self.context.template, limits, recorder)

    def expand(self, specs: Sequence[BranchSpec], attempt: int | None = None) -> Expansions:
        """Sample and execute children of the states that ``specs`` name, all at once; ``attempt`` as in `sample`."""
        player = replace(self._player(), recorder=self._recorder(attempt))
        try:
            expansions = self._loop.run(expand_all(specs, self.pool, player, self.config.agent.branching))
        finally:
            if player.recorder is not None:
                player.recorder.send()
        steps = sum(expansion.env_steps for expansion in expansions.expansions)
        self.metrics.log_value(NUM_ENV_STEPS_SAMPLED, steps, reduce="sum")
        self.metrics.log_value(NUM_ENV_STEPS_SAMPLED_LIFETIME, steps, reduce="lifetime_sum")
        self.metrics.log_value("num_engine_errors", len(expansions.engine_errors), reduce="sum")
        return expansions

    def check_branching(self, specs: Sequence[EpisodeSpec]) -> BranchingCheck:
        """Play ``specs`` and see whether their states can be reached again."""
        agent: Settings = self.config.agent
        try:
            return self._loop.run(check_branching(specs, self.pool, self._player(), agent.branching, agent.env))
        except InputError as error:
            return BranchingCheck(input_error=str(error))

    def confirm_branching(self, reached: Sequence[Reached]) -> BranchingCheck:
        """See whether states that another runner has reached are the same here."""
        agent: Settings = self.config.agent
        try:
            return self._loop.run(confirm_branching(reached, self.pool, agent.env_timeout_s, agent.env))
        except InputError as error:
            return BranchingCheck(input_error=str(error))

    def lost_task(self) -> str:
        """The task in whose environment the process died that this one replaces, once; empty when there is none."""
        note = self.pool.watch.note
        if note is None:
            return ""
        task, note.left = note.left, ""
        return task

    def _recorder(self, attempt: int | None) -> Recorder | None:
        if self.recorder is None or attempt is None:
            return None
        self.recorder.attempt = attempt
        return self.recorder

    def _player(self) -> Player:
        if self.engine is None:
            raise RuntimeError("call set_engine or set_engines first")
        return Player(self.engine, self.context, self.limits)

    def _log(self, rollouts: Rollouts) -> None:
        clean = [t for t in rollouts.trajectories if not t.failed]
        steps = sum(t.env_steps() for t in clean)
        failed = len(rollouts.trajectories) - len(clean)
        self.metrics.log_value(NUM_ENV_STEPS_SAMPLED, steps, reduce="sum")
        self.metrics.log_value(NUM_ENV_STEPS_SAMPLED_LIFETIME, steps, reduce="lifetime_sum")
        self.metrics.log_value(NUM_EPISODES, len(clean), reduce="sum")
        self.metrics.log_value("num_failed_episodes", failed, reduce="sum")
        self.metrics.log_value("num_engine_errors", len(rollouts.engine_errors), reduce="sum")
        for trajectory in clean:
            self.metrics.log_value(EPISODE_RETURN_MEAN, trajectory.episode_return, reduce="mean", window=len(clean))

    # --- RLlib's contract ----------------------------------------------------------------------------------------

    def assert_healthy(self) -> None:
        """See `EnvRunner.assert_healthy`."""
        assert self.context is not None and self.pool is not None

    def get_spaces(self) -> dict[str, tuple[gymnasium.Space, gymnasium.Space]]:
        """Return text spaces, which RLlib only passes on to the modules."""
        spaces = (TEXT_SPACE, TEXT_SPACE)
        return {INPUT_ENV_SPACES: spaces, DEFAULT_MODULE_ID: spaces}

    def get_metrics(self) -> Any:
        """Return and reset the metrics of what was sampled since the last call."""
        return self.metrics.reduce()

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """Return nothing: every episode's randomness comes with its spec."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take nothing, see `get_state`."""

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return what RLlib writes beside a local runner's checkpoint."""
        return (), {"config": self.config}

    def stop(self) -> None:
        """Close environments and the event loop; the engine belongs to whoever made it."""
        self._loop.run(self.pool.close())
        close_hosts()
        self._loop.close()
        if self.pool.watch.note is not None:
            self.pool.watch.note.close()


def _call_note() -> CallNote | None:
    """The note of this actor, whose id stays when Ray restarts it; None in a process that is no actor."""
    actor = ray.get_runtime_context().get_actor_id() if ray.is_initialized() else None
    return CallNote(Path(tempfile.gettempdir()) / f"rl_agents-call-{actor}") if actor else None
