"""The registry entry and the keys of preference_estimation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_agents.config.options import key
from rl_agents.envs.options import PromptKey
from rl_agents.envs.spec import EnvSpec


@dataclass(frozen=True)
class SizeKeys:
    attributes: int = key(5, "length of the preference vector", ge=3, le=16)
    movies: int = key(10, "number of movies (T3: 10 in training, 5 to 30 in table 2)", ge=2, le=64)
    levels: int = key(11, "number of different scores and weights; 11: 0, 0.1, ..., 1", ge=5, le=101)
    sampling: Literal["uniform", "min-max", "max", "balanced"] = key(
        "uniform",
        "sampling of scores: uniform, mostly at both ends or at the upper end (T3, table 2), or with equal sums",
    )


@dataclass(frozen=True)
class PreferenceEstimationOptions(PromptKey, SizeKeys):
    """Keys of preference_estimation; see docs/environments/active_reasoning.md."""

    threshold: float = key(
        0.88, "cosine above which an answer is a success: T3, section 3.1, and (1 + cos) / 2 > 0.94 in its code",
        ge=0, lt=1,
    )  # fmt: skip


SPEC = EnvSpec(
    name="preference_estimation",
    summary="infer a hidden preference vector by asking which of two movies is preferred",
    reference="T3, appendix C.1 (PreferenceEstimation)",
    options=PreferenceEstimationOptions,
    max_turns=10,
    progress_window=2,
    blocking="inline",
)
