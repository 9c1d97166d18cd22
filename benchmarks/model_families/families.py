"""Small random models of each family: two layers of width 64, built from a configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Two layers with two heads of 32 (the smallest that vLLM's CPU attention supports) and one key-value head.
SMALL: Mapping[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
EXPERTS: Mapping[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
#: Multi-head latent attention as in DeepSeek V2 and V3.
LATENT: Mapping[str, Any] = {
    "num_key_value_heads": 2, "kv_lora_rank": 512, "q_lora_rank": 24, "qk_nope_head_dim": 32, "qk_rope_head_dim": 64,
    "v_head_dim": 32, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1,
}  # fmt: skip
VISION: Mapping[str, Any] = {
    "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "image_size": 32, "patch_size": 8,
}  # fmt: skip


@dataclass(frozen=True)
class Family:
    """A model family.

    Attributes:
        kind: ``model_type`` of its configuration.
        models: its public models.
        keys: of the configuration, in addition to `SMALL`.
        nested: part of the configuration, such as ``text_config`` -> keys.
        tied: the vocabulary head is the embedding.
        template: style of its chat template (`benchmarks.model_families.templates`).
        window: size of a sliding attention window, if some layer has one.
    """

    name: str
    kind: str
    models: str
    keys: Mapping[str, Any] = field(default_factory=dict)
    nested: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tied: bool = False
    template: str = "chatml"
    window: int | None = None


WINDOW = 64
ALTERNATING = ("sliding_attention", "full_attention")
FAMILIES: tuple[Family, ...] = (
    Family("qwen2", "qwen2", "Qwen2, Qwen2.5, QwQ", tied=True, template="qwen2"),
    Family("qwen3", "qwen3", "Qwen3", {"head_dim": 32}, tied=True, template="qwen3"),
    Family("qwen3_moe", "qwen3_moe", "Qwen3-30B-A3B, 235B-A22B", {"head_dim": 32, **EXPERTS}, template="qwen3"),
    Family(
        "llama3", "llama", "Llama 3, 3.1, 3.2, 3.3",
        {"rope_parameters": {
            "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        }}, template="llama3",
    ),
    Family("mistral", "mistral", "Mistral 7B v0.1 (window)", {"sliding_window": WINDOW}, template="mistral",
           window=WINDOW),
    Family("ministral3", "ministral3", "Ministral 3", {"head_dim": 32}, template="mistral"),
    Family("mixtral", "mixtral", "Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}, template="mistral"),
    Family("gemma2", "gemma2", "Gemma 2", {
        "head_dim": 32, "layer_types": ALTERNATING, "sliding_window": WINDOW, "query_pre_attn_scalar": 32,
        "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0,
    }, tied=True, template="gemma", window=WINDOW),
    Family("gemma3", "gemma3_text", "Gemma 3 1B (text)", {
        "head_dim": 32, "layer_types": ALTERNATING, "sliding_window": WINDOW, "query_pre_attn_scalar": 32,
    }, tied=True, template="gemma", window=WINDOW),
    Family("phi3", "phi3", "Phi-3, Phi-3.5, Phi-4", template="phi"),
    Family("phi3_long", "phi3", "Phi-3 and Phi-4-mini of 128k (longrope)", {
        "original_max_position_embeddings": 128,
        "rope_parameters": {
            "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 16, "long_factor": [2.0] * 16,
            "original_max_position_embeddings": 128,
        },
    }, template="phi"),
    Family("glm4", "glm4", "GLM-4-0414, GLM-Z1", {"head_dim": 32, "partial_rotary_factor": 0.5}, template="glm"),
    Family("glm4_moe", "glm4_moe", "GLM-4.5, GLM-4.6", {
        "head_dim": 32, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
        "moe_intermediate_size": 32, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1,
    }, template="glm"),
    Family("deepseek_v2", "deepseek_v2", "DeepSeek-V2-Lite", {**LATENT, "topk_method": "greedy"}, template="deepseek"),
    Family("deepseek_v3", "deepseek_v3", "DeepSeek-V3, R1, Moonlight", {**LATENT, "topk_method": "noaux_tc"},
           template="deepseek"),
    Family("smollm3", "smollm3", "SmolLM3", {"no_rope_layers": [1, 0]}, tied=True, template="chatml"),
    Family("olmo2", "olmo2", "OLMo 2", template="chatml"),
    Family("olmo3", "olmo3", "Olmo 3", {"layer_types": ALTERNATING, "sliding_window": WINDOW}, window=WINDOW),
    Family("olmoe", "olmoe", "OLMoE", {"num_experts": 4, "num_experts_per_tok": 2}),
    Family("cohere", "cohere", "Command R", {"logit_scale": 0.0625}, tied=True, template="chatml"),
    Family("granite", "granite", "Granite 3", {
        "logits_scaling": 8.0, "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
        "attention_multiplier": 0.0625,
    }, tied=True),
    Family("gpt_oss", "gpt_oss", "gpt-oss (bfloat16 weights)", {
        "head_dim": 32, "num_local_experts": 4, "num_experts_per_tok": 2, "layer_types": ALTERNATING,
        "sliding_window": WINDOW,
    }, window=WINDOW),
    Family("qwen3_next", "qwen3_next", "Qwen3-Next (linear attention)", {
        "head_dim": 32, "layer_types": ("linear_attention", "full_attention"), "linear_num_key_heads": 2,
        "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
        "shared_expert_intermediate_size": 32, **EXPERTS,
    }, template="qwen3"),
    Family("gemma3_vlm", "gemma3", "Gemma 3 4B, 12B, 27B (images)", nested={
        "text_config": {
            "head_dim": 32, "layer_types": ALTERNATING, "sliding_window": WINDOW, "query_pre_attn_scalar": 32,
        },
        "vision_config": {**VISION, "num_hidden_layers": 3},
    }, tied=True, template="gemma", window=WINDOW),
    Family("qwen2_5_vl", "qwen2_5_vl", "Qwen2.5-VL (images)", nested={
        "text_config": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 6, 6]}},
        "vision_config": {
            "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "depth": 3, "out_hidden_size": 64,
        },
    }, template="qwen2"),
)  # fmt: skip


def small_config(family: Family, vocabulary: int, **changes: Any) -> Any:
    from transformers import AutoConfig

    shared = {**SMALL, "vocab_size": vocabulary, "tie_word_embeddings": family.tied}
    if not family.nested:
        return AutoConfig.for_model(family.kind, **_lists({**shared, **family.keys, **changes}))
    parts = {name: _lists(keys) for name, keys in family.nested.items()}
    parts["text_config"] = {**shared, **parts["text_config"], **changes}
    return AutoConfig.for_model(family.kind, tie_word_embeddings=family.tied, **parts)


def save_model(family: Family, folder: Path, tokenizer: Any, seed: int = 0, **changes: Any) -> Path:
    """Write a model with random weights, far from uniform distributions, and a tokenizer into a folder."""
    import torch

    torch.manual_seed(seed)
    model = new_model(small_config(family, len(tokenizer), **changes))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.2)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def new_model(config: Any) -> Any:
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    kind = (
        AutoModelForImageTextToText if "vision_config" in json.loads(config.to_json_string()) else AutoModelForCausalLM
    )
    return kind.from_config(config)


def _lists(keys: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in keys.items()}
