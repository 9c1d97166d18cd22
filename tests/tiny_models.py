"""Models of a few thousand parameters with random weights, the same ones for the same seed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM


def tiny_qwen(vocabulary: int, seed: int = 0, key_heads: int = 2, **shape: Any) -> Qwen2ForCausalLM:
    """Two layers of width 32."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=vocabulary, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=key_heads, tie_word_embeddings=True, initializer_range=0.1, **shape,
    )  # fmt: skip
    return Qwen2ForCausalLM(config).eval()


def write_sentence_model(folder: Path, words: Sequence[str]) -> str:
    """Write a sentence-transformers model of random weights, a BERT of one layer over ``words``; return its folder."""
    from sentence_transformers import SentenceTransformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    vocabulary = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words)
    tokenizer = BertTokenizerFast(vocab={word: number for number, word in enumerate(vocabulary)})
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    BertModel(config).save_pretrained(str(folder / "bert"))
    tokenizer.save_pretrained(str(folder / "bert"))
    SentenceTransformer(str(folder / "bert"), local_files_only=True).save(str(folder / "sentence"))
    return str(folder / "sentence")
