"""What a request wishes, in any dialect: honoured as asked or refused, never passed over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from rl_agents.data.tasks import step_seed
from rl_agents.engines.base import Extras, Sampling
from rl_agents.errors import nearest
from rl_agents.gateway.calls import Dialect, ModelCall
from rl_agents.gateway.dialects import chat_completions, messages, responses
from rl_agents.gateway.dialects.fields import Fields, shown
from rl_agents.serving.structure import ANY_OBJECT, Structure, check_schema
from rl_agents.tools.calls import Tool
from rl_agents.web.errors import bad_request

MAX_MESSAGES = 1024
MAX_TOOLS = 128
MAX_STOPS = 4
MAX_TOP_LOGPROBS = 20
MAX_BIASES = 300
MAX_NOTE_CHARACTERS = 512
#: Fields beside wishes and notes, to name the nearest to a wrong one.
_OWN: Mapping[Dialect, tuple[str, ...]] = {
    "chat_completions": (
        "model", "messages", "tools", "max_tokens", "max_completion_tokens", "stream", "stream_options", "n", "stop",
    ),
    "responses": ("model", "input", "instructions", "tools", "max_output_tokens", "stream", "stop"),
    "messages": ("model", "messages", "system", "tools", "max_tokens", "stream", "stop_sequences"),
}  # fmt: skip
_MODULES: Mapping[Dialect, ModuleType] = {
    "chat_completions": chat_completions, "responses": responses, "messages": messages,
}  # fmt: skip
#: Values that ask for nothing; anything else of these fields is refused with the sentence.
_REFUSED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "modalities": ((["text"],), "only text is written"),
    "truncation": (("disabled",), "nothing is cut; shorten the history"),
    "reasoning_effort": ((), "a model thinks as it was trained to; leave the field out"),
    "thinking": ((), "a model thinks as it was trained to; leave the field out"),
    "verbosity": ((), "a model writes as it was trained to; leave the field out"),
    "text.verbosity": ((), "a model writes as it was trained to; leave the field out"),
    "prediction": ((), "predicted outputs are not served"),
    "max_tool_calls": ((), "the agent runs its tools and counts their calls itself"),
    "context_management": ((), "nothing is cut; shorten the history"),
}
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


def read_request(read: Callable[[Mapping[str, Any]], ModelCall], data: Mapping[str, Any]) -> tuple[ModelCall, Wishes]:
    """Read a request strictly.

    Args:
        read: a dialect's reader.
        data: the body.

    Raises:
        ApiError: 400 for a field that is wrong, unknown or not served.
    """
    for name, most in (("messages", MAX_MESSAGES), ("input", MAX_MESSAGES), ("tools", MAX_TOOLS)):
        if isinstance(items := data.get(name), list) and len(items) > most:
            raise bad_request(f"{name}: at most {most} are allowed (got {len(items)})", name)
    call = read(data)
    wrong = next((name for name in call.ignored if name in data), None)
    if wrong is not None:
        module = _MODULES[call.dialect]
        known = [*_OWN[call.dialect], *module.WISHES, *module.NOTES]
        raise bad_request(f"unknown field '{_short(wrong)}': {nearest(wrong, known)}", wrong, "unknown_field")
    _check_history(call)
    _check_notes(call)
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


def _check_history(call: ModelCall) -> None:
    if len(call.stop) > MAX_STOPS:
        raise bad_request(f"stop: at most {MAX_STOPS} are allowed (got {len(call.stop)})", "stop")
    for number, message in enumerate(call.messages):
        if message["role"] in ("user", "system") and not message["content"].strip():
            raise bad_request(f"messages[{number}]: empty content in a {message['role']} message", "messages")
    if call.previous:
        why = "responses are not kept here; send the whole history as input"
        raise bad_request(f"previous_response_id: {why}", "previous_response_id", "unsupported_value")


def _check_notes(call: ModelCall) -> None:
    """Notes have no bearing on an answer; they are checked for what they are."""
    metadata = call.options.get("metadata")
    if metadata is not None and not isinstance(metadata, Mapping):
        raise bad_request(f"metadata: an object is needed (got {shown(metadata)})", "metadata")
    for name in ("user", "safety_identifier", "prompt_cache_key", "service_tier"):
        value = call.options.get(name)
        if value is not None and not (isinstance(value, str) and len(value) <= MAX_NOTE_CHARACTERS):
            raise bad_request(f"{name}: a text of at most {MAX_NOTE_CHARACTERS} characters is needed", name)


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
        _integer(fields, "seed", -(2**63), 2**63 - 1, None),
        tools,
        structure,
        logprobs,
        _extras(fields, top),
    )
    _refuse_rest(fields)
    return wishes


def _extras(fields: Fields, top: int) -> Extras:
    repetition = fields.number("repetition_penalty", 0, 2)
    if repetition == 0:
        raise bad_request("repetition_penalty: must be above 0 (got 0)", "repetition_penalty")
    return Extras(
        top_logprobs=top,
        top_k=max(0, _integer(fields, "top_k", -1, 2**31 - 1, 0) or 0),
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
    top = _integer(fields, "top_logprobs", 0, MAX_TOP_LOGPROBS, 0) or 0
    if call.dialect != "responses":
        shown_ = fields.flag("logprobs")
        if top and not shown_:
            raise bad_request("top_logprobs: only with logprobs=true", "top_logprobs")
        return shown_, top
    include = fields.items("include")
    others = [item for item in include if item != "message.output_text.logprobs"]
    if others:
        why = "only message.output_text.logprobs is served"
        raise bad_request(f"include: {why} (got {shown(others[0])})", "include", "unsupported_value")
    return bool(include) or top > 0, top


def _structure(call: ModelCall, fields: Fields) -> tuple[Structure | None, tuple[Tool, ...]]:
    """Return the form that is asked for, and the tools that are offered."""
    schema = _schema(call, fields)
    strict = fields.flag("tools.strict")
    choice, name, one = _choice(fields)
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
        if config:
            why = "only its format is served"
            raise bad_request(f"output_config: {why} (got {shown(config)})", "output_config", "unsupported_value")
    kind = form.get("type", "text") if isinstance(form, Mapping) else None
    if kind == "text":
        return None
    if kind == "json_object" and call.dialect != "messages":
        return ANY_OBJECT
    if kind != "json_schema":
        raise bad_request(f"{name}: text, json_object and json_schema are served (got {shown(form)})", name)
    body = form.get("json_schema") if call.dialect == "chat_completions" else form
    return check_schema(body.get("schema") if isinstance(body, Mapping) else None, name)


def _choice(fields: Fields) -> tuple[str, str, bool]:
    """Return ``auto``, ``none``, ``required`` or ``named``; the name; and whether there may be one call at most."""
    value = fields.take("tool_choice")
    if value is None or isinstance(value, str):
        value = {"type": value or "auto"}
    if not isinstance(value, Mapping):
        value = {"type": None}
    one, kind = value.get("disable_parallel_tool_use") is True, value.get("type")
    if kind in ("auto", "none", "required", "any"):
        return ("required" if kind == "any" else str(kind)), "", one
    body = value.get("function", value)
    name = body.get("name") if isinstance(body, Mapping) else None
    if kind in ("function", "tool") and isinstance(name, str):
        return "named", name, one
    got = shown(dict(value))
    raise bad_request(f"tool_choice: auto, none, required or one function's name is needed (got {got})", "tool_choice")


def _refuse_rest(fields: Fields) -> None:
    """Refuse what nobody has read."""
    reasoning = fields.object("reasoning")
    effort = {name: value for name, value in reasoning.items() if value is not None and name != "summary"}
    if effort:  # thoughts are always shown as their own summary
        raise bad_request(f"reasoning: {_REFUSED['thinking'][1]}", "reasoning", "unsupported_value")
    for name in fields.left():
        nothing, why = _REFUSED.get(name, ((), "this field is not served"))
        if (value := fields.take(name)) not in nothing:
            raise bad_request(f"{name}: {why} (got {shown(value)})", name, "unsupported_value")


def _integer(fields: Fields, name: str, low: int, high: int, default: int | None) -> int | None:
    value = fields.take(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise bad_request(f"{name}: a whole number from {low} to {high} is needed (got {shown(value)})", name)
    return value


def _short(name: str) -> str:
    return " ".join(name.split())[:80]
