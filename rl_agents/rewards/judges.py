"""Judges decide if an answer is factual and free of hallucination (PRS, R_judge: 0 or 1), and if it is complete.

If the environment lists points that the answer must state (long answers), the two questions are asked separately: do
the tools' results support every statement, and does the answer state what the reference states? The PRS paper reports
these two rates. Otherwise one question covers both.

``judge`` of a run and ``env.judge`` of long_form_qa choose a judge by name.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Protocol, Self

from rl_agents import plugins
from rl_agents.background import settled
from rl_agents.errors import InputError, described, number_from, unknown
from rl_agents.rewards.grounding import conciseness, grounded_share, stated_share
from rl_agents.rewards.reading import Reading
from rl_agents.rewards.wording import normalized
from rl_agents.time_limits import CallTimeout, call_anywhere, no_answer
from rl_agents.tools.thoughts import read_thoughts
from rl_agents.web.model_server import SHOWN, ModelServer, ServerError

MAX_REPLY_TOKENS = 256
#: Most words of a short answer in addition to a reference, for the rule.
SURPLUS_WORDS = 12

PROMPT = """\
You grade the answer of an agent.

[Question]
{question}

[What the agent's tools returned]
{evidence}

[Reference answers, any of them is right]
{references}

[The agent's answer]
{answer}

Is the answer consistent with a reference answer, and free of statements that neither the references nor the tools \
support? Reply with one word, yes or no."""


GROUNDED_PROMPT = """\
You check the answer of an agent that had to answer from documents alone.

[Question]
{question}

[Documents that the agent read]
{evidence}

[The agent's answer]
{answer}

Is every statement of the answer supported by these documents, so that nothing in it is made up or contradicts them? \
Whether the answer is complete does not matter. Reply with one word, yes or no."""

MATCH_PROMPT = """\
You compare the answer of an agent with a reference answer.

[Question]
{question}

[Reference answer]
{references}

[Points that the answer has to state]
{points}

[The agent's answer]
{answer}

Does the answer state every one of these points, in whatever words and order, and contradict none of them? Reply with \
one word, yes or no."""


#: Appendix B of the PRS paper word for word, followed by the data. The published text ends with the rating's name.
PRS_PROMPT = """\
Role and Background
You are an experienced AI capability evaluation expert, with rigorous logic and keen observation skills, highly \
adept at assessing whether AI responses meet the requirements.
Now, an online travel platform has launched a Q&A Agent that provides answers to merchants questions.
Your Task
You will receive the following information:
[Merchants Question]: The question raised by the merchant.
[Q&A Agents Response]: The answer provided by the Q&A Agent.
[Reference Answer]: The standard answer corresponding to the merchants question.
You need to, strictly based on the [Evaluation Criteria], give an evaluation of the [Q&A Agents Response].
You must strictly follow the internal step-by-step thinking process, comprehensively analyze and evaluate the [Q&A \
Agents Response] based on the provided relevant information, and output the evaluation result in the specified \
format.
Your Internal Thinking Process (Please carry out internally, do not output)
Follow the steps below in your mind, analyzing step by step:
Analyze [Evaluation Criteria]
Carefully read the Evaluation Criteria, understand the core evaluation question and the requirements of each \
criterion.
Analyze [Merchants Question]
Analyze and understand the Merchants Question. Some questions may contain multiple sub-questions, others may include \
images (in URL form). If there are multiple questions, you need to understand the meaning of each.
Analyze [Q&A Agents Response]
Analyze and understand the Q&A Agents Response. If the Merchants Question contains multiple sub-questions, the Q&A \
Agents Response may contain multiple answers. You need to understand each answer, extract the information inside, \
determine which question it answers, and check if the model responded to all the questions.
Analyze [Reference Answer]
Analyze and understand the Reference Answer. If the Merchants Question contains multiple sub-questions, the \
Reference Answer will have answers to each question, and sometimes the order may differ from the order of questions \
in the Merchants Question. You need to first understand each answer, extract the information inside, match it with \
the corresponding question, and know the reference answer for each.
Perform Evaluation
Based on the above analysis results, use the [Evaluation Criteria] and [Reference Answer] to analyze and evaluate \
the [Q&A Agents Response].
Evaluation Criteria
Core evaluation question: Does the [Q&A Agents Response] match the [Reference Answer]?
Evaluation criteria:
Match: The Agents response must be semantically consistent with the Reference Answer. If the Merchants Question \
contains multiple sub-questions, the Q&A Agents Response must include an answer to each question, and each must be \
semantically consistent with the corresponding Reference Answer.
Mismatch: If the above "Match" criterion is not met, then it is judged as "Mismatch". That is, the Q&A Agents \
Response has significant deviations from the Reference Answer. For example, when the merchant asks multiple \
questions, the Q&A Agents Response only answers some of them, etc.
Output Format Requirement
You must strictly follow the format below when outputting, and directly provide the evaluation rating without any \
extra explanation or comments.
<Evaluation Rating>: Match or Mismatch

[Merchants Question]: {question}
[Q&A Agents Response]: {answer}
[Reference Answer]: {references}"""
#: Forms of replies; only a reply that means 1 has the first group.
YES_NO = re.compile(r"\W*(?:(yes)|no)\b", re.IGNORECASE)
RATING = re.compile(r"\W*(?:Evaluation Rating\W*)?(?:(match)|mismatch)\b", re.IGNORECASE)


class JudgeError(Exception):
    """There is no verdict; the message names the judge and its question."""


class Judge(Protocol):
    """Judges single answers. Called concurrently, from any event loop."""

    @property
    def remote(self) -> bool:
        """Whether it waits for a server; if not, its coroutines never wait (`rl_agents.background.at_once`)."""

    async def verdict(self, reading: Reading) -> float:
        """Return 1.0 for an answer without hallucination, else 0.0. With points, completeness does not count.

        Raises:
            JudgeError: no verdict.
        """

    async def complete(self, reading: Reading) -> float:
        """Return 1.0 if the answer states every point of ``reading.points``, else 0.0.

        Raises:
            JudgeError: no verdict.
        """


class RuleJudge:
    """Compares words, without a model.

    With points, an answer is grounded if every sentence follows from a sentence of the evidence. It is complete if
    every point follows from one of its sentences and it has few other words (`rl_agents.rewards.grounding`). Without
    points, the words of a reference must occur in it, adjacent and in order, with at most twelve others.
    """

    remote: ClassVar[bool] = False

    async def verdict(self, reading: Reading) -> float:
        if reading.points:
            return float(grounded_share(reading.answer, reading.evidence) == 1.0)
        answer = normalized(reading.answer).split()
        references = [normalized(reference).split() for reference in reading.references]
        return float(any(len(answer) <= len(r) + SURPLUS_WORDS and _contains(answer, r) for r in references))

    async def complete(self, reading: Reading) -> float:
        answer, points = reading.answer, reading.points
        return float(stated_share(answer, points) == conciseness(answer, points) == 1.0)


def _contains(words: list[str], part: list[str]) -> bool:
    return bool(part) and any(words[i : i + len(part)] == part for i in range(len(words) - len(part) + 1))


@dataclass(frozen=True)
class OpenAIJudge:
    """A model behind an OpenAI-compatible server (``POST {url}/chat/completions``), asked for yes or no.

    Attributes:
        model: its name on the server.
        server: address, limits, retries and key.
    """

    remote: ClassVar[bool] = True
    model: str
    server: ModelServer

    @classmethod
    def from_keys(cls, keys: Any) -> Self:
        """Build the judge that the keys ``judge_url``, ``judge_model`` and so on describe.

        Raises:
            InputError: the environment variable of the API key is not set.
        """
        server = ModelServer.connect(
            keys.judge_url,
            key_env=keys.judge_key_env,
            timeout_s=keys.judge_timeout_s,
            retries=keys.judge_retries,
            concurrency=keys.judge_concurrency,
        )
        return cls(keys.judge_model, server)

    async def verdict(self, reading: Reading) -> float:
        return await self.ask(prompt(reading), about=f"{reading.question} -> {reading.answer}")

    async def complete(self, reading: Reading) -> float:
        return await self.ask(_filled(MATCH_PROMPT, reading), about=f"{reading.question} -> {reading.answer}")

    async def ask(self, prompt: str, about: str, form: re.Pattern[str] = YES_NO, words: str = "yes nor no") -> float:
        """Return 1.0 for a reply that begins with yes, 0.0 for no.

        Args:
            about: the subject of the question, for errors.
            form: of a reply, with a group that only a 1 has.
            words: the two replies, for errors.

        Raises:
            JudgeError: no such reply.
        """
        reply = await self._reply(prompt, about)
        found = form.match(read_thoughts(reply).words)
        if not found:
            raise self._error(f"replied {reply[:SHOWN]!r}, neither {words}", about)
        return float(found[1] is not None)

    async def _reply(self, prompt: str, about: str) -> str:
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "max_completion_tokens": MAX_REPLY_TOKENS,
        }
        try:
            reply = await self.server.post("/chat/completions", body)
        except ServerError as error:
            raise self._error(str(error), about) from None
        try:
            return str(reply["choices"][0]["message"]["content"] or "")
        except (KeyError, IndexError, TypeError):
            raise self._error(f"no chat completion in {json.dumps(reply)[:SHOWN]!r}", about) from None

    def _error(self, problem: str, about: str) -> JudgeError:
        asked = " ".join(about.split())
        return JudgeError(f"{self.model} at {self.server.url}: {problem}; asked about: {asked[:SHOWN]}")


class PrsJudge(OpenAIJudge):
    """Asks only if the answer matches the reference, as the PRS paper's judge does (appendix B).

    The paper also measures hallucinations, with a prompt that it does not print.
    """

    async def verdict(self, reading: Reading) -> float:
        about = f"{reading.question} -> {reading.answer}"
        return await self.ask(_filled(PRS_PROMPT, reading), about, RATING, "Match nor Mismatch")

    async def complete(self, reading: Reading) -> float:
        return await self.verdict(reading)


def prompt(reading: Reading) -> str:
    return _filled(GROUNDED_PROMPT if reading.points else PROMPT, reading)


def _filled(template: str, reading: Reading) -> str:
    return template.format(
        question=reading.question,
        evidence="\n".join(reading.evidence) or "(nothing)",
        references="\n".join(reading.references) or "(none given)",
        points="\n".join(f"- {point}" for point in reading.points),
        answer=reading.answer,
    )


JUDGES: dict[str, plugins.Entry] = {
    entry.name: entry
    for entry in (
        plugins.Entry("rule", "compares words, without a model", "docs/algorithms/prs.md", lambda keys: RuleJudge()),
        plugins.Entry("openai", "a model behind the OpenAI API", "docs/algorithms/prs.md", OpenAIJudge.from_keys, True),
        plugins.Entry(
            "openai-prs",
            "a model behind the OpenAI API with the PRS paper's question: does the answer match?",
            "PRS and VSPO (arXiv 2512.07478), appendix B",
            PrsJudge.from_keys,
            True,
        ),
    )
}


#: Add a plugin's entry; raises `InputError` if its name is taken.
register = partial(plugins.register, "judge", JUDGES)


def make_judge(keys: Any) -> Judge:
    check_judge(keys)
    built: Judge = JUDGES[keys.judge].build(keys)
    return built


def check_judge(keys: Any, prefix: str = "") -> None:
    """Check the name of the judge, and that it has a server if and only if it needs one.

    Args:
        prefix: written before keys in messages, such as ``env.``.

    Raises:
        InputError: an unknown name (the nearest is offered), a missing server, or a server without effect.
    """
    if keys.judge not in JUDGES:
        raise unknown(f"{prefix}judge", keys.judge, JUDGES)
    if keys.judge_url and not JUDGES[keys.judge].served:
        raise InputError(f"key '{prefix}judge_url' has no effect with {prefix}judge={keys.judge}, which asks no server")
    for name in ("judge_url", "judge_model"):
        if JUDGES[keys.judge].served and not getattr(keys, name):
            raise InputError(f"{prefix}judge={keys.judge} needs {prefix}{name}")


#: The question about an answer: `Judge.verdict` or `Judge.complete`.
JudgeQuestion = Literal["verdict", "complete"]
#: Returns true or false, a number from 0 to 1, or a coroutine that returns one of these.
Judging = Callable[[Reading, JudgeQuestion], Any]


@dataclass(frozen=True)
class FunctionJudge:
    name: str
    function: Judging
    timeout_s: float = 0.0

    @property
    def remote(self) -> bool:
        """See `Judge.remote`: a coroutine function waits."""
        return inspect.iscoroutinefunction(self.function)

    async def verdict(self, reading: Reading) -> float:
        return await self._judged(reading, "verdict")

    async def complete(self, reading: Reading) -> float:
        return await self._judged(reading, "complete")

    async def _judged(self, reading: Reading, asked: JudgeQuestion) -> float:
        try:
            if self.remote:
                async with asyncio.timeout(self.timeout_s or None) as limit:
                    answer = await self.function(reading, asked)
            else:
                answer = call_anywhere(self.timeout_s, lambda: settled(self.function(reading, asked)))
            return number_from(self.function, answer, 0, 1)
        except (Exception, CallTimeout) as error:
            if isinstance(error, CallTimeout) or (self.remote and limit.expired()):
                error = no_answer(self.function, self.timeout_s, "judge_timeout_s")
            raise JudgeError(f"judge {self.name}: {described(error)}") from error


def judge(name: str, summary: str) -> Callable[[Judging], Judging]:
    """Decorate a function that judges an answer: ``judge=name`` and ``env.judge=name`` call it.

    Its arguments are the reading of the episode, and the question: ``verdict`` or ``complete``. If it raises an error,
    the episode fails, as with a judge's server that does not answer.
    """
    return plugins.decorator(
        "judge", JUDGES, name, summary, lambda function, keys: FunctionJudge(name, function, keys.judge_timeout_s)
    )
