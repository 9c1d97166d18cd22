"""Requests as data classes that check themselves: agent sessions, the exchange of checkpoints.

Fields that the server does not know, or knows and cannot honor, are errors: an answer never pretends.
"""

from __future__ import annotations

from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rl_agents.errors import nearest
from rl_agents.gateway.dialects.fields import shown
from rl_agents.web.bodies import json_object
from rl_agents.web.errors import ApiError, bad_request

MAX_ACTION_CHARACTERS = 16_384

RequestT = TypeVar("RequestT", bound="Request")


class Request(BaseModel):
    """The base of all request bodies."""

    model_config = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)


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
    data = json_object(body) if body.strip() else {}
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
        known_as = " ".join((name or "").split())[:80]
        return bad_request(
            f"unknown field '{known_as}': {nearest(str(path[-1]), kind.model_fields)}", name, "unknown_field"
        )
    if problem["type"] == "missing":
        return bad_request(f"'{name}' is missing", name, "missing_field")
    message = problem["msg"].removeprefix("Value error, ")
    message = message if problem["type"] == "value_error" else f"{message} (got {shown(problem['input'])})"
    return bad_request(f"{name}: {message[:1].lower()}{message[1:]}", name)
