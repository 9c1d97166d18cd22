"""Chat model folders: a tiny Qwen3 and a byte-level tokenizer with a chat template and tools."""

from pathlib import Path
from typing import Any

import chat_tokenizers

TOOLS = (
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
)


def save_chat_model(folder: Path, **config: Any) -> Path:
    """Write a model of about 60,000 weights that reads 32,768 tokens; ``config`` are keys of `Qwen3Config`."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = chat_tokenizers.qwen()
    template, tokenizer.chat_template = tokenizer.chat_template, TOOLS + tokenizer.chat_template
    tokenizer.save_pretrained(folder)
    tokenizer.chat_template = template
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": True,
    }
    Qwen3ForCausalLM(Qwen3Config(**{**sizes, **config})).save_pretrained(folder)
    return folder
