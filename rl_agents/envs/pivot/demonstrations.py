"""The warm-start model of the built-in help desk: a word-level tokenizer that writes JSON, and the imitated clerk."""

from __future__ import annotations

import random

from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from rl_agents.chat.messages import action_text
from rl_agents.chat.template import chat_text
from rl_agents.envs.pivot import PivotOptions
from rl_agents.envs.pivot.tasks import load_pivots
from rl_agents.envs.spec import StarterSpec
from rl_agents.envs.starters import (
    END_OF_TURN,
    IMITATION,
    PAD,
    RUNS,
    SPECIAL_TOKENS,
    UNKNOWN,
    byte_pieces,
    chat_tokenizer,
    small_qwen3,
)
from rl_agents.traces import desk

MAX_TOKENS = 256
TOOL = "<tool>"
CALL_TAGS = ("<tool_call>", "</tool_call>")

#: Tool definitions are one line of names. Calls have the form of `rl_agents.tools.calls.write_response`, so the model
#: reads its earlier calls as it has written them.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<{{ message.role }}>"
    "{% if loop.first and tools %}"
    "{% for tool in tools %} {{ tool.function.name }}"
    "{% for name in tool.function.parameters.properties %} {{ name }}{% endfor %};{% endfor %}\n"
    "{% endif %}"
    "{% if message.role == 'assistant' %}"
    "{{ message.content }}"
    "{% for call in message.tool_calls or [] %}"
    "<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
    "\n</tool_call>"
    "{% endfor %}<end>"
    "{% else %}{{ message.content }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build a lossless tokenizer of words, numbers and runs of punctuation, each with the blank before it."""
    special = [*SPECIAL_TOKENS, TOOL]
    split = byte_pieces(r" ?[A-Za-z_]+| ?[0-9]+|\n| ?[^\sA-Za-z0-9_]+|\s")
    words = sorted({piece for text in _texts() for piece, _ in split.pre_tokenize_str(text)})
    vocabulary = [*special, *CALL_TAGS, *words]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token=UNKNOWN))
    backend.pre_tokenizer = split
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    backend.add_tokens([AddedToken(token, special=False, normalized=False) for token in CALL_TAGS])
    return chat_tokenizer(backend, CHAT_TEMPLATE, MAX_TOKENS, pad_token=PAD, unk_token=UNKNOWN, eos_token=END_OF_TURN)


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    return small_qwen3(tokenizer, seed, hidden_size=96)


def demonstrate(task_id: str, rng: random.Random, options: PivotOptions, max_turns: int = 0) -> list[tuple[str, str]]:
    """Return the demonstrated action of a turn, or the clerk's action at the built-in desk."""
    turn = load_pivots(options).turns[task_id]
    text = turn.text if options.pivots else desk.beginner_action(turn, rng)
    return [("", text)]


def opening(task_id: str, options: PivotOptions) -> str:
    turn = load_pivots(options).turns[task_id]
    return chat_text(turn.messages, [tool.to_openai() for tool in turn.tools])


def _texts() -> list[str]:
    """Return texts with all pieces in the desk's traces and in the clerk's actions."""
    turns = desk.desk_turns()
    said = [message["content"] for turn in turns for message in turn.messages]
    actions = [action_text(message) for turn in turns for message in turn.messages if message["role"] == "assistant"]
    rng = random.Random("desk/words")
    beginner = [desk.beginner_action(turn, rng) for turn in turns for _ in range(4)]
    functions = [tool["function"] for tool in desk.TOOLS]
    names = [f" {name};" for f in functions for name in (f["name"], *f["parameters"]["properties"])]
    return [*said, *actions, *beginner, *names, *(turn.text for turn in turns)]


STARTER = StarterSpec(
    build_tokenizer=build_tokenizer,
    build_model=build_model,
    demonstrate=demonstrate,
    training={**IMITATION, "iterations": 16, "minibatches": 10, "tasks_per_iteration": 640, "demonstrations": 6144},
    defaults={**RUNS, "max_model_len": MAX_TOKENS, "max_response_tokens": 40, "iterations": 40, "eval_episodes": 256},
    opening=opening,
)
