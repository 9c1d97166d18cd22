"""Load models from Hugging Face folders, set their activation checkpointing, and write them back."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from rl_agents.inference.torch_model import aligned, load_options
from rl_agents.startup import leave_out_sklearn

TOKENIZER_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "rl_agents.json",
)


def load_backbone(model_dir: str | Path, dtype: str) -> Any:
    leave_out_sklearn()
    from transformers import AutoModel

    return aligned(AutoModel.from_pretrained(model_dir, **load_options(model_dir, dtype)))


def save_hf_folder(folder: Path, weights: Mapping[str, torch.Tensor], source_dir: str | Path) -> None:
    """Write ``weights`` as model.safetensors alongside the config and tokenizer files of ``source_dir``."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    for name in TOKENIZER_FILES:
        if (Path(source_dir) / name).is_file():
            shutil.copyfile(Path(source_dir) / name, folder / name)


def enable_recompute(model: Any, granularity: str) -> None:
    """Enable activation checkpointing: the backward pass recomputes activations.

    `full` keeps the input of each layer. `selective` also keeps the outputs of matrix products and of attention, which
    are nearly all of a layer's work, and recomputes only norms, rotations, the activation function, products of gates
    and casts. Products with a narrower output are not kept: keys and values of grouped attention cost little, and the
    last product of a layer is never needed again. Korthikanti et al., 2205.05198, by PyTorch's
    `create_selective_checkpoint_contexts` in transformers' own switch.
    """
    options: dict[str, Any] = {"use_reentrant": False}
    if granularity == "selective":
        from torch.utils.checkpoint import create_selective_checkpoint_contexts

        options["context_fn"] = partial(create_selective_checkpoint_contexts, _policy)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)


def _policy(context: Any, operator: Any, *arguments: Any, **keywords: Any) -> Any:
    from torch.utils.checkpoint import CheckpointPolicy

    name = operator.name().partition(".")[0]
    if name in ("aten::mm", "aten::addmm"):
        left, right = (argument for argument in arguments[-2:] if isinstance(argument, Tensor))
        keep = left.shape[1] <= right.shape[1]
    else:
        keep = "attention" in name
    return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE
