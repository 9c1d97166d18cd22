"""Verifiers by name, and what can be chosen about them (options ``env.KEY`` of the pivot environment)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from rl_agents import plugins
from rl_agents.config.options import key, keys_of, read_options
from rl_agents.errors import InputError, unknown
from rl_agents.rewards.judge import OpenAIJudge
from rl_agents.rewards.verifiers.base import ExactVerifier, Scored, Verdict, Verifier
from rl_agents.rewards.verifiers.judged import DialogueVerifier, EquivalenceJudge
from rl_agents.rewards.verifiers.swe import SweVerifier
from rl_agents.rewards.verifiers.terminal import TerminalVerifier
from rl_agents.rewards.verifiers.tool_calls import ParallelMode, TextActionVerifier, ToolCallVerifier, ToolNameVerifier
from rl_agents.tools.calls import Response
from rl_agents.traces.turns import Turn

#: The verifiers that may ask a judge.
JUDGED = "verifier=terminal|dialogue"


@dataclass(frozen=True)
class VerifierOptions:
    """Which verifier, and its own choices."""

    verifier: str = key(
        "tool_call",
        "what accepts an action: exact, tool_name, tool_call, search, text_action, terminal, swe_target, dialogue, "
        "or a plugin's",
    )
    threshold: float = key(
        -1.0,
        "word similarity from which texts in arguments count as equivalent (two equal texts have 0.5); -1 takes the "
        "verifier's own (tool_call, dialogue 0.1; search, text_action 0.3)",
        ge=0,
        le=0.5,
        also=-1,
        needs="verifier=tool_call|dialogue|search|text_action",
    )
    parallel: ParallelMode = key(
        "strict",
        "how several calls in one turn are scored",
        needs="verifier=tool_name|tool_call|search|dialogue",
    )
    similarity: float = key(
        -1.0,
        "similarity of keystrokes that passes; -1 takes 0.95 with a judge, 0.9 without",
        ge=0,
        le=1,
        also=-1,
        needs="verifier=terminal",
    )
    edit_credit: Literal["binary", "linear"] = key(
        "binary", "edits that are alike earn all or nothing, or their similarity", needs="verifier=swe_target"
    )
    judge_url: str = key("", "an OpenAI-compatible server, up to and including /v1", needs=JUDGED)
    judge_model: str = key("", "the model's name there", needs=JUDGED)
    judge_key_env: str = key("", "environment variable with its API key; empty for none", needs=JUDGED)
    judge_timeout_s: float = key(20.0, "seconds that one request may take", gt=0, needs=JUDGED)
    judge_retries: int = key(1, "further attempts", ge=0, needs=JUDGED)
    judge_concurrency: int = key(16, "requests of one env runner at the same time", ge=1, le=4096, needs=JUDGED)

    def __post_init__(self) -> None:
        if self.verifier not in VERIFIERS:
            raise unknown("env.verifier", self.verifier, VERIFIERS)

    @classmethod
    def from_mapping(cls, options: Mapping[str, Any]) -> VerifierOptions:
        """Read plain values; keys that are none of ours are ignored.

        Raises:
            InputError: an unknown verifier, a value of another type or out of range.
        """
        own = {name: value for name, value in options.items() if name in keys_of(cls)}
        made = read_options(cls, own, prefix="env.", chosen=())
        if bool(made.judge_url) != bool(made.judge_model):
            raise InputError("env.judge_url and env.judge_model belong together")
        return made


def make_verifier(options: VerifierOptions) -> Verifier:
    """Build the verifier that ``options`` describe.

    Raises:
        InputError: it needs a judge and has none, or the judge lacks its API key or its client.
    """
    return VERIFIERS[options.verifier].build(options)


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
        raise InputError("env.verifier=dialogue has messages judged: set env.judge_url and env.judge_model")
    return DialogueVerifier(ToolCallVerifier(_threshold(options, 0.1), options.parallel), judge)


@dataclass(frozen=True)
class VerifierEntry:
    """A verifier as `run.py list` shows it; ``summary`` says what it accepts."""

    name: str
    summary: str
    reference: str
    build: Callable[[VerifierOptions], Verifier]


VERIFIERS: dict[str, VerifierEntry] = {
    name: VerifierEntry(name, summary, "docs/algorithms/pivotrl.md", build)
    for name, build, summary in (
        ("exact", lambda options: ExactVerifier(), "the demonstrated action and nothing else (the strict baseline)"),
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
        (
            "swe_target",
            lambda options: SweVerifier(options.edit_credit),
            "the kind of operation, its target, and for edits their similarity",
        ),
        ("dialogue", _dialogue, "tool_call, with messages compared by a judge"),
    )
}


#: Adds an entry of a plugin; raises `InputError` where its name is taken.
register = partial(plugins.register, "verifier", VERIFIERS)


#: Compares an action with ``turn``, where the expert acted: 0 to 1, or a coroutine that comes to it.
Scoring = Callable[[Turn, Response], Any]


@dataclass(frozen=True)
class FunctionVerifier:
    name: str
    function: Scoring

    def score(self, turn: Turn, response: Response) -> Scored:
        """See `Verifier.score`.

        Raises:
            ValueError: the function's score is no number from 0 to 1.
        """
        scored = self.function(turn, response)
        return self._awaited(scored) if inspect.iscoroutine(scored) else self._verdict(scored)

    async def _awaited(self, scored: Any) -> Verdict:
        return self._verdict(await scored)

    def _verdict(self, scored: Any) -> Verdict:
        score = float(scored)
        if not 0.0 <= score <= 1.0:
            raise ValueError(f"verifier {self.name} returned {scored!r}, no number from 0 to 1")
        return Verdict(score, f"{self.name}: {score:g}")


def verifier(name: str, summary: str) -> Callable[[Scoring], Scoring]:
    """Decorate a function of a turn and a response: ``env.verifier=name`` rewards actions with its score.

    A response that cannot be read, or is empty, scores 0 and never gets to it. What the experts did has to score 1.
    """

    def registered(function: Scoring) -> Scoring:
        made = FunctionVerifier(name, function)
        register(VerifierEntry(name, summary, function.__module__, lambda options: made))
        return function

    return registered
