"""The keys of asynchrony: how far sampling weights may be behind learning ones (docs/explanation/staleness.md)."""

from __future__ import annotations

from dataclasses import dataclass

from rl_agents.config.options import key


@dataclass
class AsyncKeys:
    """Sampling while learning."""

    lag: int = key(
        0,
        "k: iteration i is sampled by the weights of iteration i-k, while the learner makes those in between; same "
        "results whatever the timing",
        at_least=0,
    )
    stream: bool = key(False, "sample without a pause, with the newest weights at hand, up to `staleness`")
    staleness: int = key(
        2, "iterations that a group's oldest step may lie behind the weights that learn from it", at_least=1,
        needs="stream",
    )  # fmt: skip
