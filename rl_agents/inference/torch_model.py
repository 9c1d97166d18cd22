"""The torch engine's model: loading it, and checks of its layers and of new weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from rl_agents.errors import InputError
from rl_agents.inference.base import EngineError, Weights
from rl_agents.inference.model_shape import attention, padding_begins, read_config
from rl_agents.inference.weights import FileNames
from rl_agents.startup import leave_out_sklearn

#: Torch allocates at multiples of this many bytes.
ALIGNMENT = 64


def aligned(model: Any) -> Any:
    """Copy weights out of the mapped file that they were loaded from if they are not aligned like torch's own.

    BLAS rounds products with one row depending on the alignment of a matrix, which in a mapped file depends on the
    length of its header. Without the copy a resumed run, whose weights are in another file, would sample with other
    last bits.
    """
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.device.type == "cpu" and tensor.data_ptr() % ALIGNMENT:
            tensor.data = tensor.data.clone()
    return model


#: Transformers' name of `grouped_attention`.
GROUPED = "grouped_sdpa"


def grouped_attention(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    attention_mask: torch.Tensor, dropout: float = 0.0, scaling: float | None = None, **kwargs: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """Attention in which query heads that share keys and values are rows of one head; Hugging Face's protocol.

    Where a mask is given, transformers copies keys and values for every query head. With three query heads for one of
    keys and 250 tokens in bfloat16, that makes attention for one new token take eight times as long on a CPU. Torch's
    ``enable_gqa`` takes four times as long there.

    Args:
        query: (rows, heads, tokens, dim).
        key, value: (rows, heads / groups, keys, dim).
        attention_mask: (rows, 1, tokens, keys), added to the scores.

    Returns:
        (rows, tokens, heads, dim).
    """
    rows, heads, tokens, dim = query.shape
    groups = heads // key.shape[1]
    folded = query.reshape(rows, heads // groups, groups * tokens, dim)
    mask = attention_mask.repeat(1, 1, groups, 1)
    output = torch.nn.functional.scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=scaling)
    return output.reshape(rows, heads, tokens, -1).transpose(1, 2).contiguous(), None


def group_heads(model: Any) -> int:
    """Let a model with fewer heads of keys than of queries use `grouped_attention`.

    Returns:
        The number of query heads that share keys; 1 if the model keeps its own attention.
    """
    config = model.config
    heads = getattr(config, "num_attention_heads", 1)
    groups: int = heads // (getattr(config, "num_key_value_heads", None) or heads)
    if groups == 1 or config._attn_implementation != "sdpa":
        return 1
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(GROUPED, grouped_attention)
    AttentionMaskInterface.register(GROUPED, sdpa_mask)
    model.set_attn_implementation(GROUPED)
    return groups


def load_options(model_dir: str | Path, dtype: str | torch.dtype) -> dict[str, Any]:
    return {
        **attention(read_config(model_dir)),
        "dtype": getattr(torch, dtype) if isinstance(dtype, str) else dtype,
        "local_files_only": True,
        "use_safetensors": True,
        "trust_remote_code": False,
    }


def load_causal_lm(model_dir: str | Path, dtype: str | torch.dtype) -> Any:
    """Load a causal language model from a local folder; safetensors only, no remote code.

    Its logits are those of the tokenizer's ids (`padding_begins`); weights do not change.

    Raises:
        InputError: it holds no model.
    """
    leave_out_sklearn()
    from transformers import AutoModelForCausalLM

    lm = aligned(AutoModelForCausalLM.from_pretrained(model_dir, **load_options(model_dir, dtype)))
    size, head = padding_begins(model_dir), lm.get_output_embeddings()
    if size is not None and head is not None:
        head.register_forward_hook(lambda module, inputs, logits: logits[..., :size])
    return lm


def check_folder(folder: Path, max_model_len: int) -> None:
    """Reject a model of a folder that this engine cannot sample from; raises as `check_attention`."""
    leave_out_sklearn()
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    check_attention(config, max_model_len)


def check_attention(config: Any, max_model_len: int) -> None:
    """Raise `InputError` for layers whose state is not plain keys and values, or windows shorter than the context."""
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    window = getattr(config, "sliding_window", None)
    if kinds <= {"full_attention", "sliding_attention"} and (window is None or window >= max_model_len):
        return
    raise InputError(
        f"the torch engine needs full attention; {config.model_type} has {json.dumps(sorted(kinds))} with window "
        f"{window} and max_model_len is {max_model_len}: use engine vllm or a shorter context"
    )


def fitting_parameters(model: Any, names: FileNames, weights: Weights) -> list[tuple[Any, torch.Tensor]]:
    """Return pairs of a parameter and the tensor to copy into it.

    Args:
        names: of the model.
        weights: by the model's names or those of its files.

    Raises:
        EngineError: names or shapes do not match the model.
    """
    try:
        weights = names.joined(weights)
    except ValueError as error:
        raise EngineError(f"torch engine: {error}") from None
    parameters = dict(model.named_parameters())
    known = parameters.keys() | model.state_dict().keys()
    if missing := parameters.keys() - weights.keys():
        raise EngineError(f"torch engine: sync lacks {len(missing)} weights, e.g. {min(missing)}")
    if surplus := weights.keys() - known:
        raise EngineError(f"torch engine: sync has {len(surplus)} unknown weights, e.g. {min(surplus)}")
    for name, parameter in parameters.items():
        if (found := weights[name].shape) != parameter.shape:
            raise EngineError(f"torch engine: {name} has shape {list(found)}, expected {list(parameter.shape)}")
    return [(parameter, weights[name]) for name, parameter in parameters.items()]
