"""Verifiers by name, and what can be chosen about them (options ``env.KEY`` of the pivot environment)."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from rl_agents.errors import InputError, unknown
from rl_agents.rewards.judge import OpenAIJudge
from rl_agents.rewards.verifiers.base import ExactVerifier, Verifier
from rl_agents.rewards.verifiers.compare import ParallelMode
from rl_agents.rewards.verifiers.judged import DialogueVerifier, EquivalenceJudge
from rl_agents.rewards.verifiers.swe import SweVerifier
from rl_agents.rewards.verifiers.terminal import TerminalVerifier
from rl_agents.rewards.verifiers.text_actions import TextActionVerifier
from rl_agents.rewards.verifiers.tool_calls import ToolCallVerifier, ToolNameVerifier


@dataclass(frozen=True, slots=True)
class VerifierOptions:
    """Which verifier, and its own choices.

    Attributes:
        verifier: a name of `VERIFIERS`.
        threshold: word similarity from which texts in arguments count as equivalent; -1 takes the verifier's own
            (tool_call, dialogue 0.1; search, text_action 0.3).
        parallel: how several calls in one turn are scored; see `rl_agents.rewards.verifiers.compare.parallel_score`.
        similarity: terminal: similarity of keystrokes that passes; -1 takes 0.95 with a judge, 0.9 without.
        edit_credit: swe_target: ``binary`` or ``linear``.
        judge_url, judge_model: an OpenAI-compatible server (up to and including /v1) and the model's name there.
        judge_key_env: environment variable with its API key; empty for none.
        judge_timeout_s, judge_retries: seconds that one request may take, and further attempts.
    """

    verifier: str = "tool_call"
    threshold: float = -1.0
    parallel: ParallelMode = "strict"
    similarity: float = -1.0
    edit_credit: Literal["binary", "linear"] = "binary"
    judge_url: str = ""
    judge_model: str = ""
    judge_key_env: str = ""
    judge_timeout_s: float = 20.0
    judge_retries: int = 1

    @classmethod
    def from_mapping(cls, options: Mapping[str, Any]) -> VerifierOptions:
        """Check plain values; keys that are none of ours are ignored.

        Raises:
            InputError: a value of another type or out of range.
        """
        chosen = {field.name: options[field.name] for field in fields(cls) if field.name in options}
        for name, value in chosen.items():
            default = getattr(cls(), name)
            if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
                chosen[name] = value = float(value)
            if type(value) is not type(default):
                raise InputError(f"env.{name}={value!r}: {type(default).__name__} is needed")
        made = cls(**chosen)
        made.check()
        return made

    def check(self) -> None:
        """Raise `InputError` for names and numbers that cannot be."""
        if self.verifier not in VERIFIERS:
            raise unknown("verifier", self.verifier, VERIFIERS)
        for name, valid in (("parallel", typing.get_args(ParallelMode)), ("edit_credit", ("binary", "linear"))):
            if getattr(self, name) not in valid:
                raise unknown(f"value of env.{name}", getattr(self, name), valid)
        for name in ("threshold", "similarity"):
            if not (getattr(self, name) == -1.0 or 0.0 <= getattr(self, name) <= 1.0):
                raise InputError(f"env.{name}={getattr(self, name)}: between 0 and 1, or -1 for the verifier's own")
        if self.threshold > 0.5:
            raise InputError(
                f"env.threshold={self.threshold}: two equal texts have a word similarity of 0.5, so above it "
                "nothing would pass"
            )
        if bool(self.judge_url) != bool(self.judge_model):
            raise InputError("env.judge_url and env.judge_model belong together")
        if self.judge_timeout_s <= 0 or self.judge_retries < 0:
            raise InputError("env.judge_timeout_s must be above 0 and env.judge_retries not negative")


def make_verifier(options: VerifierOptions) -> Verifier:
    """Build the verifier that ``options`` describe.

    Raises:
        InputError: it needs a judge and has none, or the judge lacks its API key or its client.
    """
    return VERIFIERS[options.verifier][0](options)


def _threshold(options: VerifierOptions, own: float) -> float:
    return own if options.threshold < 0 else options.threshold


def _judge(options: VerifierOptions) -> EquivalenceJudge | None:
    if not options.judge_url:
        return None
    return EquivalenceJudge(
        OpenAIJudge.connect(
            options.judge_url,
            options.judge_model,
            key_env=options.judge_key_env,
            timeout_s=options.judge_timeout_s,
            retries=options.judge_retries,
        )
    )


def _exact(options: VerifierOptions) -> Verifier:
    return ExactVerifier()


def _tool_name(options: VerifierOptions) -> Verifier:
    return ToolNameVerifier(options.parallel)


def _tool_call(options: VerifierOptions) -> Verifier:
    return ToolCallVerifier(_threshold(options, 0.1), options.parallel)


def _search(options: VerifierOptions) -> Verifier:
    return ToolCallVerifier(_threshold(options, 0.3), options.parallel)


def _text_action(options: VerifierOptions) -> Verifier:
    return TextActionVerifier(_threshold(options, 0.3))


def _terminal(options: VerifierOptions) -> Verifier:
    judge = _judge(options)
    own = 0.9 if judge is None else 0.95
    return TerminalVerifier(own if options.similarity < 0 else options.similarity, judge)


def _swe_target(options: VerifierOptions) -> Verifier:
    return SweVerifier(options.edit_credit)


def _dialogue(options: VerifierOptions) -> Verifier:
    judge = _judge(options)
    if judge is None:
        raise InputError("env.verifier=dialogue has messages judged: set env.judge_url and env.judge_model")
    return DialogueVerifier(ToolCallVerifier(_threshold(options, 0.1), options.parallel), judge)


#: Name -> (how it is built, what it accepts).
VERIFIERS: Mapping[str, tuple[Callable[[VerifierOptions], Verifier], str]] = {
    "exact": (_exact, "the demonstrated action and nothing else (the strict baseline)"),
    "tool_name": (_tool_name, "the same tool; the paper's SWE verifier"),
    "tool_call": (_tool_call, "the same tool with equivalent arguments; conversational tool use"),
    "search": (_search, "the same, with texts that share more words; search steps"),
    "text_action": (_text_action, "the same command of a text environment; for `search[...]`, similar words"),
    "terminal": (_terminal, "schema, similar keystrokes, else a judge; terminal commands"),
    "swe_target": (_swe_target, "the kind of operation, its target, and for edits their similarity"),
    "dialogue": (_dialogue, "tool_call, with messages compared by a judge"),
}
