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
from rl_agents.errors import InputError, number_from, unknown
from rl_agents.rewards.judges import OpenAIJudge
from rl_agents.rewards.verifiers.base import (
    EquivalenceJudge,
    ExactVerifier,
    Scored,
    Verdict,
    Verifier,
    assess,
    assessed,
    exact_match,
    self_check,
)
from rl_agents.rewards.verifiers.terminal import TerminalVerifier
from rl_agents.rewards.verifiers.tool_calls import (
    DialogueVerifier,
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

#: The verifiers that may ask a judge.
JUDGED = on(verifier=("terminal", "dialogue"))


@dataclass(frozen=True)
class VerifierOptions:
    """Keys of verifiers.

    Raises:
        InputError: an unknown verifier, or only one of ``judge_url`` and ``judge_model``.
    """

    verifier: str = key(
        "tool_call",
        "what accepts an action: exact, tool_name, tool_call, search, text_action, terminal, dialogue, or a plugin's",
    )
    threshold: float = key(
        -1.0,
        "word similarity from which texts in arguments count as equivalent (two equal texts have 0.5); -1 takes the "
        "verifier's own (tool_call, dialogue 0.1; search, text_action 0.3)",
        ge=0,
        le=0.5,
        also=-1,
        needs=on(verifier=("tool_call", "dialogue", "search", "text_action")),
    )
    parallel: ParallelMode = key(
        "strict",
        "several calls in one turn: all must match; strict accepts no surplus calls, free does",
        needs=on(verifier=("tool_name", "tool_call", "search", "dialogue")),
    )
    similarity: float = key(
        -1.0,
        "similarity of keystrokes that passes; -1 takes 0.95 with a judge, 0.9 without",
        ge=0,
        le=1,
        also=-1,
        needs=on(verifier="terminal"),
    )
    judge_url: str = key("", "URL of the judge's server, up to and including /v1", needs=JUDGED)
    judge_model: str = key("", "name of the judge model on its server", needs=JUDGED)
    judge_key_env: str = key("", "environment variable with the server's API key; empty for none", needs=JUDGED)
    judge_timeout_s: float = key(20.0, "time limit of one request, in seconds", gt=0, needs=JUDGED)
    judge_retries: int = key(1, "further attempts", ge=0, needs=JUDGED)
    judge_concurrency: int = key(16, "concurrent requests of one env runner", ge=1, le=4096, needs=JUDGED)

    def __post_init__(self) -> None:
        if self.verifier not in VERIFIERS:
            raise unknown("env.verifier", self.verifier, VERIFIERS)
        if bool(self.judge_url) != bool(self.judge_model):
            raise InputError("env.judge_url and env.judge_model belong together")


def make_verifier(options: VerifierOptions) -> Verifier:
    """Build the verifier that ``options`` describe.

    Raises:
        InputError: it needs a judge and has none, or the judge's API key is not set.
    """
    built: Verifier = VERIFIERS[options.verifier].build(options)
    return built


def _threshold(options: VerifierOptions, own: float) -> float:
    return own if options.threshold < 0 else options.threshold


def _judge(options: VerifierOptions) -> EquivalenceJudge | None:
    return EquivalenceJudge(OpenAIJudge.from_keys(options)) if options.judge_url else None


def _terminal(options: VerifierOptions) -> Verifier:
    judge = _judge(options)
    own = 0.9 if judge is None else 0.95
    return TerminalVerifier(own if options.similarity < 0 else options.similarity, judge)


def _dialogue(options: VerifierOptions) -> Verifier:
    judge = _judge(options)
    if judge is None:
        raise InputError("env.verifier=dialogue needs a judge: set env.judge_url and env.judge_model")
    return DialogueVerifier(ToolCallVerifier(_threshold(options, 0.1), options.parallel), judge)


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
        ("terminal", _terminal, "schema, similar keystrokes, else a judge; terminal commands"),
        ("dialogue", _dialogue, "tool_call, and messages that a judge finds equivalent"),
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
        return self._verdict(await scored)

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
