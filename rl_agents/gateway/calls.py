"""What agents ask a gateway and what it answers, in one form for all dialects.

A dialect (``chat_completions``, ``responses``, ``messages``) is a pair of pure translations: a request's JSON into a
`ModelCall`, and `Start`, `Delta` and `ModelAnswer` into the dialect's JSON or its server-sent events.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rl_agents.chat.messages import Excluded, Message
from rl_agents.tools.calls import Tool

Dialect = Literal["chat_completions", "responses", "messages"]
Finish = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class ToolForm:
    """How a client knows a tool: by a name of its own, in a namespace, as a custom tool that takes a text."""

    name: str
    custom: bool = False
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A request.

    Attributes:
        messages: the whole history in our form (`rl_agents.chat.messages`): text content, arguments as objects,
            thoughts as ``reasoning_content`` where the client sent them back.
        tools: what the answer may call.
        max_tokens: the client's own limit; None: none.
        count: answers wanted (``n``).
        stop: strings that end an answer.
        previous: `ModelAnswer.id` of the response that the messages follow (Responses API ``previous_response_id``,
            without the dialect's prefix); empty: none. A system message then replaces that response's own.
        params: sampling parameters and constraints that training overrides or does not enforce (temperature, top_p,
            seed, tool_choice, response_format ...), as the client sent them.
        ignored: what of the request has no bearing on the answer, counted by name: unknown fields (of messages as
            ``messages.name``), tools that the provider would run (``tools.web_search``), images (``content.image``).
        forms: how calls of those tools are written that are no plain functions, by their names in ``tools``.
        options: what the dialect needs again when it writes the answer (``include_usage``, ``store`` ...).
    """

    dialect: Dialect
    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    max_tokens: int | None = None
    stream: bool = False
    count: int = 1
    stop: tuple[str, ...] = ()
    previous: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    ignored: Excluded = field(default_factory=Counter)
    forms: Mapping[str, ToolForm] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A sampled token as text, its log-probability, and the likeliest tokens in its place with theirs."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """A tool call in an answer; ``arguments`` is JSON text, as every dialect's clients parse it."""

    id: str
    name: str
    arguments: str

    def text(self) -> str:
        text = json.loads(self.arguments or "{}").get("input")
        return text if isinstance(text, str) else self.arguments


@dataclass(frozen=True, slots=True)
class Start:
    """The first piece of a stream: what a client gets before the first word. Fields as in `ModelAnswer`."""

    id: str
    created: int
    label: str = ""
    prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Delta:
    """Text of answer ``index`` that has just been sampled; tool calls come whole, with the `ModelAnswer`.

    The deltas of an answer are together a beginning of its content and of its thoughts.

    Attributes:
        content: words for the reader.
        thoughts: reasoning, where the template marks it.
        logprobs: of the tokens sampled meanwhile, where they are shown; its text may come with a later delta.
    """

    index: int
    content: str = ""
    thoughts: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A whole answer.

    Attributes:
        call: id of the call in the pool; ``id`` is what the client gets, after the dialect's prefix (``resp_`` ...).
            Answers to one call (``count``) share the first one's.
        created: seconds since 1970.
        label: of the weights that answered (OpenAI's ``system_fingerprint``).
        stop: the string of `ModelCall.stop` that ended it; empty: none did.
        thought_tokens: how many of the ``completion_tokens`` were thoughts; 0 also where they are not counted.
        logprobs: of all sampled tokens; None: they are not shown (the gateway's clients get none).
    """

    index: int
    call: int
    id: str
    content: str
    thoughts: str
    tool_calls: tuple[AnsweredCall, ...]
    finish: Finish
    prompt_tokens: int
    completion_tokens: int
    created: int
    label: str
    stop: str = ""
    thought_tokens: int = 0
    logprobs: tuple[TokenLogprob, ...] | None = None


#: What a stream consists of.
Piece = Start | Delta | ModelAnswer


@dataclass(frozen=True, slots=True)
class Sent:
    """How a request came, to tell a retry from a new question.

    Attributes:
        digest: SHA-256 of path and canonical body.
        retry: the SDK's count of retries (``x-stainless-retry-count``); -1: no such header.
    """

    digest: str
    retry: int = -1


#: ``keep``: the next prompt extends what the model really saw, its thoughts included, whatever the client sent back.
#: ``as_sent``: where the client dropped the thoughts, the model does not see them again either.
Reasoning = Literal["keep", "as_sent"]


@dataclass(frozen=True)
class GatewayLimits:
    """Limits of every session.

    Attributes:
        max_model_len: prompt and response tokens at most.
        max_response_tokens: sampled tokens per call at most; less where the context is nearly full or the client asks
            for less.
        temperature, top_p: of all sampling, whatever clients ask for; log-probabilities are of this distribution.
        reasoning: see `Reasoning`.
        model_name: what ``/v1/models`` lists; clients may send any other name, which is recorded.
        max_calls: answers per session; 0: no limit.
        request_timeout_s: seconds that one answer may take.
        close_wait_s: seconds for which a session that is closed waits for its calls under way.
    """

    max_model_len: int
    max_response_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    reasoning: Reasoning = "keep"
    model_name: str = "policy"
    max_calls: int = 0
    request_timeout_s: float = 300.0
    close_wait_s: float = 30.0

    def __post_init__(self) -> None:
        if self.reasoning not in ("keep", "as_sent"):
            raise ValueError(f"reasoning={self.reasoning!r}; valid: keep, as_sent")
        if self.max_response_tokens < 1 or self.max_model_len < 2:
            raise ValueError("max_response_tokens must be >= 1 and max_model_len >= 2")
