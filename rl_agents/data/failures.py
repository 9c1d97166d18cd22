"""Episodes that an environment or a judge broke, counted by cause."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from rl_agents.data.trajectory import Trajectory

MAX_CAUSE = 160


@dataclass
class FailedEpisodes:
    """How many of some episodes failed, and of what.

    Attributes:
        causes: causes that differ in numbers only count as one.
        examples: the first cause of each kind in full.
    """

    total: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, episodes: Iterable[Trajectory]) -> FailedEpisodes:
        """Count."""
        found = cls()
        for episode in episodes:
            found.total += 1
            if episode.failed:
                kind = re.sub(r"\d+", "#", episode.end_cause)
                found.causes[kind] += 1
                found.examples.setdefault(kind, episode.end_cause)
        return found

    def __add__(self, other: FailedEpisodes) -> FailedEpisodes:
        return FailedEpisodes(
            self.total + other.total, self.causes + other.causes, {**other.examples, **self.examples}
        )

    @property
    def share(self) -> float:
        """Of all; 0 when there are none."""
        return self.causes.total() / self.total if self.total else 0.0

    def sentence(self, what: str = "episodes") -> str:
        """Say how many failed and the most frequent cause."""
        text = f"{self.causes.total()} of {self.total} {what} failed"
        if not self.causes:
            return text
        (kind, count), = self.causes.most_common(1)
        cause = " ".join(self.examples[kind].split())
        cause = cause if len(cause) <= MAX_CAUSE else cause[: MAX_CAUSE - 3] + "..."
        return f"{text}; most often ({count}): {cause}"
