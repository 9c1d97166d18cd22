"""What the registry knows about circuit_decoding, and its keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_agents.config.options import key
from rl_agents.envs.options import PromptKey
from rl_agents.envs.spec import EnvSpec


@dataclass(frozen=True)
class SizeKeys:
    circuits: int = key(2, "hidden circuits, all different", ge=1, le=8, needs="sizes=one")
    candidates: int = key(
        10, "length of the candidate list, at least the number of circuits", ge=2, le=64, needs="sizes=one"
    )


@dataclass(frozen=True)
class CircuitDecodingOptions(PromptKey, SizeKeys):
    """Keys of circuit_decoding; see docs/environments/active_reasoning.md."""

    sizes: str | list[str] = key(
        "one", "one: all tasks are alike; or <circuits>-<candidates> mixed in equal parts, such as 1-2,2-6,3-10"
    )
    reward: Literal["exact", "fraction"] = key(
        "exact", "1 if every circuit is right (T3), or the share that is right (its released code)"
    )


SPEC = EnvSpec(
    name="circuit_decoding",
    summary="identify hidden Boolean circuits among candidates by querying them",
    reference="T3, appendix C.1 (CircuitDecoding)",
    options=CircuitDecodingOptions,
    max_turns=10,
    progress_window=3,
    blocking="inline",
)
