"""Traces for tests: a small dialogue to break in many ways, and the real files where they are at hand."""

import copy
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from rl_agents.envs.starters import phrase_tokenizer, small_qwen3
from rl_agents.traces.files import load_turns

SHARED_DATA = Path(os.environ.get("RL_AGENTS_SHARED_DATA") or Path(__file__).parents[3] / "shared" / "data")

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "weather", "description": "Weather of a city.", "parameters": CITY}}


def call(name: str, arguments: Any, call_id: str = "c1") -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


GOOD: dict[str, Any] = {
    "id": "good", "tools": [TOOL],
    "messages": [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": "Rain in Rome?"},
        {"role": "assistant", "content": None, "tool_calls": [call("weather", {"city": "Rome"})]},
        {"role": "tool", "tool_call_id": "c1", "content": "dry"},
        {"role": "assistant", "content": "No rain in Rome.", "reasoning_content": "It says dry."},
    ],
}  # fmt: skip


def changed(*path: Any, value: Any) -> dict[str, Any]:
    """Return the good trace with one place changed."""
    record = copy.deepcopy(GOOD)
    _parent(record, path)[path[-1]] = value
    return record


def without(*path: Any) -> dict[str, Any]:
    """Return the good trace with one place left out."""
    record = copy.deepcopy(GOOD)
    del _parent(record, path)[path[-1]]
    return record


def _parent(place: Any, path: Sequence[Any]) -> Any:
    for step in path[:-1]:
        place = place[step]
    return place


def real_file(*parts: str) -> Path:
    """Return a file of the shared data, or skip the test."""
    path = SHARED_DATA.joinpath(*parts)
    if not path.is_file():
        pytest.skip(f"no {path} (set RL_AGENTS_SHARED_DATA)")
    return path


def nemo(folder: str, name: str = "example.jsonl") -> Path:
    return real_file("nemo_gym", f"resources_servers_{folder}_data", name)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


#: The form of Qwen 2.5 and 3: tools as JSON in the system message, calls as JSON between tags.
TEMPLATE = (
    "{% if tools or messages[0].role == 'system' %}<|im_start|>system\n"
    "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}"
    "{% for tool in tools or [] %}\n{{ tool | tojson }}{% endfor %}<|im_end|>\n{% endif %}"
    "{% for message in messages %}{% if message.role != 'system' %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}"
    "{% for call in message.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def trace_tokenizer(texts: list[str], max_tokens: int) -> PreTrainedTokenizerFast:
    """Train a byte-level tokenizer that writes tools and calls as Qwen does."""
    tokenizer = phrase_tokenizer(texts, r"\n", 2048, max_tokens)
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def write_untrained(traces: Path, folder: Path) -> str:
    """Write an untrained model that can read the traces, and return its folder."""
    turns = load_turns(traces)
    texts = [json.dumps(tool.to_openai()) for turn in turns for tool in turn.tools]
    texts += [text for turn in turns for text in (turn.text, *(message["content"] for message in turn.messages))]
    tokenizer = trace_tokenizer(sorted(set(texts)), 8192)
    small_qwen3(tokenizer, 0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
