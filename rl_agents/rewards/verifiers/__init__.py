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
from rl_agents.rewards.verifiers.registry import (
    VERIFIERS,
    VerifierEntry,
    VerifierOptions,
    make_verifier,
    register,
    verifier,
)

__all__ = [
    "VERIFIERS", "SelfCheck", "Verdict", "Verifier", "VerifierEntry", "VerifierOptions", "assess", "assessed",
    "exact_match", "make_verifier", "register", "self_check", "verifier",
]  # fmt: skip
