"""How a request wants its answer, in any dialect: honored, refused where it cannot be, or counted as ignored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rl_agents.chat.messages import short
from rl_agents.data.tasks import step_seed
from rl_agents.errors import nearest
from rl_agents.gateway.calls import ModelCall
from rl_agents.gateway.dialects.fields import Fields, shown
from rl_agents.inference.base import Extras, Sampling
from rl_agents.serving.guided_decoding import ANY_OBJECT, Structure, check_schema
from rl_agents.tools.calls import Tool
from rl_agents.web.errors import bad_request

MAX_TOP_LOGPROBS = 20
MAX_BIASES = 300
#: The only item of Responses' ``include`` that an answer can have.
LOGPROBS = "message.output_text.logprobs"
PLAIN = Extras()
NO_STRUCTURE = "the torch engine does not constrain what it samples; serve with engine=vllm"
NO_EXTRAS = "the torch engine samples from the policy as it is; serve with engine=vllm"


@dataclass(frozen=True)
class Wishes:
    """How to answer a request.

    Attributes:
        tools: what the prompt offers; empty with ``tool_choice: none``.
        structure: what the answer must look like; None: any text.
        logprobs: the log-probabilities are shown.
        extras: see `Extras`; its ``structure`` and ``adapter`` are not filled in yet.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    tools: tuple[Tool, ...] = ()
    structure: Structure | None = None
    logprobs: bool = False
    extras: Extras = PLAIN

    def sampling(
        self, budget: int, stop_token_ids: tuple[int, ...], index: int, tag: str = "", adapter: str = ""
    ) -> Sampling:
        """Return how to sample choice ``index``: every one has a stream of its own, the first the seed's itself.

        Args:
            tag: what `Structure.tag` has made of ``structure``.
            adapter: see `Extras`.
        """
        extras = replace(self.extras, structure=tag, adapter=adapter)
        seed = self.seed if self.seed is None or index == 0 else step_seed(self.seed % 2**63, index)
        asked = extras if extras != PLAIN else None
        return Sampling(budget, self.temperature, self.top_p, stop_token_ids, seed, asked)


def read_wishes(call: ModelCall) -> tuple[ModelCall, Wishes]:
    """Return a request with what an answer says of its sampling, and the request's wishes.

    Wishes that no model here can be held to (an effort, a verbosity ...) are added to `ModelCall.ignored`.

    Raises:
        ApiError: 400 for a value that is wrong, or for a response that is not kept.
    """
    if call.previous:
        why = "responses are not kept here; send the whole history as input"
        raise bad_request(f"previous_response_id: {why}", "previous_response_id", "unsupported_value")
    wishes = _read(call)
    return replace(call, options={**call.options, "temperature": wishes.temperature, "top_p": wishes.top_p}), wishes


def check_engine(wishes: Wishes, kind: str) -> None:
    """Refuse what the engine cannot do.

    Raises:
        ApiError: 400, what and what to do about it.
    """
    if kind == "vllm":
        return
    if wishes.structure is not None:
        form = wishes.structure
        field = "response_format" if form.schema is not None else "tool_choice" if form.must_call else "tools"
        raise bad_request(f"{field}: {NO_STRUCTURE}", field, "unsupported_value")
    for name in Extras.__dataclass_fields__:
        if getattr(wishes.extras, name) != getattr(PLAIN, name):
            raise bad_request(f"{name}: {NO_EXTRAS}", name, "unsupported_value")


def _read(call: ModelCall) -> Wishes:
    fields = Fields(call.wishes)
    temperature, top_p = fields.number("temperature", 0, 2), fields.number("top_p", 0, 1)
    if top_p == 0:
        raise bad_request("top_p: must be above 0 (got 0)", "top_p")
    logprobs, top = _logprobs(call, fields)
    structure, tools = _structure(call, fields)
    wishes = Wishes(
        1.0 if temperature is None else float(temperature),
        1.0 if top_p is None else float(top_p),
        fields.whole("seed", 2**63 - 1, -(2**63)),
        tools,
        structure,
        logprobs,
        _extras(fields, top),
    )
    fields.left(call.ignored)
    return wishes


def _extras(fields: Fields, top: int) -> Extras:
    repetition = fields.number("repetition_penalty", 0, 2)
    if repetition == 0:
        raise bad_request("repetition_penalty: must be above 0 (got 0)", "repetition_penalty")
    return Extras(
        top_logprobs=top,
        top_k=max(0, fields.whole("top_k", 2**31 - 1, -1) or 0),
        min_p=fields.number("min_p", 0, 1) or 0.0,
        presence_penalty=fields.number("presence_penalty", -2, 2) or 0.0,
        frequency_penalty=fields.number("frequency_penalty", -2, 2) or 0.0,
        repetition_penalty=1.0 if repetition is None else repetition,
        logit_bias=_biases(fields.object("logit_bias")),
    )


def _biases(values: Mapping[Any, Any]) -> tuple[tuple[int, float], ...]:
    if len(values) > MAX_BIASES:
        raise bad_request(f"logit_bias: at most {MAX_BIASES} tokens (got {len(values)})", "logit_bias")
    found = []
    for token, bias in values.items():
        usable = isinstance(bias, int | float) and not isinstance(bias, bool) and -100 <= bias <= 100
        if not (str(token).isascii() and str(token).isdigit() and len(str(token)) < 10 and usable):
            why = "token ids with numbers from -100 to 100 are needed"
            raise bad_request(f"logit_bias: {why} (got {shown({token: bias})})", "logit_bias")
        found.append((int(token), float(bias)))
    return tuple(found)


def _logprobs(call: ModelCall, fields: Fields) -> tuple[bool, int]:
    """Return whether log-probabilities are shown, and how many of the likeliest tokens."""
    top = fields.whole("top_logprobs", MAX_TOP_LOGPROBS, 0) or 0
    if call.dialect != "responses":
        shown_ = fields.flag("logprobs")
        if top and not shown_:
            raise bad_request("top_logprobs: only with logprobs=true", "top_logprobs")
        return shown_, top
    include = fields.items("include")
    call.ignored.update(f"include.{short(item)}" for item in include if item != LOGPROBS)
    return LOGPROBS in include or top > 0, top


def _structure(call: ModelCall, fields: Fields) -> tuple[Structure | None, tuple[Tool, ...]]:
    """Return the form that is asked for, and the tools that are offered."""
    schema = _schema(call, fields)
    strict = fields.flag("tools.strict")
    choice, name, one = _choice(call, fields)
    one = one or fields.flag("parallel_tool_calls", True) is False
    tools = () if choice == "none" else call.tools
    if choice in ("required", "named") and not tools:
        raise bad_request("tool_choice: a call is required and no tools are offered", "tool_choice")
    callable_ = tuple(tool for tool in tools if choice != "named" or tool.name == name)
    if tools and not callable_:
        raise bad_request(f"tool_choice: {nearest(name, [tool.name for tool in tools])}", "tool_choice")
    must = choice in ("required", "named")
    if schema is None and not (tools and (must or strict or one)):
        return None, tools
    for tool in callable_:
        if tool.parameters:
            check_schema(tool.parameters, "tools")
    return Structure(None if must else schema, callable_, must, one or choice == "named"), tools


def _schema(call: ModelCall, fields: Fields) -> Mapping[str, Any] | None:
    """Return the schema of an answer in JSON; None for any text."""
    name = {"chat_completions": "response_format", "responses": "text.format", "messages": "output_format"}[
        call.dialect
    ]
    form = fields.object(name)
    if call.dialect == "messages":
        config = fields.object("output_config")
        form = form or config.pop("format", None) or {}
        call.ignored.update(f"output_config.{short(name)}" for name in config)
    kind = form.get("type", "text") if isinstance(form, Mapping) else None
    if kind == "text":
        return None
    if kind == "json_object" and call.dialect != "messages":
        return ANY_OBJECT
    if kind != "json_schema":
        raise bad_request(f"{name}: text, json_object and json_schema are served (got {shown(form)})", name)
    body = form.get("json_schema") if call.dialect == "chat_completions" else form
    return check_schema(body.get("schema") if isinstance(body, Mapping) else None, name)


def _choice(call: ModelCall, fields: Fields) -> tuple[str, str, bool]:
    """Return ``auto``, ``none``, ``required`` or ``named``; the name; and whether there may be one call at most."""
    value = fields.take("tool_choice")
    if value is None or isinstance(value, str):
        value = {"type": value or "auto"}
    if not isinstance(value, Mapping):
        value = {"type": None}
    one, kind = value.get("disable_parallel_tool_use") is True, value.get("type")
    kind = value.get("mode") if kind == "allowed_tools" else kind
    if kind in ("auto", "none", "required", "any"):
        return ("required" if kind == "any" else str(kind)), "", one
    body = value.get("function") or value.get("custom") or value
    name = body.get("name") if isinstance(body, Mapping) else None
    if kind in ("function", "tool", "custom") and isinstance(name, str):
        return "named", name, one
    if any(str(kind).startswith(name) for name in (tool.removeprefix("tools.") for tool in call.ignored)):
        call.ignored[f"tool_choice.{short(kind)}"] += 1  # a tool that the provider would run
        return "auto", "", one
    got = shown(dict(value))
    raise bad_request(f"tool_choice: auto, none, required or one function's name is needed (got {got})", "tool_choice")
