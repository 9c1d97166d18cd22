"""The registry entry and the keys of circuit_decoding."""

from __future__ import annotations

from dataclasses import dataclass

from rl_agents.config.options import key
from rl_agents.envs.options import PromptKey
from rl_agents.envs.spec import EnvSpec
from rl_agents.errors import InputError


@dataclass(frozen=True)
class SizeKeys:
    """The size of a task."""

    circuits: int = key(2, "number of hidden circuits, all different", ge=1, le=8)
    candidates: int = key(10, "length of the candidate list, at least the number of circuits", ge=2, le=64)

    def __post_init__(self) -> None:
        if self.candidates < self.circuits:
            raise InputError(f"env.candidates={self.candidates}: must be at least env.circuits={self.circuits}")

    @property
    def size(self) -> str:
        """As in task ids, for example ``2-10``."""
        return f"{self.circuits}-{self.candidates}"


@dataclass(frozen=True)
class CircuitDecodingOptions(PromptKey, SizeKeys):
    """Keys of circuit_decoding; see docs/environments/active_reasoning.md."""


SPEC = EnvSpec(
    name="circuit_decoding",
    summary="identify hidden Boolean circuits among candidates by querying them",
    reference="T3, appendix C.1 (CircuitDecoding)",
    options=CircuitDecodingOptions,
    max_turns=10,
    progress_window=3,
    blocking="inline",
)
