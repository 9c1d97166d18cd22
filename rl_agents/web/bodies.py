"""Bodies of requests."""

from __future__ import annotations

import json
from typing import Any

from rl_agents.tools.strict_json import strict_json
from rl_agents.web.errors import bad_request


def json_object(body: bytes) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ApiError: 400, what is wrong with it.
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


def _read(text: str) -> Any:
    """Parse a body. Agents cut texts in the middle of a character (half a surrogate pair), or repeat a key."""
    try:
        return strict_json(text)
    except ValueError as error:
        try:
            mended = json.dumps(json.loads(text), ensure_ascii=False).encode(errors="replace").decode()
        except (ValueError, RecursionError):
            raise error from None
        return strict_json(mended)
