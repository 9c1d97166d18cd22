"""A model's size from its config.json: context length, parameters, bytes of a token's keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_agents.config import Settings
from rl_agents.durable import read_json
from rl_agents.errors import InputError
from rl_agents.inference.hub import again, model_folder

#: Bytes of a number by dtype.
WIDTHS: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
#: Kinds of position scaling whose ``max_position_embeddings`` already is the scaled length (as in vLLM).
SCALED_ALREADY = ("su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling")
#: Names of a layer's number of experts in config.json.
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a decoder.

    Attributes:
        feed_forward: width of the feed-forward layer; of all experts together in a mixture of experts.
        context: maximum context in tokens; None if config.json does not say.
        tied: the vocabulary head is the embedding.
    """

    layers: int
    hidden: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    context: int | None
    tied: bool

    @property
    def parameters(self) -> int:
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        layer = attention + 3 * self.hidden * self.feed_forward
        return self.layers * layer + self.vocabulary * self.hidden * (1 if self.tied else 2)

    def kv_bytes(self, dtype: str) -> int:
        """Return the bytes of one token in an engine's KV cache: keys and values of all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * WIDTHS[dtype]


def check_model_dir(model_dir: str | Path) -> Path:
    """Return the folder of a model, which may be a public one in the cache (`rl_agents.inference.hub`).

    Raises:
        InputError: the folder or its config.json or its safetensors weights are missing.
    """
    folder = model_folder(model_dir)
    if not (folder / "config.json").is_file():
        places = [*folder.glob("hf/config.json"), *folder.glob("checkpoints/*/hf/config.json")]
        saved = max((path.parent for path in places), default=None)
        needed = f"take {saved}" if saved else f"a Hugging Face model folder is needed{again(folder, model_dir)}"
        raise InputError(f"model={model_dir}: no config.json; {needed}")
    if not any(folder.glob("*.safetensors")):
        raise InputError(
            f"model={model_dir}: no *.safetensors weights (other formats are not loaded){again(folder, model_dir)}"
        )
    return folder


def model_shape(config: Mapping[str, Any]) -> ModelShape | None:
    """Read a Hugging Face configuration; None if it is no decoder of the usual form."""
    config = config.get("text_config") or config
    try:
        hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
        experts = int(next((config[name] for name in EXPERTS if config.get(name)), 1))
        width = config.get("moe_intermediate_size") if experts > 1 else None
        return ModelShape(
            layers=int(config["num_hidden_layers"]),
            hidden=hidden,
            feed_forward=int(width or config["intermediate_size"]) * experts,
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or hidden // heads),
            vocabulary=int(config["vocab_size"]),
            context=context_limit(config),
            tied=bool(config.get("tie_word_embeddings", False)),
        )
    except (KeyError, TypeError, ValueError):
        return None


def padding_begins(model_dir: str | Path) -> int | None:
    """Return the first id that the model embeds and its tokenizer lacks; None if there is none, or it is unknown.

    Embeddings are padded to round numbers. Padding ids have no text, so engines and learner exclude them.
    """
    folder = Path(model_dir)
    if not (folder / "tokenizer.json").is_file():
        return None
    from tokenizers import Tokenizer

    ids = set(Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab(with_added_tokens=True).values())
    if (folder / "tokenizer_config.json").is_file():
        added = read_json(folder / "tokenizer_config.json", dict).get("added_tokens_decoder")
        ids |= {int(token) for token in added or ()}
    shape = model_shape(read_config(folder))
    return max(ids) + 1 if ids and shape and max(ids) + 1 < shape.vocabulary else None


def context_limit(config: Mapping[str, Any]) -> int | None:
    """Return a model's maximum context in tokens, including position scaling; None if its configuration has none."""
    config = config.get("text_config") or config
    positions = config.get("max_position_embeddings") or config.get("n_positions")
    if not isinstance(positions, int):
        return None
    kind, rope = _rope(config)
    factor = rope.get("factor") if kind not in SCALED_ALREADY else None
    return int(positions * (factor or 1))


def check_context(settings: Settings, limit: int | None) -> None:
    """Reject a context length that the model does not support.

    Args:
        limit: maximum context length of the model in tokens; None if unknown.

    Raises:
        InputError: ``max_model_len`` is beyond it.
    """
    if limit is not None and settings.max_model_len > limit:
        raise InputError(
            f"max_model_len={settings.max_model_len}: model={settings.model} reads {limit} tokens at most "
            "(max_position_embeddings)"
        )


def _rope(config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return kind and parameters of the position scaling; ("", {}) without one."""
    rope = config.get("rope_scaling") or config.get("rope_parameters")
    return (rope.get("rope_type", rope.get("type", "")), rope) if isinstance(rope, Mapping) else ("", {})


def rope_limit(config: Mapping[str, Any]) -> int | None:
    """Return the length beyond which rotary frequencies depend on a sequence's length; None if they never do.

    transformers uses the frequencies of a batch's longest row, vLLM those of ``max_model_len`` for every row.
    """
    config = config.get("text_config") or config
    kind, rope = _rope(config)
    if kind not in ("longrope", "su", "dynamic"):
        return None
    limit = (
        rope.get("original_max_position_embeddings")
        or config.get("original_max_position_embeddings")
        or config.get("max_position_embeddings")
    )
    return int(limit) if limit else None


def attention(config: Mapping[str, Any]) -> dict[str, str]:
    """Return a model loader's options for attention.

    PyTorch's own attention cannot cap its logits (Gemma 2), and transformers omits the cap without a warning.
    """
    return {"attn_implementation": "eager"} if config.get("attn_logit_softcapping") else {}


def read_config(model_dir: str | Path) -> dict[str, Any]:
    """Return the folder's config.json.

    Raises:
        InputError: it is absent or no JSON object.
    """
    path = Path(model_dir) / "config.json"
    try:
        return read_json(path, dict)
    except FileNotFoundError:
        raise InputError(f"model={model_dir}: no config.json; a Hugging Face model folder is needed") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
