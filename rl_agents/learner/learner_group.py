"""The group of learners: RLlib's, with scoring, weight export and state."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any, cast

import numpy as np
import ray
from ray.exceptions import RayActorError
from ray.rllib.core.learner.learner_group import LearnerGroup

from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.algorithms.ppo import GaeKeys
from rl_agents.config import Settings
from rl_agents.config.sections import POLICY_AS_TEACHER
from rl_agents.data.samples import FloatArray, Row
from rl_agents.data.trajectory import NEXT_PROMPT, Trajectory
from rl_agents.errors import InputError, LearnerLost
from rl_agents.inference.base import Weights
from rl_agents.inference.client import brief
from rl_agents.learner.metrics import reduce_metrics
from rl_agents.learner.rl_modules import CRITIC, POLICY, REFERENCE, teacher_network
from rl_agents.learner.teacher import TeacherServer, fill_teacher_logprobs
from rl_agents.learner.training_data import AgentTrainingData, TokenLosses, split_rows
from rl_agents.resources import LEARNER, cluster_nodes, describe_placement, free_resources, named_bundles, place

#: Seconds between checks whether the cluster has room for the learners.
POLL_S = 1.0


def await_room(settings: Settings) -> None:
    """Wait until the cluster has room for the learners; RLlib would wait forever without a message.

    Inside a placement group (a Tune trial) their room is already reserved.

    Raises:
        LearnerLost: there is no room within ``learner_timeout_s``.
    """
    if not settings.num_learners or ray.util.get_current_placement_group() is not None:
        return
    learners = [process for process in named_bundles(settings) if process[0] == LEARNER]
    deadline = time.monotonic() + settings.learner_timeout_s
    while place(learners, free_resources()).unplaced:
        if time.monotonic() > deadline:
            there_is = "; ".join(describe_placement(learners, cluster_nodes())) or "no node"
            raise LearnerLost(
                f"no room for {len(learners)} learners within {settings.learner_timeout_s:g} s: {there_is}"
            )
        time.sleep(POLL_S)


def start_learners(config: Any) -> AgentLearnerGroup:
    """Start the learners that an `AgentConfig` describes.

    Raises:
        LearnerLost: there is no room for them, or one died while starting.
    """
    await_room(config.agent)
    try:
        group: AgentLearnerGroup = config.build_learner_group(rl_module_spec=config.get_multi_rl_module_spec())
    except RayActorError as error:
        raise LearnerLost(f"a learner died while starting: {brief(error)}") from None
    return group


class AgentLearnerGroup(LearnerGroup):
    """0 (in this process), 1 or more learners that give the same update."""

    _is_shut_down: bool

    def learn(self, data: AgentTrainingData, *, train_policy: bool = True) -> dict[str, float]:
        """Run the schedule of optimizer steps and return metrics averaged over tokens, steps and learners.

        ``token_losses`` then has the losses by token, if ``data`` asks for them.

        Raises:
            LearnerLost: a learner died, or did not answer within ``learner_timeout_s``.
        """
        results = self.update(training_data=data, train_policy=train_policy)
        self.token_losses: TokenLosses = {place: losses for _, found in results for place, losses in found.items()}
        return reduce_metrics((metrics for metrics, _ in results), steps=len(data.minibatches))

    def update(self, *, training_data: AgentTrainingData, train_policy: bool = True, **kwargs: Any) -> list[Any]:
        """RLlib's hook, with a time limit for remote learners."""
        training_data.validate()
        if self.is_local:
            return [self._learner.update(training_data, train_policy=train_policy)]
        shards = training_data.shard(len(self), shared=self._shared)
        return self._call([methodcaller("update", shard, train_policy=train_policy) for shard, _ in shards], "learning")

    def score(self, rows: Sequence[Row], network: str) -> list[FloatArray]:
        """Return per-token log-probabilities or values, computed in shards (see `AgentLearner.score`)."""
        if self.is_local:
            return self._learner.score(rows, network)  # type: ignore[no-any-return]
        shards = split_rows(rows, len(self), shared=self._shared)
        calls = [methodcaller("score", [rows[i] for i in shard], network) for shard in shards]
        results = self._call(calls, f"scoring rows with the {network}")
        output: dict[int, FloatArray] = {}
        for shard, arrays in zip(shards, results, strict=True):
            output.update(zip(shard, arrays, strict=True))
        return [output[i] for i in range(len(rows))]

    def fill_scores(self, rows: Sequence[Row], trajectories: Sequence[Trajectory], recipe: AlgorithmSpec) -> None:
        """Fill the networks' scores of the rows of ``trajectories`` before the first optimizer step.

        Replayed rows always have the sampling policy as denominator: the learner's own log-probabilities would treat
        them as on-policy.
        """
        settings = self.config.agent
        if recipe.critic:
            for row in rows:
                row.value_mask = recipe.value_mask(row, settings) if recipe.value_mask else row.mask.copy()
            for row, values in zip(rows, self.score(rows, CRITIC), strict=True):
                row.values = values
            cut = [row for row in rows if row.last and not row.terminated]
            if cut and cast(GaeKeys, settings).bootstrap_on_truncation:
                after = [next_state(row, trajectories[row.trajectory]) for row in cut]
                for row, values in zip(cut, self.score(after, CRITIC), strict=True):
                    row.value_after = float(values[-1])
        if settings.kl_coef or settings.kl_in_reward_coef:
            for row, logprobs in zip(rows, self.score(rows, REFERENCE), strict=True):
                row.reference_logprobs = logprobs
        if settings.teacher == POLICY_AS_TEACHER and not any(row.hints for row in rows):
            raise InputError(f"teacher=policy: no episode of env={settings.env} has info['hint'] for it to read")
        if settings.teacher_url:
            fill_teacher_logprobs(rows, TeacherServer(settings).score)
        elif settings.teacher and settings.teacher_kl == "sampled":
            fill_teacher_logprobs(rows, partial(self.score, network=teacher_network(settings)))
        if settings.old_logprobs == "learner" and recipe.credit is not None:
            own = [row for row in rows if not row.again]
            for row in rows:
                row.old_logprobs = row.logprobs
            for row, logprobs in zip(own, self.score(own, POLICY), strict=True):
                row.old_logprobs = logprobs

    @property
    def _shared(self) -> bool:
        return bool(self.config.agent.prefix_sharing)

    def export_weights(self) -> Any:
        """Return the buckets of the policy's weights, or references to them in the object store (remote learners)."""
        if self.is_local:
            return list(self._learner.export_weights())
        # The learner stores each bucket itself, so that the driver copies nothing.
        return self._ask_first(_put_weights, "exporting weights")

    def lend_weights(self) -> Weights:
        """Return the policy's own tensors, for an engine of this process that converts and copies them at once."""
        return dict(self._learner.policy.merged_weights(cast=False))

    def full_state(self) -> dict[str, Any]:
        if self.is_local:
            return self._learner.get_state()  # type: ignore[no-any-return]
        return self._ask_first(methodcaller("get_state"), "reading the training state")  # type: ignore[no-any-return]

    def load_full_state(self, state: dict[str, Any]) -> None:
        if self.is_local:
            self._learner.set_state(state)
        else:
            self._call([partial(_set_state, reference=[ray.put(state)])] * len(self), "loading the training state")

    def save_hf(self, folder: Path) -> None:
        """Write the policy in Hugging Face layout; ``folder`` is on storage that learners share with the driver.

        With ``lora_rank``, also write the adapters into the neighboring folder ``adapter``.
        """
        if self.is_local:
            self._learner.save_hf(folder)
        else:
            self._ask_first(methodcaller("save_hf", folder), f"writing {folder}")

    def abandon(self) -> None:
        """Stop the learners without waiting for their calls: some are dead, others may hang."""
        if self.is_remote and not self._is_shut_down:
            self._backend_executor.shutdown(graceful_termination=False)
        self._is_shut_down = True

    def _ask_first(self, function: Any, doing: str) -> Any:
        """Return the first learner's answer; all sharded learners run ``function``, because gathering needs all."""
        sharded = self.config.agent.learner_sharding == "fsdp"
        return self._call([function] * (len(self) if sharded else 1), doing, first_only=not sharded)[0]

    def _call(self, functions: Sequence[Any], doing: str, *, first_only: bool = False) -> list[Any]:
        """Run function i on learner i and return all results.

        Raises:
            LearnerLost: a learner is dead or does not answer. Errors of other learners are raised unchanged, unless a
                learner died: then they are consequences of the broken connection.
        """
        ids = self._worker_manager.actor_ids()
        ids = ids[:1] if first_only else ids
        timeout = self.config.agent.learner_timeout_s
        results = self._worker_manager.foreach_actor(
            list(functions), kwargs=[{} for _ in functions], remote_actor_ids=ids, timeout_seconds=timeout,
            healthy_only=False,
        )  # fmt: skip
        errors = {result.actor_id: result.get() for result in results if not result.ok}
        dead = [i for i, error in errors.items() if isinstance(error, RayActorError)]
        if dead:
            raise LearnerLost(f"learner {_listed(dead)} of {len(self)} died while {doing}")
        if errors:
            raise next(iter(errors.values()))
        silent = set(ids) - {result.actor_id for result in results}
        if silent:
            late = f"did not answer within {timeout:g} s while {doing}"
            raise LearnerLost(f"learner {_listed(silent)} of {len(self)} {late}")
        answers = {result.actor_id: result.get() for result in results}
        return [answers[i] for i in ids]


def next_state(row: Row, trajectory: Trajectory) -> Row:
    """Return a row before whose last token the critic reads the state after a cut: the next prompt.

    Without one on record (external agents, recorded sessions) it is the end of the response, before the observation.
    """
    ids = np.append(np.array(trajectory.facts.get(NEXT_PROMPT, row.input_ids), np.int32), np.int32(0))
    none, last = np.zeros(len(ids), np.float32), (np.arange(len(ids)) == len(ids) - 1).astype(np.float32)
    return Row(row.trajectory, row.group_id, ids, none, none, none.astype(np.int32) - 1, none, value_mask=last)


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(str(number) for number in sorted(numbers))


def _set_state(learner: Any, reference: list[Any]) -> None:
    learner.set_state(ray.get(reference[0]))


def _put_weights(learner: Any) -> list[Any]:
    return [ray.put(bucket) for bucket in learner.export_weights()]
