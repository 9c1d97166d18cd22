"""The registry entry and the keys of pivot."""

from __future__ import annotations

from dataclasses import dataclass

from rl_agents.config.options import key
from rl_agents.envs.spec import EnvSpec
from rl_agents.rewards.verifiers import VerifierOptions


@dataclass(frozen=True)
class PivotOptions(VerifierOptions):
    """Keys of pivot and of its verifier; see docs/algorithms/pivotrl.md."""

    pivots: str = key("", "file of `pivot filter` or of an earlier step; empty for the built-in help desk")
    test_share: float = key(
        0.1, "share of the traces (of the tasks, if they have trials) whose turns are test tasks", ge=0, lt=1
    )


SPEC = EnvSpec(
    name="pivot",
    summary="one turn from a state of an expert trace; a verifier compares it with the expert's action",
    reference="PivotRL (arXiv 2603.21383), section 3.1",
    options=PivotOptions,
    max_turns=1,
    blocking="inline",
)
