"""The APIs of agents' clients: OpenAI's Chat Completions and Responses, Anthropic's Messages.

Every dialect is a module that can ``read`` a request (an object of `rl_agents.tools.strict_json`) and write a ``whole``
answer, with a ``Writer`` of streams. ``read`` raises `ApiError` (400) for a required field that is missing, or a field
with a wrong type or an unsupported value.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

from starlette.responses import StreamingResponse

from rl_agents.gateway.calls import ModelCall, StreamPart
from rl_agents.gateway.dialects import chat_completions, messages, responses
from rl_agents.gateway.dialects.stream import events, primed
from rl_agents.web.errors import ApiError

__all__ = ["DIALECTS", "dialect_of", "error_body", "event_stream", "messages", "model_body", "models_body"]

#: The first parts of paths below ``/v1`` that both providers have, and of Anthropic's own; all others are OpenAI's.
SHARED, ANTHROPIC = ("models", "files"), ("messages", "complete", "organizations")
#: Most names of ignored fields in one response's header.
MAX_NAMES = 40

#: By the path of their requests.
DIALECTS: dict[str, ModuleType] = {module.PATH: module for module in (chat_completions, responses, messages)}


def dialect_of(path: str, headers: Mapping[str, str]) -> ModuleType:
    """Return the dialect of a path's errors; with a path of both providers, Anthropic's clients send a version."""
    found = re.match(r"(?:/s/[^/]+)?/v1/([^/]+)", path)
    if found and found[1] not in SHARED:
        return messages if found[1] in ANTHROPIC else DIALECTS.get(f"/v1/{found[1]}", chat_completions)
    return messages if "anthropic-version" in headers else chat_completions


def model_body(name: str, created: int) -> dict[str, Any]:
    """Describe a model for OpenAI's and Anthropic's clients; ``created``: seconds since 1970."""
    at = datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    openai = {"id": name, "object": "model", "created": created, "owned_by": "rl_agents"}
    return {**openai, "type": "model", "display_name": name, "created_at": at, "lifecycle": "active"}


def models_body(model: Mapping[str, Any]) -> dict[str, Any]:
    """List the one model of a server."""
    ends = {"first_id": model["id"], "last_id": model["id"]}
    return {"object": "list", "data": [model], "has_more": False, **ends}


def error_body(error: ApiError, path: str, headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the body of an error, given the request's path and headers (names in lower case)."""
    return messages.error(error) if dialect_of(path, headers) is messages else error.body()


async def event_stream(
    dialect: ModuleType, call: ModelCall, pieces: AsyncGenerator[StreamPart, None], headers: Mapping[str, str]
) -> StreamingResponse:
    """Return the response of a stream once its first piece is there; an earlier error is raised."""
    sent = events(dialect.Writer(call), await primed(pieces), call.count)
    own = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(sent, media_type="text/event-stream", headers={**own, **headers})


def ignored_header(call: ModelCall) -> dict[str, str]:
    """Return the response header that lists parts of the request without effect."""
    names = ", ".join(f"{name}={count}" for name, count in sorted((+call.ignored).items())[:MAX_NAMES])
    return {"x-ignored": names.encode("ascii", "replace").decode()} if names else {}
