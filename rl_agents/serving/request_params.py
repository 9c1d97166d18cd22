"""Sampling parameters and constraints of a request in any dialect: honored, refused, or counted as ignored.

The required form of an answer is a structural tag: vLLM's guided decoding (xgrammar) samples only text that fits it.
Tool calls have the ``<tool_call>`` form of `rl_agents.tools.calls`. An answer may begin with a thought, which is free
text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field

from rl_agents.chat.messages import short
from rl_agents.data.tasks import step_seed
from rl_agents.errors import nearest
from rl_agents.gateway.answer_params import AnswerFields, shows_logprobs, tool_choice
from rl_agents.gateway.calls import ModelCall
from rl_agents.inference.base import Extras, Sampling
from rl_agents.tools.calls import Tool, schema_problem
from rl_agents.web.bodies import read_body, shown
from rl_agents.web.errors import bad_request

Format = dict[str, Any]

#: White space between the parts of an answer.
_LINE = {"type": "regex", "pattern": "\\n?"}
_GAP = {"type": "regex", "pattern": "[ \\n]{0,4}"}
#: Longest white space inside JSON: enough for indentation, too short to fill an answer.
MAX_SPACES = 32
#: The schema of ``json_object``. xgrammar allows no additional properties unless the schema does.
ANY_OBJECT: Mapping[str, Any] = {"type": "object", "additionalProperties": True}


@dataclass(frozen=True)
class Structure:
    """The form of an answer.

    Attributes:
        schema: of an answer in JSON; None: any text.
        tools: that can be called, with arguments that fit their schemas; empty: no calls.
        must_call: only calls, at least one.
        one_call: at most one call.
    """

    schema: Mapping[str, Any] | None = None
    tools: tuple[Tool, ...] = ()
    must_call: bool = False
    one_call: bool = False

    def tag(self, inside: str = "", thinks: bool = False) -> str:
        """Return the structural tag for vLLM.

        Args:
            inside: the tag (``think``) of a thought that the prompt has opened.
            thinks: the answer may begin with a thought.
        """
        thought = _thought(inside) if inside else _free_thought() if thinks else []
        if self.schema is None and not self.must_call:
            form = {"type": "triggered_tags", "triggers": ["<tool_call>"], "tags": [_call_tag(self.tools)]}
            return _written({**form, "stop_after_first": self.one_call})
        words = [] if self.schema is None else [_json(self.schema)]
        return _written({"type": "sequence", "elements": [*thought, _any_of([*words, *self._calls()])]})

    def _calls(self) -> list[Format]:
        if not self.tools:
            return []
        form = {"type": "tags_with_separator", "tags": [_call_tag(self.tools)], "separator": "\n"}
        return [{**form, "at_least_one": True, "stop_after_first": self.one_call}]


def check_schema(schema: Any, field: str) -> Mapping[str, Any]:
    """Return a schema that can be enforced.

    Raises:
        ApiError: 400 if it is not a schema, or has parts that are not enforced.
    """
    if not isinstance(schema, Mapping):
        raise bad_request(f"{field}: a JSON schema is needed, an object", field)
    if problem := schema_problem(schema):
        raise bad_request(f"{field} is no JSON schema: {problem}", field)
    if problem := _unenforced(schema):
        raise bad_request(f"{field}: {problem}", field, "unsupported_value")
    return schema


def _unenforced(schema: Any) -> str:
    """Return the part of a schema that xgrammar would ignore; `rl_agents.inference.vllm_common` asks vLLM too."""
    if isinstance(schema, Sequence) and not isinstance(schema, str):
        return next((problem for item in schema if (problem := _unenforced(item))), "")
    if not isinstance(schema, Mapping):
        return ""
    if "not" in schema and isinstance(schema["not"], Mapping):
        return "'not' in a JSON schema is not enforced; say what may be there"
    required, properties = schema.get("required"), schema.get("properties")
    if isinstance(required, list) and (isinstance(properties, Mapping) or properties is None):
        for name in required:
            if name not in (properties or {}):
                return f"'{name}' is required and not among the properties of its JSON schema"
    return _unenforced([value for key, value in schema.items() if key not in ("const", "enum", "default", "examples")])


def _thought(tag: str) -> list[Format]:
    end = f"</{tag}>"
    return [{"type": "any_text", "excludes": [end]}, {"type": "const_string", "value": end}, _GAP]


def _free_thought() -> list[Format]:
    begun = [{"type": "const_string", "value": "<think>"}, *_thought("think")]
    return [{"type": "optional", "content": {"type": "sequence", "elements": begun}}]


def _call_tag(tools: Sequence[Tool]) -> Format:
    body = {"type": "sequence", "elements": [_LINE, _any_of([_call(tool) for tool in tools]), _LINE]}
    return {"type": "tag", "begin": "<tool_call>", "content": body, "end": "</tool_call>"}


def _call(tool: Tool) -> Format:
    head = f'{{"name": {json.dumps(tool.name)}, "arguments": '
    # The schema is a separate element, since its references begin at its own root.
    parts = [{"type": "const_string", "value": head}, _json(tool.parameters or ANY_OBJECT)]
    return {"type": "sequence", "elements": [*parts, {"type": "const_string", "value": "}"}]}


def _json(schema: Mapping[str, Any]) -> Format:
    return {"type": "json_schema", "json_schema": dict(schema), "max_whitespace_cnt": MAX_SPACES}


def _any_of(forms: Sequence[Format]) -> Format:
    return forms[0] if len(forms) == 1 else {"type": "or", "elements": list(forms)}


def _written(form: Format) -> str:
    return json.dumps({"type": "structural_tag", "format": form})


PLAIN = Extras()
NO_STRUCTURE = "the torch engine does not constrain what it samples; serve with engine=vllm"
NO_EXTRAS = "the torch engine samples from the policy as it is; serve with engine=vllm"


@dataclass(frozen=True)
class RequestParams:
    """Parameters of a request.

    Attributes:
        tools: offered in the prompt; empty with ``tool_choice: none``.
        structure: form of the answer; None: any text.
        logprobs: return log-probabilities.
        extras: without ``structure``, which `sampling` sets.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    tools: tuple[Tool, ...] = ()
    structure: Structure | None = None
    logprobs: bool = False
    extras: Extras = PLAIN

    def sampling(self, budget: int, stop_token_ids: tuple[int, ...], index: int, tag: str = "") -> Sampling:
        """Return the sampling of choice ``index``; the first has the request's seed, the others derived seeds.

        Args:
            tag: the `Structure.tag` of ``structure``.
        """
        extras = replace(self.extras, structure=tag)
        seed = self.seed if self.seed is None or index == 0 else step_seed(self.seed % 2**63, index)
        return Sampling(budget, self.temperature, self.top_p, stop_token_ids, seed, extras if extras != PLAIN else None)


def read_params(call: ModelCall) -> tuple[ModelCall, RequestParams]:
    """Return a request with the temperature and top-p that its answer reports, and the request's parameters.

    Parameters without an effect here (effort, verbosity ...) are added to `ModelCall.ignored`.

    Raises:
        ApiError: 400 for an invalid value, or for ``previous_response_id``.
    """
    if call.previous:
        why = "responses are not kept here; send the whole history as input"
        raise bad_request(f"previous_response_id: {why}", "previous_response_id", "unsupported_value")
    params = _read(call)
    return replace(call, options={**call.options, "temperature": params.temperature, "top_p": params.top_p}), params


def check_engine(params: RequestParams, kind: str) -> None:
    """Refuse parameters that the engine does not support.

    Raises:
        ApiError: 400 with the parameter and the engine that supports it.
    """
    if kind == "vllm":
        return
    if params.structure is not None:
        form = params.structure
        field = "response_format" if form.schema is not None else "tool_choice" if form.must_call else "tools"
        raise bad_request(f"{field}: {NO_STRUCTURE}", field, "unsupported_value")
    for name in Extras.__dataclass_fields__:
        if getattr(params.extras, name) != getattr(PLAIN, name):
            raise bad_request(f"{name}: {NO_EXTRAS}", name, "unsupported_value")


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


def _read(call: ModelCall) -> RequestParams:
    fields = read_body(SamplingFields, call.params)
    shows = shows_logprobs(call, fields)
    structure, tools = _structure(call, fields)
    extras = Extras(
        top_logprobs=fields.top_logprobs,
        top_k=max(0, fields.top_k),
        min_p=fields.min_p,
        presence_penalty=fields.presence_penalty,
        frequency_penalty=fields.frequency_penalty,
        repetition_penalty=fields.repetition_penalty,
        logit_bias=tuple((int(token), bias) for token, bias in fields.logit_bias.items()),
    )
    call.ignored.update(map(short, fields.model_extra or ()))
    return RequestParams(fields.temperature, fields.top_p, fields.seed, tools, structure, shows, extras)


def _structure(call: ModelCall, fields: SamplingFields) -> tuple[Structure | None, tuple[Tool, ...]]:
    """Return the requested form and the offered tools."""
    schema = _schema(call, fields)
    choice, name, one = tool_choice(call, fields.tool_choice)
    one = one or not fields.parallel_tool_calls
    tools = () if choice == "none" else call.tools
    if choice in ("required", "named") and not tools:
        raise bad_request("tool_choice: a call is required and no tools are offered", "tool_choice")
    callable_ = tuple(tool for tool in tools if choice != "named" or tool.name == name)
    if tools and not callable_:
        raise bad_request(f"tool_choice: {nearest(name, [tool.name for tool in tools])}", "tool_choice")
    must = choice in ("required", "named")
    if schema is None and not (tools and (must or fields.strict or one)):
        return None, tools
    for tool in callable_:
        if tool.parameters:
            check_schema(tool.parameters, "tools")
    return Structure(None if must else schema, callable_, must, one or choice == "named"), tools


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
    return check_schema(body.get("schema") if isinstance(body, Mapping) else None, name)
