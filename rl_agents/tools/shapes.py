"""The forms in which families of models write a tool call: its beginning, its content and its end.

A call ends after its JSON value or its last parameter, so a closing tag inside an argument does not end it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rl_agents.tools.strict_json import DECODER, check_plain, strict_json

#: Number of openings in one text that are no call, after which the search for calls stops.
MAX_FAILURES = 64


@dataclass(frozen=True, slots=True)
class FoundCall:
    """A call, or a list of calls, and its place in a text.

    Attributes:
        name: of the tool; None: it is in the value.
        value: JSON, or the parameters as text by their keys.
        as_text: the parameters are text, regardless of their schema.
        several: the value may be a list of calls.
    """

    start: int
    end: int
    name: str | None
    value: Any
    as_text: bool
    several: bool


@dataclass(frozen=True)
class Shape:
    """The form of one call.

    Attributes:
        opening, closing: literals at its beginning and end; without ``closing`` it ends with the value.
        head: up to the value; may name the tool (group ``name``).
        tail: after the value.
        parameter: one parameter, with groups ``key`` and ``value``; None: one value is between head and tail.
        decode: (text, start) -> value and its end; raises `ValueError` if there is no value.
    """

    opening: str
    closing: str
    head: re.Pattern[str]
    tail: re.Pattern[str]
    parameter: re.Pattern[str] | None = None
    decode: Callable[[str, int], tuple[Any, int]] = DECODER.raw_decode

    def read(self, text: str, start: int) -> FoundCall | None:
        """Read the call that begins at ``start``; None if there is none of this form."""
        head = self.head.match(text, start)
        if head is None:
            return None
        try:
            value, end = self._parameters(text, head.end()) if self.parameter else self.decode(text, head.end())
            check_plain(value)
        except (ValueError, RecursionError):
            return None
        tail = self.tail.match(text, end)
        name = head.groupdict().get("name")
        if tail is None:
            return None
        return FoundCall(start, tail.end(), name, value, as_text=self.parameter is not None, several=not self.closing)

    def problem(self, text: str, start: int) -> str:
        end = text.find(self.closing, start) if self.closing else len(text)
        if end < 0:
            return f"a {self.opening} without its {self.closing}"
        head = self.head.match(text, start)
        try:
            strict_json(text[head.end() if head else start + len(self.opening) : end].strip())
        except ValueError as error:
            return f"the text inside {self.opening} is {error}"
        return f"the text inside {self.opening} is no call"

    def _parameters(self, text: str, start: int) -> tuple[dict[str, str], int]:
        assert self.parameter is not None
        found: dict[str, str] = {}
        while parameter := self.parameter.match(text, start):
            if parameter["key"] in found:
                raise ValueError("a parameter occurs twice")
            found[parameter["key"]], start = parameter["value"], parameter.end()
        return found, start


def find_calls(text: str, shapes: Sequence[Shape]) -> tuple[list[FoundCall], str]:
    """Return all calls of these forms, and the problem of the first opening that cannot be read (or an empty text)."""
    if not shapes:
        return [], ""
    opening = re.compile("|".join(dict.fromkeys(re.escape(shape.opening) for shape in shapes)))
    found, failures, position, problem = [], 0, 0, ""
    while failures < MAX_FAILURES and (begins := opening.search(text, position)):
        fitting = [shape for shape in shapes if text.startswith(shape.opening, begins.start())]
        call = next((call for shape in fitting if (call := shape.read(text, begins.start()))), None)
        if call is None:
            failures += 1
            problem = problem or fitting[0].problem(text, begins.start())
            position = begins.end()
        else:
            found.append(call)
            position = call.end
    return found, problem


def without(text: str, calls: Sequence[FoundCall], filler: str = "") -> str:
    """Return the text without the calls, or with ``filler`` for each of their characters."""
    parts, position = [], 0
    for call in calls:
        parts += [text[position : call.start], filler * (call.end - call.start)]
        position = call.end
    return "".join([*parts, text[position:]])


def _gemma_value(text: str, start: int) -> tuple[Any, int]:
    """Read ``{key:<|"|>text<|"|>,other:3}``: keys without quotes, strings between special marks."""
    from transformers.utils.chat_parsing.content_parsers import parse_content

    body = GEMMA_BODY.match(text, start)
    if body is None:
        raise ValueError("no object")
    quote = '<|"|>'
    return parse_content(body[0], "json", {"unquoted_keys": True, "string_delims": [[quote, quote]]}), body.end()


GEMMA_BODY = re.compile(r'\{(?:<\|"\|>.*?<\|"\|>|[^<]++|<(?!tool_call\|>|\|"\|>))*+', re.DOTALL)

HERMES = Shape("<tool_call>", "</tool_call>", re.compile(r"<tool_call>\s*"), re.compile(r"\s*</tool_call>"))
QWEN_XML = Shape(
    "<tool_call>", "</tool_call>", re.compile(r"<tool_call>\s*<function=(?P<name>[^>\s]+)>"),
    re.compile(r"\s*</function>\s*</tool_call>"),
    re.compile(
        r"\s*<parameter=(?P<key>[^>\n]+)>\n?(?P<value>.*?)\n?</parameter>"
        r"(?=\s*(?:<parameter=|</function>\s*</tool_call>))", re.DOTALL,
    ),
)  # fmt: skip
GLM = Shape(
    "<tool_call>", "</tool_call>", re.compile(r"<tool_call>\s*(?P<name>[\w.:/-]+)(?=\s*<)"),
    re.compile(r"\s*</tool_call>"),
    re.compile(
        r"\s*<arg_key>(?P<key>.*?)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>"
        r"(?=\s*(?:<arg_key>|</tool_call>))", re.DOTALL,
    ),
)  # fmt: skip
MISTRAL = Shape(
    "[TOOL_CALLS]", "", re.compile(r"\[TOOL_CALLS\]\s*(?:(?P<name>[\w.-]+)(?:\[CALL_ID\]\w*)?(?:\[ARGS\])?)?\s*"),
    re.compile(r"(?:\s*\[/TOOL_CALLS\])?"),
)  # fmt: skip
DEEPSEEK = Shape(
    "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>",
    re.compile(r"<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>(?P<name>[^\n]+)\n```json\n)"),
    re.compile(r"\s*```<｜tool▁call▁end｜>"),
)  # fmt: skip
DEEPSEEK_V31 = Shape(
    "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>",
    re.compile(r"<｜tool▁call▁begin｜>(?P<name>[^<\n]+)<｜tool▁sep｜>\s*"), re.compile(r"\s*<｜tool▁call▁end｜>"),
)  # fmt: skip
GEMMA = Shape(
    "<|tool_call>", "<tool_call|>", re.compile(r"<\|tool_call>call:(?P<name>[\w.-]+)"), re.compile(r"<tool_call\|>"),
    decode=_gemma_value,
)  # fmt: skip
HARMONY = Shape(
    " to=functions.", "", re.compile(r" to=functions\.(?P<name>[^\s<]+)[^{}]*?<\|message\|>\s*"),
    re.compile(r"\s*(?:<\|call\|>)?"),
)  # fmt: skip

#: The forms that environments read. `rl_agents.chat.tool_parsing` rewrites other families' calls in Hermes's form.
CANONICAL = (HERMES, QWEN_XML)
