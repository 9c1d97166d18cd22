"""Verifiers: whether a sampled action is acceptable where an expert acted (PivotRL, equation 6).

Here are their names and their keys, which are options ``env.KEY`` of the pivot environment.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from rl_agents import plugins
from rl_agents.config.options import key, on
from rl_agents.errors import number_from, unknown
from rl_agents.rewards.judges import JudgeError
from rl_agents.rewards.verifiers.base import (
    ExactVerifier,
    Scored,
    Verdict,
    Verifier,
    assess,
    assessed,
    exact_match,
    self_check,
)
from rl_agents.rewards.verifiers.tool_calls import (
    ParallelMode,
    TextActionVerifier,
    ToolCallVerifier,
    ToolNameVerifier,
)
from rl_agents.tools.calls import Response
from rl_agents.traces.turns import Turn

__all__ = [
    "VERIFIERS", "Verdict", "Verifier", "VerifierOptions", "assess", "assessed", "exact_match",
    "make_verifier", "register", "self_check", "verifier",
]  # fmt: skip


@dataclass(frozen=True)
class VerifierOptions:
    """Keys of verifiers.

    Raises:
        InputError: an unknown verifier.
    """

    verifier: str = key(
        "tool_call",
        "what accepts an action: exact, tool_name, tool_call, search, text_action, or a plugin's",
    )
    threshold: float = key(
        -1.0,
        "word similarity from which texts in arguments count as equivalent (two equal texts have 0.5); -1 takes the "
        "verifier's own (tool_call 0.1; search, text_action 0.3)",
        ge=0,
        le=0.5,
        also=-1,
        needs=on(verifier=("tool_call", "search", "text_action")),
    )
    parallel: ParallelMode = key(
        "strict",
        "several calls in one turn: all must match; strict accepts no surplus calls, free does",
        needs=on(verifier=("tool_name", "tool_call", "search")),
    )

    def __post_init__(self) -> None:
        if self.verifier not in VERIFIERS:
            raise unknown("env.verifier", self.verifier, VERIFIERS)


def make_verifier(options: VerifierOptions) -> Verifier:
    """Build the verifier that ``options`` describe."""
    built: Verifier = VERIFIERS[options.verifier].build(options)
    return built


def _threshold(options: VerifierOptions, own: float) -> float:
    return own if options.threshold < 0 else options.threshold


#: The summaries describe what is accepted.
VERIFIERS: dict[str, plugins.Entry] = {
    name: plugins.Entry(name, summary, "docs/algorithms/pivotrl.md", build)
    for name, build, summary in (
        ("exact", lambda options: ExactVerifier(), "only the demonstrated action (the strict baseline)"),
        ("tool_name", lambda options: ToolNameVerifier(options.parallel), "the same tool; the paper's SWE verifier"),
        (
            "tool_call",
            lambda options: ToolCallVerifier(_threshold(options, 0.1), options.parallel),
            "the same tool with equivalent arguments; conversational tool use",
        ),
        (
            "search",
            lambda options: ToolCallVerifier(_threshold(options, 0.3), options.parallel),
            "the same, with texts that share more words; search steps",
        ),
        (
            "text_action",
            lambda options: TextActionVerifier(_threshold(options, 0.3)),
            "the same command of a text environment; for `search[...]`, similar words",
        ),
    )
}


#: Add a plugin's entry; raises `InputError` if its name is taken.
register = partial(plugins.register, "verifier", VERIFIERS)


#: Scores an action at a turn where the expert acted: 0 to 1, or a coroutine that returns that.
Scoring = Callable[[Turn, Response], Any]


@dataclass(frozen=True)
class FunctionVerifier:
    name: str
    function: Scoring

    def score(self, turn: Turn, response: Response) -> Scored:
        """See `Verifier.score`. Raises `ValueError`: the function's score is not a number from 0 to 1."""
        scored = self.function(turn, response)
        return self._awaited(scored) if inspect.iscoroutine(scored) else self._verdict(scored)

    async def _awaited(self, scored: Any) -> Verdict:
        try:
            return self._verdict(await scored)
        except JudgeError as error:
            return Verdict(0.0, f"judge_error: {error}", judge_failed=True)

    def _verdict(self, scored: Any) -> Verdict:
        score = number_from(self.function, scored, 0, 1)
        return Verdict(score, f"{self.name}: {score:g}")


def verifier(name: str, summary: str) -> Callable[[Scoring], Scoring]:
    """Decorate a function of a turn and a response: ``env.verifier=name`` rewards actions with its score.

    An unreadable or empty response scores 0, and the function does not receive it. The experts' actions must score 1.
    """
    return plugins.decorator(
        "verifier", VERIFIERS, name, summary, lambda function, options: FunctionVerifier(name, function)
    )
