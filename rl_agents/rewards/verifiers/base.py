"""What verifiers have in common: their interface, the strict comparison, and the check of their own demonstrations."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rl_agents.background import settled
from rl_agents.chat.messages import split_thoughts
from rl_agents.tools.calls import Response, read_response
from rl_agents.tools.strict_json import canonical
from rl_agents.traces.turns import Turn


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verifier makes of an action.

    Attributes:
        score: r_func, 0 to 1.
        reason: why, a few words for people.
        judge_failed: a judge was needed and gave no verdict; the score is 0.
    """

    score: float
    reason: str
    judge_failed: bool = False


#: A verdict, or a coroutine that comes to it: a judge behind a server has to be asked.
Scored = Verdict | Coroutine[Any, Any, Verdict]


class Verifier(Protocol):
    """Scores actions at one turn. Holds no state; a response that cannot be read never gets here."""

    def score(self, turn: Turn, response: Response) -> Scored:
        """Compare a response with the turn's demonstrated action."""


def assess(verifier: Verifier, turn: Turn, text: str) -> Verdict:
    """Read and score a response; thoughts do not count, an unreadable or empty one scores 0. Waits for a judge."""
    verdict: Verdict = settled(assessed(verifier, turn, text))
    return verdict


def assessed(verifier: Verifier, turn: Turn, text: str) -> Scored:
    """`assess` for those who can await."""
    response = read_response(text)
    if response.problem:
        return Verdict(0.0, f"malformed: {response.problem}")
    if not response.content and not response.calls:
        return Verdict(0.0, "no action")
    return verifier.score(turn, response)


def exact_match(turn: Turn, text: str) -> bool:
    """r_strict = 1[a = a*] (PivotRL, equation 2).

    Thoughts, runs of blanks, the order of JSON keys and call ids are no part of an action; all else is.
    """
    response = read_response(text)
    if response.problem or not (response.content or response.calls):
        return False
    return _spelling(response) == _spelling(demonstrated(turn))


def demonstrated(turn: Turn) -> Response:
    """Return the demonstrated action as a response, without its thoughts."""
    return Response(split_thoughts(turn.action["content"])[1].strip(), turn.calls)


class ExactVerifier:
    """The strict baseline as a verifier; see `exact_match`."""

    def score(self, turn: Turn, response: Response) -> Verdict:
        same = _spelling(response) == _spelling(demonstrated(turn))
        return Verdict(float(same), "equal" if same else "different")


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """Whether a verifier accepts what the experts did: the demonstrations that do not score 1, with the reasons."""

    checked: int
    failures: tuple[tuple[Turn, str], ...]

    def summary(self) -> str:
        passed = self.checked - len(self.failures)
        line = f"{passed} of {self.checked} demonstrated actions score 1"
        if self.failures:
            turn, reason = self.failures[0]
            line += f"; not so {turn.place}: {reason}"
        return line


def self_check(verifier: Verifier, turns: Sequence[Turn]) -> SelfCheck:
    """Score every demonstrated action with its own verifier. No judge is asked about an action that is equal.

    One that raises, as a plugin's may, has not accepted the action.
    """
    verdicts = [(turn, _checked(verifier, turn)) for turn in turns]
    failures = tuple((turn, verdict.reason) for turn, verdict in verdicts if verdict.score < 1.0)
    return SelfCheck(len(turns), failures)


def _checked(verifier: Verifier, turn: Turn) -> Verdict:
    try:
        return assess(verifier, turn, turn.text)
    except Exception as error:
        return Verdict(0.0, f"{type(error).__name__}: {error}")


def _spelling(response: Response) -> str:
    calls = [[call.name, call.arguments] for call in response.calls]
    return canonical([" ".join(response.content.split()), calls])
