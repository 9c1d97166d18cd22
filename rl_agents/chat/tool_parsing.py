"""Parsers of tool calls and thoughts for each family of models.

A parser is selected in this order: the named one (``tool_parser=``: of this module, or of vLLM if it is installed), the
response template of the tokenizer (transformers), the family that can read a call rendered by the chat template. The
parsers of this module have precedence over vLLM's of the same name: they read a closing tag inside an argument as text,
and report why a call is invalid, which rewards need; vLLM's return an invalid call as content.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from rl_agents.errors import InputError
from rl_agents.tools import shapes
from rl_agents.tools.calls import Response, Tool, ToolCall, read_call, read_response, write_response
from rl_agents.tools.shapes import Shape
from rl_agents.tools.thoughts import THOUGHT_TAGS

THINK = tuple((f"<{tag}>", f"</{tag}>") for tag in THOUGHT_TAGS)
Definitions = Sequence[Tool] | None
Read = Callable[[str, Definitions], Response]
Render = Callable[[Any, str], str]
"""(arguments of the call in `PROBE`, its tool's name) -> the assistant's turn as the chat template renders it."""


@dataclass(frozen=True)
class ModelFamily:
    """The form of calls of a family of models.

    Attributes:
        models: names of the models.
        shapes: of their calls; empty: the whole response is JSON (Llama 3).
        openings: texts with which calls begin; text before them can be shown.
    """

    name: str
    models: str
    shapes: tuple[Shape, ...]
    openings: tuple[str, ...]


_DEEPSEEK = ("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>")
FAMILIES = {
    family.name: family
    for family in (
        ModelFamily("hermes", "Qwen2.5, Qwen3, QwQ, Hermes", (shapes.HERMES,), ("<tool_call>",)),
        ModelFamily("qwen3_coder", "Qwen3-Coder, Qwen3.5 and later, Nemotron 3", (shapes.QWEN_XML,),
               ("<tool_call>",)),
        ModelFamily("glm45", "GLM-4.5 to 4.7", (shapes.GLM,), ("<tool_call>",)),
        ModelFamily("llama3_json", "Llama 3.1 to 3.3", (), ("{", "<|python_tag|>")),
        ModelFamily("mistral", "Mistral, Ministral, Devstral, Magistral", (shapes.MISTRAL,), ("[TOOL_CALLS]",)),
        ModelFamily("deepseek_v3", "DeepSeek-V3, R1", (shapes.DEEPSEEK,), _DEEPSEEK),
        ModelFamily("deepseek_v31", "DeepSeek-V3.1", (shapes.DEEPSEEK_V31,), _DEEPSEEK),
        ModelFamily("gemma4", "Gemma 4", (shapes.GEMMA,), ("<|tool_call>",)),
        ModelFamily("openai", "gpt-oss (harmony)", (shapes.HARMONY,), (" to=functions.",)),
    )
}  # fmt: skip
#: Beginning and end of a thought, by vLLM's names of reasoning parsers.
REASONING = {
    "think": ("<think>", "</think>"),
    "mistral": ("[THINK]", "[/THINK]"),
    "gemma4": ("<|channel>thought\n", "<channel|>"),
    "openai_gptoss": ("<|channel|>analysis<|message|>", "<|end|>"),
}
#: Other names of vLLM for the same parsers.
SAME_CALLS = {"qwen3_json": "hermes", "qwen3_xml": "qwen3_coder", "glm47": "glm45", "llama4_json": "llama3_json"}
SAME_THOUGHTS = dict.fromkeys(("qwen3", "deepseek_r1", "deepseek_v3", "glm45", "glm47"), "think")
#: Marks around DeepSeek's calls.
FRAMES = re.compile("<｜tool▁calls▁(?:begin|end)｜>")
PROBE = ToolCall("rl_agents_probe", {"city": "Bern", "note": "two words"})
_HARMONY = re.compile(
    r"(?:<\|start\|>assistant)?<\|channel\|>(?P<channel>\w+)(?:(?! to=)[^<])*<\|message\|>"
    r"(?P<text>.*?)(?:<\|end\|>|<\|return\|>|\Z)",
    re.DOTALL,
)


@dataclass(frozen=True)
class ResponseParser:
    """Reads responses of a model. The text contains the special tokens in ``marks``; see `ChatTemplate.decode`.

    Attributes:
        tool_parser: the family's name, vLLM's, or ``response_template``; empty: no parser reads this model's calls.
        reasoning_parser: likewise, for thoughts.
        call_openings: texts with which calls begin.
        marks: texts of special tokens that the parser needs.
        read: text and the tools that were offered to the model -> response (`rl_agents.tools.calls.read_response`).
        thought_tags: pairs of texts around thoughts.
        whole: the parser needs a complete response; otherwise the text before the first call can be shown earlier.
    """

    tool_parser: str
    reasoning_parser: str
    call_openings: tuple[str, ...]
    marks: frozenset[str]
    read: Read
    thought_tags: tuple[tuple[str, str], ...] = THINK
    whole: bool = False

    def action(self, text: str, tools: Definitions = None) -> str:
        """Return a response in the form for environments: thoughts in ``<think>``, calls in ``<tool_call>`` as JSON.

        This is already the form of Hermes and Qwen3. An invalid call stays invalid.
        """
        if self.tool_parser in ("", "hermes") and self.reasoning_parser == "think":
            return text
        said = self.read(text, tools)
        if said.problem and self.tool_parser in FAMILIES:
            return _without_frames(_plain_thoughts(text, self.reasoning_parser), self.call_openings)
        thoughts = f"<think>{said.thoughts}</think>" if said.thoughts else ""
        if not said.calls and "<tool_call>" not in text:
            return thoughts + said.content
        return thoughts + write_response(said.content, said.calls)


def _without_frames(text: str, openings: Sequence[str]) -> str:
    """Return an invalid call in a form that is invalid for every family."""
    place = min((place for opening in openings if (place := text.find(opening)) >= 0), default=-1)
    return text if place < 0 or "<tool_call>" in text else f"{text[:place]}<tool_call>{text[place:]}</tool_call>"


#: Reads the form for environments.
CANONICAL = ResponseParser("hermes", "think", (shapes.HERMES.opening,), frozenset(), read_response)


def make_parser(
    tokenizer: Any, render: Render, tool_parser: str = "", reasoning_parser: str = "", prefix: str = ""
) -> ResponseParser:
    """Return the parser of a model's calls and thoughts; see the module.

    Args:
        render: renders the call `PROBE` with the chat template.
        tool_parser, reasoning_parser: names; empty: detected.
        prefix: the generation prompt, which may begin a thought.

    Raises:
        InputError: an unknown name.
    """
    thoughts = _reasoning_name(reasoning_parser, str(tokenizer.chat_template))
    if not tool_parser and getattr(tokenizer, "response_template", None):
        return _by_template(tokenizer, prefix)
    name = SAME_CALLS.get(tool_parser, tool_parser) or detect(render)
    if name and name not in FAMILIES:
        return _by_vllm(tokenizer, name, thoughts)
    family = FAMILIES[name] if name else ModelFamily("", "", (), ())
    # Prompts of environments and guided decoding (`rl_agents.serving`) ask every model for Hermes's form.
    found = tuple(dict.fromkeys([*family.shapes, shapes.HERMES]))
    openings = tuple(dict.fromkeys([*family.openings, shapes.HERMES.opening]))
    reads, tags, harmony = _family_reader(found, thoughts), THINK, thoughts == "openai_gptoss"
    if thoughts not in REASONING:
        reads = _reasoned_by_vllm(tokenizer, thoughts, reads)
    elif thoughts != "think":
        tags = (REASONING[thoughts],)
    patterns = [
        *(pattern for shape in found for pattern in _patterns(shape)),
        *openings,
        *(tag for pair in tags for tag in pair),
    ]
    patterns += [_HARMONY.pattern] if harmony else []
    marks = {mark for mark in _all_marks(tokenizer) if any(mark in p or re.escape(mark) in p for p in patterns)}
    whole = harmony or thoughts not in REASONING
    return ResponseParser(name, thoughts, openings, frozenset(marks), reads, tags, whole)


def _patterns(shape: Shape) -> list[str]:
    return [p.pattern for p in (shape.head, shape.tail, shape.parameter, shapes.GEMMA_BODY) if p] + [shape.closing]


def detect(render: Render) -> str:
    """Return the family that can read a call rendered by the chat template; empty: there is none.

    If a template does not render calls, their form is that of the prompt, Hermes's.
    """
    try:
        text = render(dict(PROBE.arguments), PROBE.name)
    except InputError:
        return "hermes"
    for family in FAMILIES.values():
        found, _ = shapes.find_calls(text, family.shapes)
        if any(_is_probe(call.name, call.value) for call in found):
            return family.name
    bare = re.search(r'\{"name": ?"', text)
    if bare and _is_probe(None, json.JSONDecoder().raw_decode(text, bare.start())[0]):
        return "llama3_json"
    return "" if PROBE.name in text else "hermes"


def _is_probe(name: str | None, value: Any) -> bool:
    item = value[0] if isinstance(value, list) and value else value
    try:
        return (ToolCall(name, item) if name else read_call(item)) == PROBE
    except ValueError:
        return False


def refusal(name: str) -> str:
    """Return the error for a run with tools and a model whose calls no parser reads."""
    return (
        f"{name}: no parser reads the tool calls of this chat template; set tool_parser to one of "
        f"{', '.join(FAMILIES)}, or to one of vLLM's (docs/reference/models.md)"
    )


def tool_parsers() -> list[str]:
    """Return all valid names of ``tool_parser``."""
    further = _vllm_names("tool_parsers", "ToolParserManager", "tool_parsers")
    return [*FAMILIES, *(name for name in further if name not in FAMILIES and name not in SAME_CALLS)]


def _reasoning_name(asked: str, template: str) -> str:
    if asked:
        return SAME_THOUGHTS.get(asked, asked)
    return next((name for name, (tag, _) in REASONING.items() if name != "think" and tag.strip() in template), "think")


def _family_reader(found: Sequence[Shape], thoughts: str) -> Read:
    def read(text: str, tools: Definitions) -> Response:
        plain = _plain_thoughts(text, thoughts)
        response = read_response(plain, tools, found)
        return replace(response, content=FRAMES.sub("", response.content).strip())

    return read


def _plain_thoughts(text: str, thoughts: str) -> str:
    if thoughts == "openai_gptoss":
        return _plain_harmony(text)
    opening, closing = REASONING.get(thoughts, REASONING["think"])
    return text.replace(opening, "<think>", 1).replace(closing, "</think>", 1)


def _plain_harmony(text: str) -> str:
    """Return a response in OpenAI's harmony form as thoughts in tags, text, and unchanged calls."""
    calls, _ = shapes.find_calls(text, (shapes.HARMONY,))
    rest = shapes.without(text, calls)
    words, broken = [*_HARMONY.finditer(rest)], rest.find(shapes.HARMONY.opening)
    thought = "\n".join(message["text"] for message in words if message["channel"] == "analysis")
    said = "".join(message["text"] for message in words if message["channel"] != "analysis")
    written = "".join(text[call.start : call.end] for call in calls) + (rest[broken:] if broken >= 0 else "")
    if not words and not written:
        said = text
    return (f"<think>{thought}</think>" if thought else "") + said + written


def _by_template(tokenizer: Any, prefix: str) -> ResponseParser:
    def read(text: str, tools: Definitions) -> Response:
        try:
            said = tokenizer.parse_response(text, prefix=prefix, tools=[tool.to_openai() for tool in tools or ()])
            calls = tuple(read_call(call) for call in said.get("tool_calls") or ())
        except (ValueError, KeyError, TypeError) as error:
            return Response(text, problem=f"the response does not fit the tokenizer's response template: {error}")
        thoughts = said.get("reasoning_content") or said.get("thinking") or said.get("reasoning") or ""
        return Response(str(said.get("content") or "").strip(), calls, thoughts=str(thoughts))

    name = "response_template"
    return ResponseParser(name, name, (), _all_marks(tokenizer), read, whole=True)


def _by_vllm(tokenizer: Any, name: str, thoughts: str) -> ResponseParser:
    """Return a parser with one of vLLM's tool parsers.

    Raises:
        InputError: vLLM is not installed, has no such parser, or the tokenizer lacks tokens that it needs.
    """
    if name not in tool_parsers():
        raise InputError(f"tool_parser={name}: no such parser; valid: {', '.join(tool_parsers())}")
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.tool_parsers import ToolParserManager

    kind = ToolParserManager.get_tool_parser(name)
    _try(f"tool_parser={name}", lambda: kind(tokenizer).extract_tool_calls("", ChatCompletionRequest(messages=[])))

    def read(text: str, tools: Definitions) -> Response:
        offered = [tool.to_openai() for tool in tools or ()]
        request = ChatCompletionRequest(messages=[], tools=offered or None)
        said = read_response(_plain_thoughts(text, thoughts), (), ())
        try:
            found = kind(tokenizer, request.tools).extract_tool_calls(said.content, request)
            calls = tuple(read_call({"function": call.function.model_dump()}) for call in found.tool_calls)
        except Exception as error:  # some parsers raise any type for a malformed call
            return replace(said, problem=f"the tool call cannot be read: {error}")
        return Response((found.content or "").strip(), calls, thoughts=said.thoughts)

    reads = read if thoughts in REASONING else _reasoned_by_vllm(tokenizer, thoughts, read)
    return ResponseParser(name, thoughts, (), _all_marks(tokenizer), reads, whole=True)


def _reasoned_by_vllm(tokenizer: Any, name: str, reads: Read) -> Read:
    """Return a reader that separates thoughts with one of vLLM's reasoning parsers, then reads the rest.

    Raises:
        InputError: vLLM is not installed, has no such parser, or the tokenizer lacks tokens that it needs.
    """
    known = _vllm_names("reasoning", "ReasoningParserManager", "reasoning_parsers")
    if name not in known:
        raise InputError(f"reasoning_parser={name}: no such parser; valid: {', '.join([*REASONING, *known])}")
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.reasoning import ReasoningParserManager

    kind = ReasoningParserManager.get_reasoning_parser(name)

    def read(text: str, tools: Definitions) -> Response:
        thought, rest = kind(tokenizer).extract_reasoning(text, ChatCompletionRequest(messages=[]))
        return replace(reads(rest or "", tools), thoughts=thought or "")

    _try(f"reasoning_parser={name}", lambda: read("", ()))
    return read


def _try(option: str, parse: Callable[[], object]) -> None:
    """Raise `InputError` if one of vLLM's parsers, each with its own checks, cannot read an empty response."""
    try:
        parse()
    except Exception as error:
        raise InputError(f"{option}: vLLM's parser does not take this tokenizer: {error}") from None


def _vllm_names(module: str, manager: str, listed: str) -> list[str]:
    """Return the names of vLLM's parsers; none if it is not installed."""
    if find_spec("vllm") is None:
        return []
    found = getattr(import_module(f"vllm.{module}"), manager)
    return sorted({*found.lazy_parsers, *getattr(found, listed)})


def _all_marks(tokenizer: Any) -> frozenset[str]:
    """Return the special tokens that other parsers may need: all except those that end or fill a text."""
    plain = {tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token, tokenizer.unk_token}
    return frozenset({token.content for token in tokenizer.added_tokens_decoder.values() if token.special} - plain)


def offered_tools(definitions: Iterable[Mapping[str, Any]]) -> tuple[Tool, ...]:
    """Return definitions in OpenAI's format as tools, unchecked, since the chat template has accepted them."""
    bodies = [definition.get("function", definition) for definition in definitions]
    return tuple(Tool(str(body["name"]), "", body.get("parameters") or {}) for body in bodies)
