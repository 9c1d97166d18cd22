"""Requests as data classes that check themselves: OpenAI's chat API, agent sessions, the exchange of checkpoints.

Fields that the server does not know, or knows and cannot honour, are errors: an answer never pretends.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from rl_agents.chat.messages import read_message
from rl_agents.errors import nearest
from rl_agents.tools.calls import Tool, read_tools
from rl_agents.tools.strict_json import strict_json
from rl_agents.web.errors import ApiError, bad_request

MAX_MESSAGES = 1024
MAX_TOOLS = 128
MAX_STOPS = 4
MAX_STOP_CHARACTERS = 256
MAX_ACTION_CHARACTERS = 16_384

RequestT = TypeVar("RequestT", bound="Request")


class Request(BaseModel):
    """The base of all request bodies."""

    model_config = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)


class StreamOptions(Request):
    """How an answer is streamed."""

    include_usage: bool = False


class ResponseFormat(Request):
    """The form of an answer; only text."""

    type: Literal["text"]


class ChatRequest(Request):
    """``POST /v1/chat/completions``.

    Attributes:
        max_tokens: sampled tokens at most; None: what the context leaves. ``max_completion_tokens`` is its new name.
        messages: in our form (`rl_agents.chat.messages`): text content, arguments of calls as objects.
    """

    model: str
    messages: list[dict[str, Any]] = Field(min_length=1, max_length=MAX_MESSAGES)
    tools: tuple[Tool, ...] = ()
    tool_choice: Literal["auto", "none"] | None = None
    parallel_tool_calls: Literal[True] | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    n: int | None = Field(None, ge=1)
    stop: list[str] | None = Field(None, max_length=MAX_STOPS)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: Literal[0] | None = None
    presence_penalty: Literal[0] | None = None
    frequency_penalty: Literal[0] | None = None
    logit_bias: dict[str, float] | None = Field(None, max_length=0)
    response_format: ResponseFormat | None = None
    user: str | None = None

    @field_validator("messages", mode="before")
    @classmethod
    def _read_messages(cls, value: Any) -> Any:
        if not isinstance(value, list):
            raise ValueError("a list of messages is needed")
        messages = []
        for number, item in enumerate(value):
            try:
                messages.append(read_message(item))
            except ValueError as error:
                raise ValueError(f"message {number}: {error}") from None
        return messages

    @field_validator("tools", mode="before")
    @classmethod
    def _read_tools(cls, value: Any) -> Any:
        if isinstance(value, Sequence) and len(value) > MAX_TOOLS:
            raise ValueError(f"{len(value)} tools, {MAX_TOOLS} are allowed")
        return read_tools(value or ())

    @field_validator("stop", mode="before")
    @classmethod
    def _read_stop(cls, value: Any) -> Any:
        stops = [value] if isinstance(value, str) else value
        if isinstance(stops, list) and any(isinstance(s, str) and not 0 < len(s) <= MAX_STOP_CHARACTERS for s in stops):
            raise ValueError(f"a stop string has 1 to {MAX_STOP_CHARACTERS} characters")
        return stops

    @field_validator("presence_penalty", "frequency_penalty", mode="before")
    @classmethod
    def _read_penalty(cls, value: Any) -> Any:
        return 0 if value == 0.0 and not isinstance(value, bool) else value  # clients send 0.0, too

    @property
    def budget(self) -> int | None:
        """Sampled tokens at most, by either name."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def offered_tools(self) -> tuple[Tool, ...]:
        """The tools that the answer may call."""
        return () if self.tool_choice == "none" else self.tools


class SessionRequest(Request):
    """``POST /agent/sessions``.

    Attributes:
        env: environment; None: the run's own.
        options: its own keys, over the run's.
        task_id: a task of it; None: the one that ``seed`` chooses from ``split``.
        seed: fixes the task, where none is named, and all sampling.
        temperature: None: the run's ``eval_temperature``.
    """

    env: str | None = None
    options: dict[str, bool | int | float | str] = Field(default_factory=dict, max_length=32)
    task_id: str | None = Field(None, max_length=1024)
    split: Literal["train", "test"] = "test"
    seed: int = Field(0, ge=0, lt=2**63)
    temperature: float | None = Field(None, ge=0, le=2)


class StepRequest(Request):
    """``POST /agent/sessions/ID/step``: without ``action`` the agent plays, with it a person does."""

    action: str | None = Field(None, max_length=MAX_ACTION_CHARACTERS)


class CheckpointRequest(Request):
    """``POST /admin/checkpoint``: a folder on the server's side; None looks for the run's newest."""

    checkpoint: str | None = Field(None, max_length=4096)


def parse(kind: type[RequestT], body: bytes) -> RequestT:
    """Read a request's body; an empty one is ``{}``.

    Raises:
        ApiError: 400 with the first problem.
    """
    try:
        data = strict_json(body.decode("utf-8")) if body.strip() else {}
    except UnicodeDecodeError:
        raise bad_request("the body is not UTF-8", code="invalid_json") from None
    except ValueError as error:
        raise bad_request(f"the body: {error}", code="invalid_json") from None
    if not isinstance(data, dict):
        raise bad_request("the body is not a JSON object", code="invalid_json")
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise _first_problem(kind, error) from None


def _first_problem(kind: type[BaseModel], error: ValidationError) -> ApiError:
    problem = min(error.errors(), key=lambda item: item["type"] != "extra_forbidden")
    extra = problem["type"] == "extra_forbidden"
    # The location holds names of types, too; the client's own name stands last, whatever it looks like.
    known, own = (problem["loc"][:-1], problem["loc"][-1:]) if extra else (problem["loc"], ())
    path = [*(part for part in known if isinstance(part, int) or part.islower()), *own]
    name = ".".join(map(str, path)) or None
    if extra:
        fields = _nested(kind, path).model_fields
        shown = " ".join((name or "").split())[:80]
        return bad_request(f"unknown field '{shown}': {nearest(str(path[-1]), fields)}", name, "unknown_field")
    if problem["type"] == "missing":
        return bad_request(f"'{name}' is missing", name, "missing_field")
    message = problem["msg"].removeprefix("Value error, ")
    message = message if problem["type"] == "value_error" else f"{message} (got {_shown(problem['input'])})"
    return bad_request(f"{name}: {message[:1].lower()}{message[1:]}", name)


def _nested(kind: type[BaseModel], path: Sequence[int | str]) -> type[BaseModel]:
    """Return the model in which the last name of ``path`` was looked for."""
    for name in path[:-1]:
        annotation: Any = kind.model_fields[str(name)].annotation
        options = typing.get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
        kind = next(option for option in options if isinstance(option, type) and issubclass(option, BaseModel))
    return kind


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
