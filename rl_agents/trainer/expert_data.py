"""Dialogues that any method imitates alongside its own loss: rows of the loss component `ce`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rl_agents.config import Settings
from rl_agents.data.samples import Row, build_samples
from rl_agents.data.tasks import EXPERT, item_at, stream_seed
from rl_agents.data.trajectory import Trajectory
from rl_agents.losses import CE, linear_decay
from rl_agents.rollout.demonstrations import Dialogues


@dataclass
class ExpertData:
    """The dialogues of ``expert_data``, in an order that every pass shuffles again, fixed by the seed."""

    settings: Settings
    dialogues: Dialogues

    def coefficient(self, iteration: int) -> float:
        return linear_decay(self.settings.ce_coef, self.settings.ce_decay, iteration / self.settings.iterations)

    def draw(self, iteration: int, *update: int) -> list[Trajectory]:
        """Return the next dialogues, for the ``update``-th update if an iteration has several; none at weight 0."""
        count = self.settings.expert_dialogues if self.coefficient(iteration) else 0
        seed = stream_seed(self.settings.seed, EXPERT, *update)
        return [item_at(self.dialogues, iteration * count + number, seed, EXPERT) for number in range(count)]

    def rows(self, dialogues: Sequence[Trajectory], iteration: int, first: int) -> list[Row]:
        """Return the rows of dialogues, which are trajectories of the update from number ``first`` on."""
        rows = build_samples(dialogues, self.settings.sample_layout)
        for row in rows:
            row.components, row.expert = {CE: row.mask * np.float32(self.coefficient(iteration))}, True
            row.mask, row.trajectory = np.zeros_like(row.mask), row.trajectory + first
            row.group_id = -1 - row.trajectory  # alike in no group of rollouts
        return rows
