"""Models of a few thousand parameters with random weights, the same ones for the same seed."""

from __future__ import annotations

from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM


def tiny_qwen(vocabulary: int, seed: int = 0, **shape: Any) -> Qwen2ForCausalLM:
    """Two layers of width 32."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=vocabulary, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, tie_word_embeddings=True, initializer_range=0.1, **shape,
    )  # fmt: skip
    return Qwen2ForCausalLM(config).eval()
