"""Judges by name: what ``judge`` of a run and ``env.judge`` of long_form_qa choose among."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

from rl_agents import plugins
from rl_agents.errors import InputError, unknown
from rl_agents.rewards.judge import Judge, JudgeError, OpenAIJudge, PrsJudge, RuleJudge, ServerKeys
from rl_agents.rewards.reading import Reading

#: What a judge is asked about an answer: `Judge.verdict` or `Judge.complete`.
Asked = Literal["verdict", "complete"]
#: Answers it: true or false, a number from 0 to 1, or a coroutine that comes to one of these.
Judging = Callable[[Reading, Asked], Any]


class JudgeChoice(ServerKeys, Protocol):
    """The keys that describe a judge, whether a run's or an environment's."""

    @property
    def judge(self) -> str: ...


@dataclass(frozen=True)
class JudgeEntry:
    """A judge as `run.py list` shows it.

    Attributes:
        served: ``build`` reads the keys ``judge_url``, ``judge_model`` and so on.
    """

    name: str
    summary: str
    reference: str
    build: Callable[[JudgeChoice], Judge]
    served: bool = False


JUDGES: dict[str, JudgeEntry] = {
    entry.name: entry
    for entry in (
        JudgeEntry("rule", "reads words; no model, no cost", "docs/algorithms/prs.md", lambda keys: RuleJudge()),
        JudgeEntry("openai", "a model behind the OpenAI API", "docs/algorithms/prs.md", OpenAIJudge.from_keys, True),
        JudgeEntry(
            "openai-prs",
            "a model behind the OpenAI API with the PRS paper's question: does the answer match?",
            "PRS and VSPO (arXiv 2512.07478), appendix B",
            PrsJudge.from_keys,
            True,
        ),
    )
}


#: Adds an entry of a plugin; raises `InputError` where its name is taken.
register = partial(plugins.register, "judge", JUDGES)


def make_judge(keys: JudgeChoice) -> Judge:
    """Build the judge that the key ``judge`` names."""
    check_judge(keys)
    return JUDGES[keys.judge].build(keys)


def check_judge(keys: JudgeChoice, prefix: str = "") -> None:
    """Refuse a judge that there is none of, and a server for one that asks none.

    Args:
        prefix: written before keys in messages, such as ``env.``.

    Raises:
        InputError: which, and of unknown names the nearest.
    """
    if keys.judge not in JUDGES:
        raise unknown(f"{prefix}judge", keys.judge, JUDGES)
    if keys.judge_url and not JUDGES[keys.judge].served:
        raise InputError(f"key '{prefix}judge_url' has no effect with {prefix}judge={keys.judge}, which asks no server")


@dataclass(frozen=True)
class FunctionJudge:
    name: str
    function: Judging

    @property
    def remote(self) -> bool:
        """See `Judge.remote`: a coroutine function waits."""
        return inspect.iscoroutinefunction(self.function)

    async def verdict(self, reading: Reading) -> float:
        return await self._judged(reading, "verdict")

    async def complete(self, reading: Reading) -> float:
        return await self._judged(reading, "complete")

    async def _judged(self, reading: Reading, asked: Asked) -> float:
        try:
            answer = self.function(reading, asked)
            score = float(await answer if inspect.iscoroutine(answer) else answer)
        except Exception as error:
            raise JudgeError(f"judge {self.name}: {type(error).__name__}: {error}") from error
        if not 0.0 <= score <= 1.0:
            raise JudgeError(f"judge {self.name} returned {score:g}, no number from 0 to 1")
        return score


def judge(name: str, summary: str) -> Callable[[Judging], Judging]:
    """Decorate a function that judges an answer: ``judge=name`` and ``env.judge=name`` ask it.

    It is given what the episode's text says, and what it is asked: ``verdict`` or ``complete``. One that raises makes
    the episode failed, as a judge's server does that does not answer.
    """

    def registered(function: Judging) -> Judging:
        made = FunctionJudge(name, function)
        register(JudgeEntry(name, summary, function.__module__, lambda keys: made))
        return function

    return registered
