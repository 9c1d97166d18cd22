"""Parameters of a request in any dialect that affect its answer, for gateways and servers.

A gateway samples from the policy as it is, since training needs the log-probabilities of its own distribution. So it
honors ``tool_choice: none`` and log-probabilities, and reports the others, which have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import ConfigDict, Field

from rl_agents.chat.messages import short
from rl_agents.gateway.calls import GatewayLimits, ModelCall
from rl_agents.web.bodies import Body, read_body, shown
from rl_agents.web.errors import bad_request

#: The only supported item of Responses' ``include``.
LOGPROBS = "message.output_text.logprobs"
#: Values that ask for nothing, where these are not only the empty ones.
USUAL: Mapping[str, tuple[Any, ...]] = {
    "parallel_tool_calls": (True,), "truncation": ("disabled",), "modalities": (["text"],), "seed": (),
    "repetition_penalty": (1,), "top_k": (0, -1), "response_format": ({"type": "text"},),
    "text.format": ({"type": "text"},),
}  # fmt: skip


class AnswerFields(Body):
    """Parameters that a gateway honors, at least in part."""

    model_config = ConfigDict(extra="allow", strict=True)
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=20)
    include: list[Any] = Field([])
    tool_choice: Any = None


def effective(call: ModelCall, limits: GatewayLimits) -> ModelCall:
    """Return a request as a gateway answers it, without the parts that have no effect, which are counted.

    Raises:
        ApiError: 400 for an invalid value.
    """
    fields = read_body(AnswerFields, call.params)
    choice, _, single = tool_choice(call, fields.tool_choice)
    top = fields.top_logprobs if shows_logprobs(call, fields) else None
    ignored = {"tool_choice": choice not in ("auto", "none"), "tool_choice.disable_parallel_tool_use": single}
    if top is not None and limits.logprobs == "none":
        ignored["logprobs"], top = True, None
    if top and limits.logprobs != "top":
        ignored["top_logprobs"], top = True, 0
    usual = {**USUAL, "temperature": (limits.temperature,), "top_p": (limits.top_p,)}
    for name, value in (fields.model_extra or {}).items():
        ignored[short(name)] = value not in usual.get(name, (0, "", [], {}))
    call.ignored.update(name for name, counts in ignored.items() if counts)
    return replace(call, tools=() if choice == "none" else call.tools, logprobs=top)


def shows_logprobs(call: ModelCall, fields: AnswerFields) -> bool:
    if call.dialect != "responses":
        if fields.top_logprobs and not fields.logprobs:
            raise bad_request("top_logprobs: only with logprobs=true", "top_logprobs")
        return fields.logprobs
    call.ignored.update(f"include.{short(item)}" for item in fields.include if item != LOGPROBS)
    return LOGPROBS in fields.include or fields.top_logprobs > 0


def tool_choice(call: ModelCall, value: Any) -> tuple[str, str, bool]:
    """Return ``auto``, ``none``, ``required`` or ``named``, the name, and whether only one call is allowed."""
    if value is None or isinstance(value, str):
        value = {"type": value or "auto"}
    if not isinstance(value, Mapping):
        value = {"type": None}
    single, kind = value.get("disable_parallel_tool_use") is True, value.get("type")
    if kind == "allowed_tools":  # all others are offered, too
        call.ignored["tool_choice.allowed_tools"] += 1
        kind = (value.get(kind) or value).get("mode")  # nested in Chat Completions, flat in Responses
    if kind in ("auto", "none", "required", "any"):
        return ("required" if kind == "any" else str(kind)), "", single
    body = value.get("function") or value.get("custom") or value
    name = body.get("name") if isinstance(body, Mapping) else None
    if kind in ("function", "tool", "custom") and isinstance(name, str):
        return "named", name, single
    if any(str(kind).startswith(name) for name in (tool.removeprefix("tools.") for tool in call.ignored)):
        call.ignored[f"tool_choice.{short(kind)}"] += 1  # a tool that the provider runs
        return "auto", "", single
    got = shown(dict(value))
    raise bad_request(f"tool_choice: auto, none, required or one function's name is needed (got {got})", "tool_choice")
