"""A model that says what it was told to: its layers add nothing, and after each token its head prefers the next."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rl_agents.envs.guess_numbers.demonstrations import words
from rl_agents.envs.starters import END_OF_TURN, TAGS, small_qwen3, word_tokenizer

#: Prompts end with this token, so the first word follows it.
START = "<assistant>"
CALL = ["<tool_call>", '{"name":', '"add",', '"arguments":', '{"a":', "1}}", "</tool_call>"]
#: Enough for guided decoding to write JSON objects and calls of `add`; no text is cut into these.
JSON_WORDS = ["\n", "}", "2", "false", '{"b":', '{"name": "add", "arguments": ']
MORE_WORDS = ["hello", "dear", "world", "good", "bye", "STOP", *CALL, *JSON_WORDS]
MAX_TOKENS = 64
#: guess_numbers' template, with the names of the tools before everything else.
TEMPLATE = (
    "{% for tool in tools or [] %}<system> hello {% endfor %}"
    "{% for m in messages %}{% if m.role == 'assistant' %}<assistant> {{ m.content }} <end> "
    "{% else %}<{{ m.role if m.role != 'tool' else 'user' }}> {{ m.content }} {% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def write_model(folder: Path, said: Sequence[str]) -> Path:
    """Write a model that answers everything with the words ``said``, each of which occurs once.

    Args:
        folder: to create; it becomes a Hugging Face folder.
        said: known words; an end of turn follows the last.
    """
    tokenizer = _tokenizer()
    model = small_qwen3(tokenizer, seed=0, layers=1, hidden_size=256)
    model.config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(torch.zeros_like(model.lm_head.weight))
    vocabulary = tokenizer.get_vocab()
    chain = [vocabulary[word] for word in (START, *said, END_OF_TURN)]
    assert len(set(chain)) == len(chain) and vocabulary["<unk>"] not in chain
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        embedding = model.get_input_embeddings().weight
        for now, following in itertools.pairwise(chain):
            model.lm_head.weight[following] += 2.0 * embedding[now] / embedding[now].norm()
    return _save(folder, model, tokenizer)


def write_babbler(folder: Path) -> Path:
    """Write an untrained model: it says anything."""
    tokenizer = _tokenizer()
    return _save(folder, small_qwen3(tokenizer, seed=0), tokenizer)


def _tokenizer() -> Any:
    tokenizer = word_tokenizer([*words(), *MORE_WORDS], TAGS, MAX_TOKENS)
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def _save(folder: Path, model: Any, tokenizer: Any) -> Path:
    model.save_pretrained(folder, safe_serialization=True)
    tokenizer.save_pretrained(folder)
    return folder
