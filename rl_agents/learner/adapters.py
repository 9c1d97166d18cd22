"""LoRA adapters as peft's folders, adapter_config.json and adapter_model.safetensors, beside the merged model."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from rl_agents.inference.adapters import TENSORS
from rl_agents.inference.hub import HUB_NAME
from rl_agents.learner.fsdp import full_tensor, is_rank_zero

#: Folder of a checkpoint, beside ``hf``.
ADAPTER = "adapter"


def save_adapter(folder: Path, model: Any, base: str, base_dir: str) -> None:
    """Write the adapters of ``model`` as ``peft.PeftModel.from_pretrained`` and vLLM's ``LoRARequest`` read them.

    Tensors are float32, as they are trained. Of sharded learners all must call this, and the first one writes.

    Args:
        folder: made where it is missing.
        model: peft's.
        base: the run's key ``model``; of a public model its name and commit are written down.
        base_dir: folder that the base was loaded from, written down for all others.
    """
    from peft.utils.save_and_load import get_peft_model_state_dict

    tensors = _trained(model)
    if not is_rank_zero():
        return
    named = get_peft_model_state_dict(model, state_dict=tensors, save_embedding_layers=False)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(dict(sorted(named.items())), folder / TENSORS, metadata={"format": "pt"})
    _config(model, base, base_dir).save_pretrained(str(folder))


def _trained(model: nn.Module) -> dict[str, torch.Tensor]:
    """The adapters' tensors, whole and on the CPU; empty on all learners but the first."""
    found = {}
    for name, tensor in model.state_dict().items():
        if "lora_" in name:
            whole = full_tensor(tensor.detach())
            if is_rank_zero():
                found[name] = whole.cpu().contiguous()
    return found


def _config(model: Any, base: str, base_dir: str) -> Any:
    """peft's configuration of the adapters; with names in order, so that equal runs write equal files."""
    config = copy.copy(model.peft_config["default"])
    public = None if Path(base).is_dir() else HUB_NAME.fullmatch(base)
    config.base_model_name_or_path = public["name"] if public else str(Path(base_dir).resolve())
    config.revision = public["revision"] if public else None
    config.target_modules = sorted(config.target_modules)
    config.inference_mode = True
    return config
