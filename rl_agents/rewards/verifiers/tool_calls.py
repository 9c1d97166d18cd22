"""Verifiers of tool calls: by name, and by name and arguments (conversational tool use, search)."""

from __future__ import annotations

from dataclasses import dataclass

from rl_agents.rewards.verifiers.base import Verdict
from rl_agents.rewards.verifiers.compare import ParallelMode, difference, matched_pairs, parallel_score
from rl_agents.tools.calls import Response, ToolCall, check_call
from rl_agents.traces.turns import Turn


@dataclass(frozen=True, slots=True)
class ToolNameVerifier:
    """The same tools are called, whatever the arguments; a message where the expert wrote one.

    The paper's SWE verifier (appendix A.2): deliberately coarse.
    """

    parallel: ParallelMode = "strict"

    def score(self, turn: Turn, response: Response) -> Verdict:
        if verdict := message_verdict(turn, response):
            return verdict
        matched = matched_pairs(turn.calls, response.calls, lambda e, a: e.name == a.name)
        score = parallel_score(matched, len(turn.calls), len(response.calls), self.parallel)
        return Verdict(score, f"{matched} of {len(turn.calls)} tools called")


@dataclass(frozen=True, slots=True)
class ToolCallVerifier:
    """The same tools with equivalent arguments; a message where the expert wrote one, whatever it says.

    A call that its tool's JSON schema refuses scores 0. Demonstrations that break their own schema show that the tool
    takes such calls, so theirs are not held to it.

    Attributes:
        threshold: see `rl_agents.rewards.verifiers.compare.difference`. Public configurations: 0.1 conversational
            tool use, 0.3 search, 0.0 SWE.
    """

    threshold: float = 0.1
    parallel: ParallelMode = "strict"

    def score(self, turn: Turn, response: Response) -> Verdict:
        if verdict := message_verdict(turn, response):
            return verdict
        matched = matched_pairs(turn.calls, response.calls, lambda e, a: not self._problem(turn, e, a))
        score = parallel_score(matched, len(turn.calls), len(response.calls), self.parallel)
        if score == 1.0:
            return Verdict(1.0, "all calls match")
        problems = [self._problem(turn, expected, actual) for expected in turn.calls for actual in response.calls]
        return Verdict(score, next(filter(None, problems), "calls are missing"))

    def _problem(self, turn: Turn, expected: ToolCall, actual: ToolCall) -> str:
        if expected.name != actual.name:
            return f"{actual.name} for {expected.name}"
        if found := difference(dict(expected.arguments), dict(actual.arguments), self.threshold):
            return found
        return check_call(actual, turn.tools) if turn.tools and not check_call(expected, turn.tools) else ""


def message_verdict(turn: Turn, response: Response) -> Verdict | None:
    """Decide where one of both is a message: two messages are 1, a message for a call or a call for a message is 0."""
    if turn.calls and response.calls:
        return None
    if turn.calls:
        return Verdict(0.0, "a message where a call was expected")
    if response.calls:
        return Verdict(0.0, "a call where a message was expected")
    return Verdict(1.0, "a message as expected")
