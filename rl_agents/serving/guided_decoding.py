"""What an answer must look like, as a structural tag: vLLM's guided decoding (xgrammar) samples only what fits it.

Calls of tools are written in the ``<tool_call>`` form of `rl_agents.tools.calls`. An answer may think before: a thought
that it begins with is free text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_agents.tools.calls import Tool, schema_problem
from rl_agents.web.errors import bad_request

Format = dict[str, Any]

#: White space of models between the parts that matter.
_LINE = {"type": "regex", "pattern": "\\n?"}
_GAP = {"type": "regex", "pattern": "[ \\n]{0,4}"}
#: White space in a row inside of JSON: enough to indent with, and no model fills its answer with it.
MAX_SPACES = 32
#: What ``json_object`` asks for. xgrammar closes objects whose schema does not open them.
ANY_OBJECT: Mapping[str, Any] = {"type": "object", "additionalProperties": True}


@dataclass(frozen=True)
class Structure:
    """The form of an answer.

    Attributes:
        schema: of an answer that is JSON; None: any text.
        tools: what may be called, each call with arguments that fit the tool's schema; empty: no calls.
        must_call: nothing but calls, at least one.
        one_call: one call at most.
    """

    schema: Mapping[str, Any] | None = None
    tools: tuple[Tool, ...] = ()
    must_call: bool = False
    one_call: bool = False

    def tag(self, inside: str = "", thinks: bool = False) -> str:
        """Return it as vLLM takes it.

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
        ApiError: 400, none, or one with parts that nobody would enforce.
    """
    if not isinstance(schema, Mapping):
        raise bad_request(f"{field}: a JSON schema is needed, an object", field)
    if problem := schema_problem(schema):
        raise bad_request(f"{field} is no JSON schema: {problem}", field)
    if problem := _unenforced(schema):
        raise bad_request(f"{field}: {problem}", field, "unsupported_value")
    return schema


def _unenforced(schema: Any) -> str:
    """Return what of a schema xgrammar would pass over; `rl_agents.inference.vllm_common` asks vLLM about the rest."""
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
    """The rest of a thought that has begun, and its end."""
    end = f"</{tag}>"
    return [{"type": "any_text", "excludes": [end]}, {"type": "const_string", "value": end}, _GAP]


def _free_thought() -> list[Format]:
    """A thought, or none, as the model likes."""
    begun = [{"type": "const_string", "value": "<think>"}, *_thought("think")]
    return [{"type": "optional", "content": {"type": "sequence", "elements": begun}}]


def _call_tag(tools: Sequence[Tool]) -> Format:
    body = {"type": "sequence", "elements": [_LINE, _any_of([_call(tool) for tool in tools]), _LINE]}
    return {"type": "tag", "begin": "<tool_call>", "content": body, "end": "</tool_call>"}


def _call(tool: Tool) -> Format:
    head = f'{{"name": {json.dumps(tool.name)}, "arguments": '
    # The schema stands by itself: references inside it begin at its own root.
    parts = [{"type": "const_string", "value": head}, _json(tool.parameters or ANY_OBJECT)]
    return {"type": "sequence", "elements": [*parts, {"type": "const_string", "value": "}"}]}


def _json(schema: Mapping[str, Any]) -> Format:
    return {"type": "json_schema", "json_schema": dict(schema), "max_whitespace_cnt": MAX_SPACES}


def _any_of(forms: Sequence[Format]) -> Format:
    return forms[0] if len(forms) == 1 else {"type": "or", "elements": list(forms)}


def _written(form: Format) -> str:
    return json.dumps({"type": "structural_tag", "format": form})
