"""Verifiers: whether a sampled action is acceptable where an expert acted (PivotRL, equation 6)."""

from rl_agents.rewards.verifiers.base import (
    SelfCheck,
    Verdict,
    Verifier,
    assess,
    assessed,
    exact_match,
    self_check,
)
from rl_agents.rewards.verifiers.registry import VERIFIERS, VerifierOptions, make_verifier

__all__ = [
    "VERIFIERS", "SelfCheck", "Verdict", "Verifier", "VerifierOptions", "assess", "assessed", "exact_match",
    "make_verifier", "self_check",
]  # fmt: skip
