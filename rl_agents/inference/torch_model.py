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
