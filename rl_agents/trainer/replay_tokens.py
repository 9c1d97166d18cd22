"""What each update of a replay makes of every sampled token: `rl_agents.store.token_scores`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rl_agents.data.samples import FloatArray, Row
from rl_agents.learner.learner_group import AgentLearnerGroup
from rl_agents.learner.rl_modules import POLICY
from rl_agents.store.token_scores import StepScores, TokenScores
from rl_agents.trainer.replay_record import Update


@dataclass
class TokenRecorder:
    """Scores an update's rows before it and after it, and writes what stands between.

    Attributes:
        tokens: written so far.
    """

    learners: AgentLearnerGroup
    file: TokenScores
    tokens: int = 0
    _rows: list[Row] = field(default_factory=list)
    _sessions: list[str] = field(default_factory=list)
    _before: list[FloatArray] = field(default_factory=list)
    _entropy: list[FloatArray] = field(default_factory=list)

    def before(self, rows: Sequence[Row], sessions: Sequence[str]) -> None:
        """Take rows with their credit, which the update is about to learn from."""
        self._rows = [row for row in rows if row.advantages is not None and sessions[row.trajectory]]
        self._sessions = [sessions[row.trajectory] for row in self._rows]
        self._before = self._score("logprobs")
        self._entropy = self._score("entropy")

    def after(self, update: Update) -> None:
        """Write what has become of the rows' tokens."""
        if not self._rows:
            return
        after = self._score("logprobs")
        found = [step for index in range(len(self._rows)) for step in self._steps(update, index, after[index])]
        self.file.write(found)
        self.tokens += sum(step.numbers.shape[1] for step in found)
        self._rows.clear()

    def _score(self, part: str) -> list[FloatArray]:
        """Of all sampled tokens, also those that the loss leaves out."""
        whole = [replace(row, mask=(row.segments >= 0).astype(np.float32)) for row in self._rows]
        return self.learners.score(whole, POLICY, part) if whole else []

    def _steps(self, update: Update, index: int, after: FloatArray) -> Iterator[StepScores]:
        row, before = self._rows[index], self._before[index]
        assert row.advantages is not None
        old = row.logprobs if row.old_logprobs is None else row.old_logprobs
        correction = np.ones_like(before) if row.correction is None else row.correction
        layers = (
            row.advantages,
            np.exp(after - old),
            before - row.logprobs,
            self._entropy[index],
            correction,
            row.mask,
        )
        numbers = np.stack([np.asarray(layer, np.float32) for layer in layers])
        for step in np.unique(row.segments[row.segments >= 0]):
            part = numbers[:, row.segments == step]
            yield StepScores(self._sessions[index], int(step), update.iteration, update.number or 0, part)
