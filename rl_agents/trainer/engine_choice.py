"""Choose the engine for ``engine=auto`` and the type for ``dtype=auto`` once, when a run begins; its configuration
records the choice.

The torch engine is used if vLLM cannot run, and on CPUs for models and contexts up to `TORCH_PARAMETERS` and
`TORCH_CONTEXT`. vLLM is used otherwise: with a GPU, with keys that only vLLM supports, and for layers that the torch
engine cannot cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl_agents.config import Settings
from rl_agents.config.options import keys_of
from rl_agents.config.sections import NOT_TORCH, EngineKeys
from rl_agents.envs.base import run_starter
from rl_agents.errors import InputError
from rl_agents.inference.engines import ENGINES, resolve_engine
from rl_agents.inference.hub import model_folder
from rl_agents.inference.model_shape import model_shape, read_config
from rl_agents.trainer.warm_start_folder import starter_config, starter_folder

#: Parameters and context up to which the torch engine is faster on a CPU: the largest that were measured
#: (benchmarks/results/engine_choice.json). With prompts of 1,000 tokens vLLM is faster even with 0.1 M parameters.
TORCH_PARAMETERS, TORCH_CONTEXT = 22_000_000, 384
LIMITS = f"{TORCH_PARAMETERS / 1e6:g} M parameters and contexts of {TORCH_CONTEXT} tokens"
#: Keys that the torch engine does not support, with their defaults.
ONLY_VLLM = {key.name: key.default for key in keys_of(EngineKeys).values() if key.needs == NOT_TORCH}


def settle_engine(settings: Settings) -> None:
    """Replace ``engine=auto`` by an engine for a checked model, and write the reason into ``engine_choice``."""
    if settings.engine != "auto":
        if settings.complete and "engine" not in settings.explicit:
            settings.engine_choice = f"engine {settings.engine}: as this run began"
        return
    settings.engine, settings.engine_choice = choose_engine(settings)


def settle_dtype(settings: Settings) -> None:
    """Replace ``dtype=auto`` by bfloat16 where it is fast, else by float32.

    Matrix products of a model of 135 M parameters took 1.4 to 4.6 times as long as in float32 on a CPU restricted to
    AVX2, and half as long with instructions for bfloat16 (from 8 rows on).
    """
    if settings.dtype == "auto":
        settings.dtype = "bfloat16" if settings.gpus_per_learner or fast_bfloat16() else "float32"


def fast_bfloat16() -> bool:
    """Return whether the GPU, or the CPU of a machine without one, has instructions for bfloat16."""
    import torch

    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return any(found for name, found in torch.cpu.get_capabilities().items() if "bf16" in name)


def choose_engine(settings: Settings) -> tuple[str, str]:
    """Return ``("vllm" | "torch", reason)``; the reason is a sentence."""
    import torch

    kind, reason = resolve_engine("auto")
    if kind == "torch" or torch.cuda.is_available():
        return kind, reason
    if why := _needs_vllm(settings):
        return "vllm", f"engine vllm: {why}"
    shape = model_shape(model_config(settings))
    if shape is None:
        return "vllm", "engine vllm: the model's size is not in its config.json; engine=torch overrides this"
    small = shape.parameters <= TORCH_PARAMETERS and settings.max_model_len <= TORCH_CONTEXT
    kind, other = ("torch", "vllm") if small else ("vllm", "torch")
    what = f"{shape.parameters / 1e6:.2g} M parameters, contexts of {settings.max_model_len} tokens"
    rule = f"on CPUs torch costs less up to {LIMITS} (docs/research/speed.md)"
    return kind, f"engine {kind}: {what}; {rule}; engine={other} overrides this"


def small_models(kind: str) -> str:
    """Return the addition to `resolve_engine`'s reason if ``kind`` also depends on the model."""
    import torch

    if kind == "torch" or torch.cuda.is_available():
        return ""
    return f" For models of up to {LIMITS}, engine=auto uses torch, which is faster on CPUs."


def model_config(settings: Settings) -> Mapping[str, Any]:
    """Return the config.json of a run's model, also of a warm-start model that is not built yet."""
    if settings.model != "starter":
        return read_config(model_folder(settings.model))
    env, starter = run_starter(settings)
    folder = starter_folder(env, starter, settings.starter_iterations)
    return read_config(folder) if (folder / "config.json").is_file() else starter_config(starter)


def _needs_vllm(settings: Settings) -> str:
    for name, default in ONLY_VLLM.items():
        if name in settings.explicit or getattr(settings, name) != default:
            return f"the torch engine has no {name}"
    if settings.tensor_parallel > 1 or settings.gpus_per_engine:
        return "it has GPUs"
    return _uncached(settings)


def _uncached(settings: Settings) -> str:
    if settings.model == "starter":
        return ""
    try:
        ENGINES["torch"].check_model(settings, model_folder(settings.model))
    except InputError as error:
        return str(error)
    return ""
