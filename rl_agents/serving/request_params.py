"""Sampling parameters and constraints of a request in any dialect: honored, refused, or counted as ignored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from rl_agents.chat.messages import short
from rl_agents.data.tasks import step_seed
from rl_agents.errors import nearest
from rl_agents.gateway.answer_params import AnswerFields, shows_logprobs, tool_choice
from rl_agents.gateway.calls import ModelCall
from rl_agents.inference.base import Extras, Sampling
from rl_agents.inference.engines import ENGINES, able
from rl_agents.tools.calls import Tool
from rl_agents.tools.structured_output import ANY_OBJECT, Structure, schema_refusal
from rl_agents.web.bodies import read_body, shown
from rl_agents.web.errors import bad_request

PLAIN = Extras()
PENALTIES = ("presence_penalty", "frequency_penalty", "repetition_penalty")


def read_params(call: ModelCall) -> tuple[ModelCall, Sampling, Structure | None]:
    """Return a request as it is answered, with the temperature and top-p that its answer reports; how its answers are
    sampled (see `of_choice`); and their form, None for any text.

    Parameters without an effect here (effort, verbosity ...) are added to `ModelCall.ignored`.

    Raises:
        ApiError: 400 for an invalid value, or for ``previous_response_id``.
    """
    if call.previous:
        why = "responses are not kept here; send the whole history as input"
        raise bad_request(f"previous_response_id: {why}", "previous_response_id", "unsupported_value")
    fields = read_body(SamplingFields, call.params)
    choice = tool_choice(call, fields.tool_choice)
    top = fields.top_logprobs if shows_logprobs(call, fields) else None
    tools = () if choice[0] == "none" else call.tools
    structure = _structure(call, fields, tools, choice)
    bias = tuple((int(token), bias) for token, bias in fields.logit_bias.items())
    same = {name: getattr(fields, name) for name in ("top_logprobs", "min_p", *PENALTIES)}
    extras = Extras(top_k=max(0, fields.top_k), logit_bias=bias, **same)
    call.ignored.update(map(short, fields.model_extra or ()))
    options = {**call.options, "temperature": fields.temperature, "top_p": fields.top_p}
    sampling = Sampling(0, fields.temperature, fields.top_p, seed=fields.seed, extras=extras)
    return replace(call, tools=tools, logprobs=top, options=options), sampling, structure


def of_choice(sampling: Sampling, budget: int, stop_token_ids: tuple[int, ...], index: int, tag: str = "") -> Sampling:
    """Return the sampling of choice ``index``; the first has the request's seed, the others derived seeds.

    Args:
        tag: the `Structure.tag` of the request's structure.
    """
    extras, seed = replace(sampling.extras or PLAIN, structure=tag), sampling.seed
    return replace(
        sampling,
        max_tokens=budget,
        stop_token_ids=stop_token_ids,
        seed=seed if seed is None or index == 0 else step_seed(seed % 2**63, index),
        extras=extras if extras != PLAIN else None,
    )


def check_engine(sampling: Sampling, structure: Structure | None, kind: str) -> None:
    """Refuse parameters that the engine does not support.

    Raises:
        ApiError: 400 with the parameter and the engine that supports it.
    """
    if ENGINES[kind].extras:
        return
    engine, other = f"the {kind} engine", f"serve with {able(lambda row: row.extras)}"
    if structure is not None:
        field = "response_format" if structure.schema is not None else "tool_choice" if structure.must_call else "tools"
        raise bad_request(f"{field}: {engine} does not constrain what it samples; {other}", field, "unsupported_value")
    for name in Extras.__dataclass_fields__:
        if getattr(sampling.extras, name) != getattr(PLAIN, name):
            raise bad_request(f"{name}: {engine} samples from the policy as it is; {other}", name, "unsupported_value")


Penalty = Annotated[float, Field(ge=-2, le=2)]
TokenId = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]
Bias = Annotated[float, Field(ge=-100, le=100)]


class SamplingFields(AnswerFields):
    """Parameters in any dialect; other fields are counted as ignored."""

    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    top_k: int = Field(0, ge=-1, lt=2**31)
    min_p: float = Field(0.0, ge=0, le=1)
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    repetition_penalty: float = Field(1.0, gt=0, le=2)
    logit_bias: dict[TokenId, Bias] = Field({}, max_length=300)
    parallel_tool_calls: bool = True
    strict: bool = Field(False, alias="tools.strict")
    response_format: dict[str, Any] = Field({})
    text_format: dict[str, Any] = Field({}, alias="text.format")
    output_format: dict[str, Any] = Field({})
    output_config: dict[str, Any] = Field({})


def _structure(
    call: ModelCall, fields: SamplingFields, tools: tuple[Tool, ...], choice: tuple[str, str, bool]
) -> Structure | None:
    """Return the requested form of the answer."""
    schema, (kind, name, single) = _schema(call, fields), choice
    must, single = kind in ("required", "named"), single or not fields.parallel_tool_calls
    if must and not tools:
        raise bad_request("tool_choice: a call is required and no tools are offered", "tool_choice")
    callable_ = tuple(tool for tool in tools if kind != "named" or tool.name == name)
    if tools and not callable_:
        raise bad_request(f"tool_choice: {nearest(name, [tool.name for tool in tools])}", "tool_choice")
    if schema is None and not (tools and (must or fields.strict or single)):
        return None
    for tool in callable_:
        if tool.parameters:
            _enforceable(tool.parameters, "tools")
    return Structure(None if must else schema, callable_, must, single or kind == "named")


def _enforceable(schema: Any, field: str) -> Mapping[str, Any]:
    if refusal := schema_refusal(schema, field):
        raise bad_request(refusal, field, "unsupported_value")
    checked: Mapping[str, Any] = schema
    return checked


def _schema(call: ModelCall, fields: SamplingFields) -> Mapping[str, Any] | None:
    """Return the schema of an answer in JSON; None: any text."""
    name, form = "response_format", fields.response_format
    if call.dialect == "responses":
        name, form = "text.format", fields.text_format
    elif call.dialect == "messages":
        name, config = "output_format", dict(fields.output_config)
        form = fields.output_format or config.pop("format", None) or {}
        call.ignored.update(f"output_config.{short(part)}" for part in config)
    kind = form.get("type", "text") if isinstance(form, Mapping) else None
    if kind == "text":
        return None
    if kind == "json_object" and call.dialect != "messages":
        return ANY_OBJECT
    if kind != "json_schema":
        raise bad_request(f"{name}: text, json_object and json_schema are served (got {shown(form)})", name)
    body = form.get("json_schema") if call.dialect == "chat_completions" else form
    return _enforceable(body.get("schema") if isinstance(body, Mapping) else None, name)
