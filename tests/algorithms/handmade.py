"""Episodes written by hand, and the advantages that a recipe gives their steps."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.data.samples import Row, build_samples
from rl_agents.data.trajectory import Step, Trajectory


def episode(
    group: int, rewards: Sequence[float], *, anchors: str = "", lengths: Sequence[int] = (), **facts: Any
) -> Trajectory:
    """One episode whose prompts grow; ``anchors`` has a letter per step, ``lengths`` the sampled tokens per step."""
    trajectory = Trajectory("task", group, 0, 0, terminated=True, success=sum(rewards) > 0)
    prompt = [10, 11]
    for t, reward in enumerate(rewards):
        response = [20 + t] * (lengths[t] if lengths else 1 + t % 2)
        anchor = anchors[t] if anchors else f"{group}-{t}"
        step = Step(prompt, response, [-1.0] * len(response), 0, "stop", anchor, anchor, "go", float(reward))
        trajectory.steps.append(step)
        prompt = prompt + response + [30]
    for name, value in facts.items():
        setattr(trajectory, name, value)
    return trajectory


def settings_of(algo: str, **keys: Any) -> Settings:
    settings = Settings.from_dict({"algo": algo, **keys})
    settings.set_defaults(ALGORITHMS[algo].defaults)
    return settings


def with_values(rows: Sequence[Row], values: Sequence[Sequence[float]]) -> None:
    """Give the first token of every step the critic's value of its state."""
    for row in rows:
        row.values = np.zeros(len(row), np.float32)
        for step in np.unique(row.segments[row.mask > 0]):
            row.values[np.flatnonzero(row.segments == step)[0]] = values[row.trajectory][step]


def per_step(rows: Sequence[Row]) -> list[float]:
    """Advantages by trajectory and step; every token of a step must have the same."""
    found: dict[tuple[int, int], float] = {}
    for row in rows:
        assert row.advantages is not None and not row.advantages[row.mask == 0].any()
        for step in np.unique(row.segments[row.mask > 0]):
            tokens = row.advantages[row.segments == step]
            assert (tokens == tokens[0]).all()
            found[row.trajectory, int(step)] = float(tokens[0])
    return [found[key] for key in sorted(found)]


def selected(algo: str, episodes: Sequence[Trajectory], **keys: Any) -> Any:
    """What a recipe chooses of the episodes, with the seed 0."""
    select = ALGORITHMS[algo].select
    assert select is not None
    return select(episodes, settings_of(algo, **keys), np.random.default_rng(0))


def credited(algo: str, episodes: Sequence[Trajectory], layout: str = "merged", **keys: Any) -> list[Row]:
    settings = settings_of(algo, **keys)
    rows = build_samples(episodes, layout)
    credit = ALGORITHMS[algo].credit
    assert credit is not None
    credit(rows, episodes, settings)
    return rows
