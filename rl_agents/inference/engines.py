"""The inference engines, one row each (`ENGINES`): which one a run uses, what it supports, and building it.

Another engine is a class with the methods of `rl_agents.inference.base.StreamingEngine`, in a file of its own, and a
row, which a plugin adds by `register_engine`. Which of the built-in ones ``engine=auto`` takes for a model on a CPU is
the rule of `rl_agents.trainer.engine_choice`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rl_agents.config import Settings
from rl_agents.errors import InputError, unknown
from rl_agents.inference import vllm_checks
from rl_agents.inference.base import EngineSettings, StreamingEngine
from rl_agents.inference.model_shape import context_limit, read_config
from rl_agents.plugins import register

#: Longest context of an opponent's model in tokens, if nothing else limits it.
MAX_CONTEXT = 8192


def _check_torch(settings: Settings, folder: Path) -> None:
    from rl_agents.inference.torch_model import check_folder

    check_folder(folder, settings.max_model_len)


@dataclass(frozen=True)
class EngineKind:
    """An engine and its capabilities. Functions that say why not return an empty string if it can.

    Attributes:
        name, summary, reference: as `run.py list` shows them.
        build: ``module:name`` of what takes `EngineSettings` and returns a `StreamingEngine`; imported only in the
            process of an engine.
        obstacle: returns why it cannot run here, and a sentence how to fix that.
        check_model: raises `InputError` for models and contexts that it cannot sample from as the learner computes
            them.
        automatic: ``engine=auto`` may take it; the first such row without an obstacle.
        extras: it supports `rl_agents.inference.base.Extras`: guided decoding, the likeliest tokens, penalties.
        borrows: `StreamingEngine.load_weights` takes any dtype and keeps no reference, so that an engine in the
            learner's process needs no copy.
        no_sleep: why it cannot free its memory (``engine_sleep``).
        no_keep: why it cannot load weights during responses (``weight_switch=keep``).
    """

    name: str
    summary: str
    reference: str
    build: str
    obstacle: Callable[[], tuple[str, str]] = lambda: ("", "")
    check_model: Callable[[Settings, Path], None] = lambda settings, folder: None
    automatic: bool = False
    extras: bool = False
    borrows: bool = False
    no_sleep: Callable[[Settings], str] = lambda settings: "it has no sleep mode"
    no_keep: Callable[[], str] = lambda: "it does not report each token's weights"


ENGINES: dict[str, EngineKind] = {
    kind.name: kind
    for kind in (
        EngineKind(
            "vllm",
            "continuous batching and prefix caching, on GPUs or (CPU build) on CPUs",
            "Kwon et al. 2023, PagedAttention, https://arxiv.org/abs/2309.06180",
            "rl_agents.inference.vllm_engine:VLLMEngine",
            vllm_checks.obstacle,
            vllm_checks.check_model,
            automatic=True,
            extras=True,
            no_sleep=vllm_checks.no_sleep,
            no_keep=lambda: "",
        ),
        EngineKind(
            "torch",
            "a small built-in engine with a KV cache: for small models, --local, and machines without vLLM",
            "rl_agents/inference/torch_engine.py",
            "rl_agents.inference.torch_engine:TorchEngine.from_settings",
            check_model=_check_torch,
            automatic=True,
            borrows=True,
            no_keep=lambda: "",
        ),
    )
}


def register_engine(kind: EngineKind) -> None:
    """Add an engine; raises `InputError`: its name is taken."""
    register("engine", ENGINES, kind)


def able(has: Callable[[EngineKind], bool]) -> str:
    """Return the names of engines with a capability, for messages."""
    return " or ".join(f"engine={kind.name}" for kind in ENGINES.values() if has(kind))


def resolve_engine(name: str) -> tuple[str, str]:
    """Turn ``auto`` into an engine that works here, without importing it.

    Returns:
        Its name and the reason, a sentence for the log.

    Raises:
        InputError: ``name`` is unknown, or that engine cannot run here.
    """
    if name == "auto":
        return _first_without_obstacle()
    if name not in ENGINES:
        raise unknown("engine", name, ("auto", *ENGINES))
    obstacle, remedy = ENGINES[name].obstacle()
    if obstacle:
        raise InputError(f"engine {name} cannot run here: {obstacle}. {remedy}")
    return name, f"engine {name}: as asked."


def _first_without_obstacle() -> tuple[str, str]:
    reasons = list[str]()
    for kind in (kind for kind in ENGINES.values() if kind.automatic):
        obstacle, remedy = kind.obstacle()
        if not obstacle:
            return kind.name, f"engine {kind.name}: {' '.join(reasons) or 'it is installed and fits this machine.'}"
        reasons.append(f"{obstacle}. {remedy}")
    raise InputError(f"no engine can run here: {' '.join(reasons)}")


def check_engine(settings: Settings) -> None:
    """Reject keys that the run's engine does not support. Raises `InputError`: the first one."""
    kind = ENGINES[resolve_engine(settings.engine)[0]]
    if settings.weight_switch == "keep" and (why := kind.no_keep()):
        others = able(lambda other: other is not kind and not other.no_keep())
        raise InputError(f"weight_switch=keep with engine={kind.name}: {why}; use weight_switch=wait, or {others}")
    if settings.num_env_runners == 0:
        why = "only engines in actors of their own sleep"
    elif settings.async_level or settings.stream:
        why = "with async_level or stream, engines sample while the learners train and cannot sleep"
    else:
        why = kind.no_sleep(settings)
    if settings.engine_sleep and why:
        raise InputError(f"engine_sleep={settings.engine_sleep} with engine={kind.name}: {why}")


def build_engine(settings: EngineSettings) -> StreamingEngine:
    engine: StreamingEngine = pkgutil.resolve_name(settings.build or ENGINES[settings.kind].build)(settings)
    return engine


@lru_cache(maxsize=4)  # for all environments of a process
def local_engine(folder: str, max_model_len: int = 0) -> Any:
    """Return a torch engine in this process, for opponents; 0 tokens: the model's limit, at most `MAX_CONTEXT`."""
    from rl_agents.inference.torch_engine import TorchEngine

    limit = context_limit(read_config(Path(folder))) or MAX_CONTEXT
    return TorchEngine(folder, max_model_len=max_model_len or min(limit, MAX_CONTEXT))


def run_engine(settings: Settings, model_dir: str, name: str) -> EngineSettings:
    """Return the engine settings of a run; ``name`` is from `resolve_engine`, the weights are in ``model_dir``."""
    return EngineSettings(
        model_dir=model_dir,
        kind=name,
        build=ENGINES[name].build,
        mode=settings.engine_mode,
        dtype=settings.dtype,
        max_model_len=settings.max_model_len,
        kv_cache_gb=settings.kv_cache_gb or None,
        gpu_share=settings.gpus_per_engine,
        tensor_parallel=settings.tensor_parallel,
        seed=settings.seed,
        weight_switch=settings.weight_switch,
        switch_timeout_s=settings.engine_timeout_s,
        sleeps=bool(settings.engine_sleep),
    )
