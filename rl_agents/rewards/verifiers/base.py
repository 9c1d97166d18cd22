"""The interface of verifiers, the strict comparison, the check of demonstrations, and the judge of equivalence."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from rl_agents.background import SharedAnswers, settled
from rl_agents.chat.messages import split_thoughts
from rl_agents.errors import described
from rl_agents.rewards.judges import JudgeError, OpenAIJudge
from rl_agents.tools.calls import Response, read_response
from rl_agents.tools.strict_json import canonical
from rl_agents.traces.turns import Turn


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a verifier for one action.

    Attributes:
        score: r_func, 0 to 1.
        reason: a few words for people.
        judge_failed: a judge was needed and returned no verdict; the score is 0.
    """

    score: float
    reason: str
    judge_failed: bool = False


#: A verdict, or a coroutine that returns one because a judge behind a server has to be asked.
Scored = Verdict | Coroutine[Any, Any, Verdict]


class Verifier(Protocol):
    """Scores actions at one turn. Has no state, and receives only responses that could be read."""

    def score(self, turn: Turn, response: Response) -> Scored:
        """Compare a response with the turn's demonstrated action."""


def assess(verifier: Verifier, turn: Turn, text: str) -> Verdict:
    """Read and score a response, and wait for the judge if one is asked.

    Thoughts do not count. An unreadable or empty response scores 0.
    """
    verdict: Verdict = settled(assessed(verifier, turn, text))
    return verdict


def assessed(verifier: Verifier, turn: Turn, text: str) -> Scored:
    """Do what `assess` does, for callers that can await."""
    response = read_response(text)
    if response.problem:
        return Verdict(0.0, f"malformed: {response.problem}")
    if not response.content and not response.calls:
        return Verdict(0.0, "no action")
    return verifier.score(turn, response)


def demonstrated(turn: Turn) -> Response:
    """Return the demonstrated action as a response, without its thoughts."""
    return Response(split_thoughts(turn.action["content"])[1].strip(), turn.calls)


class ExactVerifier:
    """r_strict = 1[a = a*] (PivotRL, equation 2).

    Thoughts, runs of blanks, the order of JSON keys and call ids are not part of an action. Everything else is.
    """

    def score(self, turn: Turn, response: Response) -> Verdict:
        same = _spelling(response) == _spelling(demonstrated(turn))
        return Verdict(float(same), "equal" if same else "different")


def exact_match(turn: Turn, text: str) -> bool:
    """Return whether a response is the demonstrated action; see `ExactVerifier`."""
    return assess(ExactVerifier(), turn, text).score == 1.0


def _spelling(response: Response) -> str:
    calls = [[call.name, call.arguments] for call in response.calls]
    return canonical([" ".join(response.content.split()), calls])


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """The demonstrations that their own verifier does not score 1, with the reasons."""

    checked: int
    failures: tuple[tuple[Turn, str], ...]

    def summary(self) -> str:
        line = f"{self.checked - len(self.failures)} of {self.checked} demonstrated actions score 1"
        if self.failures:
            turn, reason = self.failures[0]
            line += f"; not so {turn.place}: {reason}"
        return line


def self_check(verifier: Verifier, turns: Sequence[Turn]) -> SelfCheck:
    """Score every demonstrated action with its verifier. A judge is not asked about an action that is equal.

    If a verifier raises an error, as a plugin's may, it has not accepted the action.
    """
    verdicts = [(turn, _checked(verifier, turn)) for turn in turns]
    failures = tuple((turn, verdict.reason) for turn, verdict in verdicts if verdict.score < 1.0)
    return SelfCheck(len(turns), failures)


def _checked(verifier: Verifier, turn: Turn) -> Verdict:
    try:
        return assess(verifier, turn, turn.text)
    except Exception as error:
        return Verdict(0.0, described(error))


SHOWN_MESSAGES, SHOWN_CHARACTERS = 6, 2000
_verdicts: SharedAnswers[float] = SharedAnswers(4096)


@dataclass(frozen=True)
class EquivalenceJudge:
    """Asks twice, the second time with the two actions swapped. Both answers must be yes.

    So a judge that prefers the first or the second place accepts nothing because of it. Verdicts are remembered.
    """

    judge: OpenAIJudge

    async def equivalent(self, prompt: str, turn: Turn, response_text: str, demonstrated_text: str) -> Verdict:
        """Return 1 or 0; 0 with ``judge_failed`` if the judge returned no verdict.

        Args:
            prompt: with the fields ``state``, ``first`` and ``second``.
        """
        lines = [f"{m['role']}: {m['content'].strip()[:SHOWN_CHARACTERS]}" for m in turn.messages[-SHOWN_MESSAGES:]]
        state = "\n".join(lines) or "(nothing)"
        try:
            for first, second in ((demonstrated_text, response_text), (response_text, demonstrated_text)):
                filled = prompt.format(state=state, first=first, second=second)
                ask = partial(self.judge.ask, filled, turn.place)
                if not await _verdicts.get((self.judge, filled), ask):
                    return Verdict(0.0, "not equivalent to the judge")
        except JudgeError as error:
            return Verdict(0.0, f"judge_error: {error}", judge_failed=True)
        return Verdict(1.0, "equivalent to the judge, both ways")
