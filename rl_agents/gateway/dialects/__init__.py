"""What agents' clients speak: OpenAI's chat completions and responses, Anthropic's messages.

Every dialect is a module of four functions: ``read`` a request (an object of `rl_agents.tools.strict_json`), write a
``whole`` answer, its ``events``, an ``error``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

from rl_agents.gateway.dialects import chat_completions, messages, responses
from rl_agents.gateway.dialects.stream import primed

__all__ = ["DIALECTS", "dialect_of", "model_body", "models_body", "primed"]

#: By the path of their requests.
DIALECTS: dict[str, ModuleType] = {module.PATH: module for module in (chat_completions, responses, messages)}


def dialect_of(path: str, headers: Mapping[str, str]) -> ModuleType:
    """Return who writes the errors of a path: Anthropic's clients name a version, wherever they ask.

    Args:
        headers: with names in lower case.
    """
    for start in (messages.PATH, responses.PATH, chat_completions.PATH):
        if path.rstrip("/").endswith(start) or f"{start}/" in path:
            return DIALECTS[start]
    return messages if "anthropic-version" in headers else chat_completions


def model_body(name: str, created: int) -> dict[str, Any]:
    """Describe a model to the clients of both companies; ``created``: seconds since 1970."""
    at = datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    openai = {"id": name, "object": "model", "created": created, "owned_by": "rl_agents"}
    return {**openai, "type": "model", "display_name": name, "created_at": at, "lifecycle": "active"}


def models_body(names: Sequence[str], created: int) -> dict[str, Any]:
    """List models to the clients of both companies."""
    ends = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
    data = [model_body(name, created) for name in names]
    return {"object": "list", "data": data, "has_more": False, **ends}
