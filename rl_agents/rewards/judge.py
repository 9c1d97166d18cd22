"""Judges: whether an answer is factual and free of hallucination, 0 or 1 (PRS, R_judge), and whether it is complete.

Where the environment names points that the answer has to state (long answers), both questions are asked apart: is
every statement supported by what the tools returned, and does the answer say what the reference says? These are the
two rates that the PRS paper reports. Elsewhere one question covers both.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

from rl_agents.rewards.grounding import conciseness, grounded_share, stated_share
from rl_agents.rewards.prs import normalize_answer
from rl_agents.rewards.reading import Reading
from rl_agents.tools.thoughts import read_thoughts
from rl_agents.web.model_server import SHOWN, ModelServer, ServerError

MAX_REPLY_TOKENS = 256
#: What a short answer may say besides a reference, for the rule.
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


#: Appendix B of the PRS paper word for word, and what it is about. The published text ends with the rating's name.
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
#: Replies: the first group of what says so is a 1.
YES_NO = re.compile(r"\W*(?:(yes)|no)\b", re.IGNORECASE)
RATING = re.compile(r"\W*(?:Evaluation Rating\W*)?(?:(match)|mismatch)\b", re.IGNORECASE)


class JudgeError(Exception):
    """No verdict could be had; the message names the judge and what it was asked."""


class Judge(Protocol):
    """Decides about one answer. Many are asked for at the same time, from any event loop."""

    @property
    def remote(self) -> bool:
        """Whether it waits for a server; else its coroutines wait for nothing (`rl_agents.background.at_once`)."""

    async def verdict(self, reading: Reading) -> float:
        """Return 1.0 for an answer without hallucination, else 0.0. With points, whether it is complete does not count.

        Raises:
            JudgeError: no verdict.
        """

    async def complete(self, reading: Reading) -> float:
        """Return 1.0 for an answer that states every point of ``reading.points``, else 0.0.

        Raises:
            JudgeError: no verdict.
        """


class RuleJudge:
    """Reads words; no model, no cost.

    With points, an answer is grounded when every sentence of it follows from a sentence of the evidence, and complete
    when every point follows from a sentence of it and it says little else (`rl_agents.rewards.grounding`). Without
    points, the words of a reference have to occur in it side by side and in order, with at most twelve others.
    """

    remote: ClassVar[bool] = False

    async def verdict(self, reading: Reading) -> float:
        if reading.points:
            return float(grounded_share(reading.answer, reading.evidence) == 1.0)
        answer = normalize_answer(reading.answer)
        references = map(normalize_answer, reading.references)
        return float(any(len(answer) <= len(r) + SURPLUS_WORDS and _contains(answer, r) for r in references))

    async def complete(self, reading: Reading) -> float:
        answer, points = reading.answer, reading.points
        return float(stated_share(answer, points) == conciseness(answer, points) == 1.0)


class ServerKeys(Protocol):
    """The keys that describe a judge behind a server, whether a run's, an environment's or a verifier's."""

    @property
    def judge_url(self) -> str: ...
    @property
    def judge_model(self) -> str: ...
    @property
    def judge_key_env(self) -> str: ...
    @property
    def judge_timeout_s(self) -> float: ...
    @property
    def judge_retries(self) -> int: ...
    @property
    def judge_concurrency(self) -> int: ...


@dataclass(frozen=True)
class OpenAIJudge:
    """A model behind an OpenAI-compatible server (``POST {url}/chat/completions``), asked for yes or no.

    Attributes:
        model: its name on the server.
        server: where it is, and how it is asked: bounds, retries, the key.
    """

    remote: ClassVar[bool] = True
    model: str
    server: ModelServer

    @classmethod
    def from_keys(cls, keys: ServerKeys) -> Self:
        """Build the judge that the keys ``judge_*`` describe."""
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
            about: what errors say that it was asked about.
            form: of a reply, with a group that only a 1 has.
            words: how errors call the two replies.

        Raises:
            JudgeError: no such reply.
        """
        reply = await self._reply(prompt, about)
        found = form.match(read_thoughts(reply).words)
        if not found:
            raise self._error(f"replied {reply[:SHOWN]!r}, neither {words}", about)
        return float(found[1] is not None)

    async def _reply(self, prompt: str, about: str) -> str:
        return str((await self._choice(prompt, about))["message"]["content"] or "")

    async def _choice(self, prompt: str, about: str, **more: Any) -> dict[str, Any]:
        """Return the first choice of a chat completion.

        Args:
            more: what the request says besides, such as ``logprobs``.
        """
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "max_completion_tokens": MAX_REPLY_TOKENS,
            **more,
        }
        try:
            reply = await self.server.post("/chat/completions", body)
        except ServerError as error:
            raise self._error(str(error), about) from None
        try:
            choice: dict[str, Any] = reply["choices"][0]
            choice["message"]["content"]
            return choice
        except (KeyError, IndexError, TypeError):
            raise self._error(f"no chat completion in {json.dumps(reply)[:SHOWN]!r}", about) from None

    def _error(self, problem: str, about: str) -> JudgeError:
        asked = " ".join(about.split())
        return JudgeError(f"{self.model} at {self.server.url}: {problem}; asked about: {asked[:SHOWN]}")


class PrsJudge(OpenAIJudge):
    """Asks what the PRS paper's judge is asked (appendix B): does the answer match the reference, and nothing else?

    The paper measures hallucinations too, with a prompt that it does not print.
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


def _contains(words: list[str], part: list[str]) -> bool:
    return bool(part) and any(words[i : i + len(part)] == part for i in range(len(words) - len(part) + 1))
