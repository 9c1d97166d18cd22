"""Request bodies: strict JSON, checked by pydantic models; the first problem is one line that names the field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from rl_agents.errors import nearest
from rl_agents.tools.strict_json import strict_json
from rl_agents.web.errors import ApiError, bad_request

BodyT = TypeVar("BodyT", bound="Body")


class Body(BaseModel):
    """The base of all bodies. Unknown fields are refused, unless a body sets ``extra="allow"``."""

    model_config = ConfigDict(extra="forbid", strict=True)


def read_body(kind: type[BodyT], data: Any) -> BodyT:
    """Check a JSON value; a field that is null counts as missing.

    Raises:
        ApiError: 400 with the first problem.
    """
    if not isinstance(data, Mapping):
        raise bad_request("the body is not a JSON object", code="invalid_json")
    try:
        return kind.model_validate({name: value for name, value in data.items() if value is not None})
    except ValidationError as error:
        raise _first_problem(kind, error) from None


def json_object(body: bytes) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ApiError: 400 with the problem.
    """
    try:
        data = _read(body.decode())
    except UnicodeDecodeError as error:
        raise bad_request(f"the body is not UTF-8 (byte {error.start})", code="invalid_json") from None
    except ValueError as error:
        raise bad_request(f"the body is {error}", code="invalid_json") from None
    if not isinstance(data, dict):
        raise bad_request("the body is not a JSON object", code="invalid_json")
    return data


def shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _read(text: str) -> Any:
    """Parse a body. Some agents send half a surrogate pair (a text cut inside a character) or repeat a key."""
    try:
        return strict_json(text)
    except ValueError as error:
        try:
            mended = json.dumps(json.loads(text), ensure_ascii=False).encode(errors="replace").decode()
        except (ValueError, RecursionError):
            raise error from None
        return strict_json(mended)


def _first_problem(kind: type[BaseModel], error: ValidationError) -> ApiError:
    problem = min(error.errors(), key=lambda item: item["type"] != "extra_forbidden")
    field = str(problem["loc"][0])
    if problem["type"] == "extra_forbidden":
        name = " ".join(field.split())[:80]
        return bad_request(f"unknown field '{name}': {nearest(field, kind.model_fields)}", field, "unknown_field")
    if problem["type"] == "missing":
        return bad_request(f"'{field}' is missing", field, "missing_field")
    place = ".".join(str(part) for part in problem["loc"] if part == field or isinstance(part, int))
    message = problem["msg"].removeprefix("Value error, ")
    return bad_request(f"{place}: {message[:1].lower()}{message[1:]} (got {shown(problem['input'])})", field)
