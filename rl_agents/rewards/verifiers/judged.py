"""Judges of equivalence, and the verifier of turns in natural language that asks one."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from rl_agents.background import Remembered
from rl_agents.rewards.judge import JudgeError
from rl_agents.rewards.verifiers.base import Scored, Verdict, demonstrated
from rl_agents.rewards.verifiers.tool_calls import ToolCallVerifier, message_verdict
from rl_agents.tools.calls import Response
from rl_agents.traces.turns import Turn

SHOWN_MESSAGES, SHOWN_CHARACTERS = 6, 2000
CACHED_VERDICTS = 4096
_verdicts: Remembered[float] = Remembered(CACHED_VERDICTS)

MESSAGE_PROMPT = """\
Two assistants continue the same dialogue. Decide whether their messages do the same for the user: the same decision, \
the same request or question, the same facts. Wording, order and politeness do not matter.

[End of the dialogue]
{state}

[Message A]
{first}

[Message B]
{second}

Does message B do the same as message A? Reply with one word, yes or no."""

COMMAND_PROMPT = """\
Two agents work in the same terminal. Decide whether their commands are interchangeable here: run now, they would show \
or change the same things, so that the work could go on from either. If one says that the task is complete and the \
other does not, they are not interchangeable.

[End of the dialogue]
{state}

[Agent A]
{first}

[Agent B]
{second}

Are the commands of B interchangeable with those of A? Reply with one word, yes or no."""


class Asks(Hashable, Protocol):
    """Answers a yes-or-no question (`rl_agents.rewards.judge.OpenAIJudge`)."""

    async def ask(self, prompt: str, about: str) -> float:
        """Return 1.0 or 0.0.

        Raises:
            JudgeError: no verdict.
        """


@dataclass(frozen=True)
class EquivalenceJudge:
    """Asks twice, the second time with the two actions swapped; both answers must be yes.

    A judge that prefers one place cannot let an action pass that way. Verdicts are remembered.
    """

    judge: Asks

    async def equivalent(self, prompt: str, turn: Turn, response_text: str, demonstrated_text: str) -> Verdict:
        """Return 1 or 0; 0 with ``judge_failed`` when a verdict could not be had."""
        state = end_of_dialogue(turn)
        try:
            for first, second in ((demonstrated_text, response_text), (response_text, demonstrated_text)):
                if not await self._ask(prompt.format(state=state, first=first, second=second), turn.place):
                    return Verdict(0.0, "not equivalent to the judge")
        except JudgeError as error:
            return Verdict(0.0, f"judge_error: {error}", judge_failed=True)
        return Verdict(1.0, "equivalent to the judge, both ways")

    async def _ask(self, prompt: str, about: str) -> float:
        return await _verdicts.get((self.judge, prompt), partial(self.judge.ask, prompt, about))


@dataclass(frozen=True)
class DialogueVerifier:
    """Calls by name and arguments, messages by a judge; a message that is equal needs no judge."""

    calls: ToolCallVerifier
    judge: EquivalenceJudge

    def score(self, turn: Turn, response: Response) -> Scored:
        if turn.calls and response.calls:
            return self.calls.score(turn, response)
        verdict = message_verdict(turn, response)
        assert verdict is not None
        expected = demonstrated(turn).content
        if verdict.score == 0.0 or response.content.split() == expected.split():
            return verdict
        return self.judge.equivalent(MESSAGE_PROMPT, turn, response.content, expected)


def end_of_dialogue(turn: Turn) -> str:
    lines = [f"{m['role']}: {m['content'].strip()[:SHOWN_CHARACTERS]}" for m in turn.messages[-SHOWN_MESSAGES:]]
    return "\n".join(lines) or "(nothing)"
