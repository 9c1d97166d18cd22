"""Judges: whether an answer is factual and free of hallucination, 0 or 1 (PRS, R_judge), and whether it is complete.

Where the environment names points that the answer has to state (long answers), both questions are asked apart: is
every statement supported by what the tools returned, and does the answer say what the reference says? These are the
two rates that the PRS paper reports. Elsewhere one question covers both.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from rl_agents.errors import InputError
from rl_agents.rewards.grounding import conciseness, grounded_share, stated_share
from rl_agents.rewards.prs import normalise_answer
from rl_agents.rewards.reading import Reading
from rl_agents.settings import Settings
from rl_agents.tools.thoughts import read_thoughts

MAX_REPLY_TOKENS = 256
#: Before the first retry; doubles with each.
RETRY_PAUSE_S = 0.5
SHOWN = 160
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


class JudgeError(Exception):
    """No verdict could be had; the message names the judge and what it was asked."""


class Judge(Protocol):
    """Decides about one answer. Called from several threads."""

    def verdict(self, reading: Reading) -> float:
        """Return 1.0 for an answer without hallucination, else 0.0. With points, whether it is complete is left out.

        Raises:
            JudgeError: no verdict.
        """
        ...

    def complete(self, reading: Reading) -> float:
        """Return 1.0 for an answer that states every point of ``reading.points``, else 0.0.

        Raises:
            JudgeError: no verdict.
        """
        ...


class RuleJudge:
    """Reads words; no model, no cost.

    With points, an answer is grounded when every sentence of it follows from a sentence of the evidence, and complete
    when every point follows from a sentence of it and it says little else (`rl_agents.rewards.grounding`). Without
    points, the words of a reference have to occur in it side by side and in order, with at most twelve others.
    """

    def verdict(self, reading: Reading) -> float:
        """See `Judge.verdict`."""
        if reading.points:
            return float(grounded_share(reading.answer, reading.evidence) == 1.0)
        answer = normalise_answer(reading.answer)
        references = map(normalise_answer, reading.references)
        return float(any(len(answer) <= len(r) + SURPLUS_WORDS and _contains(answer, r) for r in references))

    def complete(self, reading: Reading) -> float:
        """See `Judge.complete`."""
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


@dataclass(frozen=True)
class OpenAIJudge:
    """A model behind an OpenAI-compatible server (``POST {url}/chat/completions``), asked for yes or no.

    Attributes:
        url: up to and including ``/v1``.
        model: its name on the server.
        headers: of every request; the key's, where one is needed. Never shown.
        trust: an ``ssl.SSLContext``; slow to load, so all requests share it.
        timeout_s: of a whole request, from the connection to the last byte of the reply.
        retries: further attempts after a timeout, a lost connection, or HTTP 429 or 5xx.
    """

    url: str
    model: str
    headers: Mapping[str, str] = field(repr=False, hash=False)
    trust: Any = field(repr=False, compare=False)
    timeout_s: float
    retries: int

    @classmethod
    def from_keys(cls, keys: ServerKeys) -> Self:
        """Build the judge that the keys ``judge_*`` describe.

        Raises:
            InputError: see `connect`.
        """
        return cls.connect(
            keys.judge_url,
            keys.judge_model,
            key_env=keys.judge_key_env,
            timeout_s=keys.judge_timeout_s,
            retries=keys.judge_retries,
        )

    @classmethod
    def connect(cls, url: str, model: str, *, key_env: str, timeout_s: float, retries: int) -> Self:
        """Build the judge; the key is read from the environment variable ``key_env`` and only ever sent.

        Raises:
            InputError: httpx is not installed, or the variable with the key is not set.
        """
        try:
            import httpx
        except ImportError as error:
            raise InputError("judge=openai needs httpx: pip install httpx") from error
        headers = {}
        if key_env:
            if not os.environ.get(key_env):
                raise InputError(f"judge_key_env={key_env}: the environment variable is not set")
            headers["Authorization"] = f"Bearer {os.environ[key_env]}"
        return cls(url.rstrip("/"), model, headers, httpx.create_ssl_context(), timeout_s, retries)

    def verdict(self, reading: Reading) -> float:
        """See `Judge.verdict`."""
        return self.ask(prompt(reading), about=f"{reading.question} -> {reading.answer}")

    def complete(self, reading: Reading) -> float:
        """See `Judge.complete`."""
        return self.ask(_filled(MATCH_PROMPT, reading), about=f"{reading.question} -> {reading.answer}")

    def ask(self, prompt: str, about: str) -> float:
        """Return 1.0 for a reply that begins with yes, 0.0 for no.

        Args:
            about: what errors say that it was asked about.

        Raises:
            JudgeError: no such reply.
        """
        reply = self._reply(prompt, about)
        found = re.match(r"\W*(yes|no)\b", read_thoughts(reply).words, re.IGNORECASE)
        if not found:
            raise self._error(f"replied {reply[:SHOWN]!r}, neither yes nor no", about)
        return float(found[1].lower() == "yes")

    def _reply(self, prompt: str, about: str) -> str:
        """Return the reply, after as many attempts as allowed."""
        return str(self._choice(prompt, about)["message"]["content"] or "")

    def _choice(self, prompt: str, about: str, **more: Any) -> dict[str, Any]:
        """Return the first choice of a chat completion, after as many attempts as allowed.

        Args:
            more: what the request says besides, such as ``logprobs``.
        """
        for attempt in range(self.retries + 1):
            if attempt:
                time.sleep(RETRY_PAUSE_S * 2 ** (attempt - 1))
            try:
                return self._request(prompt, about, more)
            except _Transient as error:
                problem = str(error)
        raise self._error(f"{problem} ({self.retries + 1} attempts)", about)

    def _request(self, prompt: str, about: str, more: Mapping[str, Any]) -> dict[str, Any]:
        import httpx

        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "max_completion_tokens": MAX_REPLY_TOKENS,
            **more,
        }
        try:
            response = _within(self.timeout_s, self._post(body))
        except TimeoutError:
            raise _Transient(f"no answer within {self.timeout_s:g} s") from None
        except httpx.HTTPError as error:
            raise _Transient(f"{type(error).__name__}: {error}") from None
        if response.status_code == 429 or response.status_code >= 500:
            raise _Transient(f"HTTP {response.status_code}: {response.text[:SHOWN]}")
        if response.status_code != 200:
            raise self._error(f"HTTP {response.status_code}: {response.text[:SHOWN]}", about)
        try:
            choice: dict[str, Any] = response.json()["choices"][0]
            choice["message"]["content"]
            return choice
        except (ValueError, KeyError, IndexError, TypeError):
            raise self._error(f"no chat completion in {response.text[:SHOWN]!r}", about) from None

    async def _post(self, body: Mapping[str, Any]) -> Any:
        import httpx

        async with httpx.AsyncClient(headers=self.headers, verify=self.trust, timeout=None) as client:
            return await client.post(f"{self.url}/chat/completions", json=body)

    def _error(self, problem: str, about: str) -> JudgeError:
        asked = " ".join(about.split())
        return JudgeError(f"{self.model} at {self.url}: {problem}; asked about: {asked[:SHOWN]}")


def _within(seconds: float, work: Coroutine[Any, Any, Any]) -> Any:
    """Return what ``work`` returns.

    A client's own timeouts bound each read, and a server that sends a byte now and then meets them for ever. So the
    request runs in an event loop of its own, which drops it when its time is up.

    Raises:
        TimeoutError: it took longer.
    """
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(asyncio.wait_for(work, seconds))
    finally:
        loop.close()


class _Transient(Exception):
    """Worth another attempt."""


def prompt(reading: Reading) -> str:
    """Write what a judging model reads."""
    return _filled(GROUNDED_PROMPT if reading.points else PROMPT, reading)


def _filled(template: str, reading: Reading) -> str:
    return template.format(
        question=reading.question,
        evidence="\n".join(reading.evidence) or "(nothing)",
        references="\n".join(reading.references) or "(none given)",
        points="\n".join(f"- {point}" for point in reading.points),
        answer=reading.answer,
    )


def make_judge(settings: Settings) -> Judge:
    """Build the judge that the key ``judge`` names.

    Raises:
        InputError: see `OpenAIJudge.connect`.
    """
    return RuleJudge() if settings.judge == "rule" else OpenAIJudge.from_keys(settings)


def _contains(words: list[str], part: list[str]) -> bool:
    return bool(part) and any(words[i : i + len(part)] == part for i in range(len(words) - len(part) + 1))
