"""Structured output: the form of an answer as a structural tag, for vLLM's guided decoding (xgrammar).

It samples only text that fits. Tool calls have the ``<tool_call>`` form of `rl_agents.tools.calls`. An answer may begin
with a thought, which is free text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_agents.tools.calls import Tool, schema_problem

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


def schema_refusal(schema: Any, field: str) -> str:
    """Return why a schema cannot be enforced: it is none, or has parts that are not enforced; empty: it can."""
    if not isinstance(schema, Mapping):
        return f"{field}: a JSON schema is needed, an object"
    if problem := schema_problem(schema):
        return f"{field} is no JSON schema: {problem}"
    problem = _unenforced(schema)
    return f"{field}: {problem}" if problem else ""


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
