"""The group of learners: RLlib's, with our scoring, weight export and state in every mode."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
from ray.rllib.core.learner.learner_group import LearnerGroup

from rl_agents.core.learner_metrics import reduce_metrics
from rl_agents.core.training_data import AgentTrainingData, split_by_tokens
from rl_agents.data.rows import FloatArray, Row


class LearnerError(RuntimeError):
    """A learner failed; the run goes on from its last checkpoint."""


class AgentLearnerGroup(LearnerGroup):
    """0 (in this process), 1 or more learners that give the same update."""

    def learn(self, data: AgentTrainingData, *, train_policy: bool = True) -> dict[str, float]:
        """Run the schedule of optimiser steps and return metrics averaged over tokens, steps and learners.

        Raises:
            LearnerError: a learner raised or died.
        """
        results = self.update(training_data=data, train_policy=train_policy)
        expected = max(1, len(self))
        if len(results) != expected:
            raise LearnerError(f"{expected - len(results)} of {expected} learners failed while updating")
        return reduce_metrics(results, steps=len(data.minibatches))

    def score(self, rows: Sequence[Row], network: str) -> list[FloatArray]:
        """Per-token log-probabilities or values of ``rows``, forwarded in shards by all learners."""
        if self.is_local:
            return self._learner.score(rows, network)  # type: ignore[no-any-return]
        shards = split_by_tokens(rows, len(self))
        functions = [_ScoreShard([rows[i] for i in shard], network) for shard in shards]
        results = self._call(functions, f"scoring rows with the {network}")
        output: dict[int, FloatArray] = {}
        for shard, arrays in zip(shards, results, strict=True):
            output.update(zip(shard, arrays, strict=True))
        return [output[i] for i in range(len(rows))]

    def export_weights(self) -> Any:
        """The policy's packed weights, or a reference to them in the object store (remote learners)."""
        if self.is_local:
            return self._learner.export_weights()
        # The learner stores them itself and passes the reference in a list, so that the driver copies nothing.
        return self._call([_put_weights], "exporting weights", first_only=True)[0][0]

    def full_state(self) -> dict[str, Any]:
        """Weights and optimiser of one learner (all are equal)."""
        if self.is_local:
            return self._learner.get_state()  # type: ignore[no-any-return]
        return self._call([_get_state], "reading the training state", first_only=True)[0]  # type: ignore[no-any-return]

    def load_full_state(self, state: dict[str, Any]) -> None:
        """Set weights and optimiser of every learner."""
        if self.is_local:
            self._learner.set_state(state)
        else:
            self._call([_SetState(ray.put(state))] * len(self), "loading the training state")

    def save_hf(self, folder: Path) -> None:
        """Write the policy in Hugging Face layout (``folder`` on storage that learners share with the driver)."""
        if self.is_local:
            self._learner.save_hf(folder)
        else:
            self._call([_SaveHF(folder)], f"writing {folder}", first_only=True)

    def _call(self, functions: Sequence[Any], doing: str, *, first_only: bool = False) -> list[Any]:
        ids = self._worker_manager.healthy_actor_ids()
        if len(ids) != len(self):
            raise LearnerError(f"{len(self) - len(ids)} of {len(self)} learners are dead, needed for {doing}")
        ids = ids[:1] if first_only else ids
        results = self._worker_manager.foreach_actor(list(functions), remote_actor_ids=ids, timeout_seconds=1800)
        answers = [result for result in results if result.ok]
        if len(answers) != len(functions):
            raise LearnerError(f"{len(functions) - len(answers)} learners did not answer within 1800 s while {doing}")
        return [result.get() for result in answers]


class _ScoreShard:
    def __init__(self, rows: list[Row], network: str) -> None:
        self.rows, self.network = rows, network

    def __call__(self, learner: Any) -> list[FloatArray]:
        return learner.score(self.rows, self.network)  # type: ignore[no-any-return]


class _SetState:
    def __init__(self, reference: Any) -> None:
        self.reference = [reference]

    def __call__(self, learner: Any) -> None:
        learner.set_state(ray.get(self.reference[0]))


class _SaveHF:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, learner: Any) -> None:
        learner.save_hf(self.folder)


def _put_weights(learner: Any) -> list[Any]:
    return [ray.put(learner.export_weights())]


def _get_state(learner: Any) -> Any:
    return learner.get_state()
