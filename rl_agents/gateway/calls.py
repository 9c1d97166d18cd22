"""Requests and answers in one form for all dialects.

A dialect (``chat_completions``, ``responses``, ``messages``) translates the JSON of a request into a `ModelCall`, and
`Start`, `Delta` and `ModelAnswer` into its own JSON or server-sent events.
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
    """A tool as its client defined it: its name, its namespace, and whether it is a custom tool that takes a text."""

    name: str
    custom: bool = False
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A request.

    Attributes:
        messages: the whole history in the form of `rl_agents.chat.messages`: text content, arguments as objects,
            thoughts as ``reasoning_content`` if the client sent them back.
        tools: offered to the model.
        max_tokens: the client's own limit; None: none.
        count: number of answers (``n``).
        stop: strings that end an answer.
        logprobs: number of likeliest tokens to return with each sampled one's log-probability; None: none of both.
        previous: `ModelAnswer.id` of the response that the messages follow (Responses API ``previous_response_id``,
            without the dialect's prefix); empty: none. A system message then replaces the response's own.
        params: sampling parameters and constraints (temperature, top_p, seed, tool_choice, response_format ...), as
            sent; see `rl_agents.gateway.answer_params`.
        ignored: parts of the request without effect, counted by name: unknown fields (of messages as
            ``messages.name``), tools that the provider runs (``tools.web_search``), images (``content.image``).
        forms: tools that are not plain functions, by their names in ``tools``.
        options: needed to write the answer (``include_usage``, ``store`` ...).
    """

    dialect: Dialect
    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    max_tokens: int | None = None
    stream: bool = False
    count: int = 1
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    previous: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    ignored: Excluded = field(default_factory=Counter)
    forms: Mapping[str, ToolForm] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A sampled token as text, its log-probability, and the likeliest tokens at its position with theirs."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """A tool call in an answer; ``arguments`` is JSON text."""

    id: str
    name: str
    arguments: str

    def text(self) -> str:
        text = json.loads(self.arguments or "{}").get("input")
        return text if isinstance(text, str) else self.arguments


@dataclass(frozen=True, slots=True)
class Start:
    """The first piece of a stream. Fields as in `ModelAnswer`."""

    id: str
    created: int
    label: str = ""
    prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Delta:
    """Newly sampled text of answer ``index``; tool calls follow complete, with the `ModelAnswer`.

    The deltas of an answer together are a prefix of its content and of its thoughts.

    Attributes:
        thoughts: reasoning, if the template marks it.
        logprobs: of the new tokens, if requested; their text may follow with a later delta.
    """

    index: int
    content: str = ""
    thoughts: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A complete answer.

    Attributes:
        call: id of the call in the store.
        id: for the client, without the dialect's prefix (``resp_`` ...); answers to one request share the first one's.
        created: seconds since 1970.
        label: of the weights (OpenAI's ``system_fingerprint``).
        stop: the string of `ModelCall.stop` that ended it; empty: none.
        thought_tokens: number of ``completion_tokens`` that were thoughts; 0 also if they are not counted.
        logprobs: of all sampled tokens; None: not requested.
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


#: The parts of a stream.
StreamPart = Start | Delta | ModelAnswer


@dataclass(frozen=True, slots=True)
class RequestIdentity:
    """Identifies a request, to distinguish a retry from a new one.

    Attributes:
        digest: SHA-256 of path and canonical body.
        retry: the SDK's count of retries (``x-stainless-retry-count``); -1: no such header.
    """

    digest: str
    retry: int = -1


#: ``keep``: the next prompt extends the exact earlier tokens, including thoughts, even if the client dropped them.
#: ``as_sent``: thoughts that the client dropped are not in the next prompt.
Reasoning = Literal["keep", "as_sent"]


@dataclass(frozen=True)
class GatewayLimits:
    """Limits of every session.

    Attributes:
        max_model_len: most tokens of prompt and response.
        max_response_tokens: most sampled tokens per call; fewer if the context is nearly full or the client asks for
            fewer.
        temperature, top_p: of all sampling, whatever clients ask for; log-probabilities are of this distribution.
        logprobs: which ones the gateway knows: ``none``, of the ``sampled`` tokens, or also of the likeliest (``top``).
        reasoning: see `Reasoning`.
        model_name: listed by ``/v1/models``; clients may send any other name, which is recorded.
        max_calls: answers per session; 0: no limit.
        request_timeout_s: seconds that one answer may take.
        close_wait_s: seconds that a session waits for running calls when it is closed.
    """

    max_model_len: int
    max_response_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    logprobs: Literal["none", "sampled", "top"] = "sampled"
    reasoning: Reasoning = "keep"
    model_name: str = "policy"
    max_calls: int = 0
    request_timeout_s: float = 300.0
    close_wait_s: float = 30.0
