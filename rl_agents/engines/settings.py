"""Settings that all engines share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class EngineSettings:
    """How to build one engine.

    Attributes:
        model_dir: folder with a Hugging Face checkpoint (config.json and weights); no tokenizer is needed.
        kind: ``torch`` or ``vllm`` (see `rl_agents.engines.select.resolve_engine` for ``auto``).
        mode: for vLLM: ``inprocess`` (one process, light: CPU) or ``async`` (a core process and
            ``tensor_parallel`` workers: GPU).
        dtype: ``float32``, ``bfloat16`` or ``float16``.
        max_model_len: longest prompt plus response, in tokens.
        max_batch: most requests decoded together; more wait.
        kv_cache_gb: memory for vLLM's KV cache in GiB; None: 0.25 on CPU, and on a GPU
            vLLM's own share of the memory. The torch engine grows its cache as needed.
        tensor_parallel: GPUs for one engine (``async`` only).
        seed: seeds the requests that bring none of their own.
        threads: CPU threads of one engine.
        vllm_args: further fields of vLLM's ``EngineArgs``; they win over ours.
    """

    model_dir: str
    kind: str = "torch"
    mode: str = "inprocess"
    dtype: str = "float32"
    max_model_len: int = 1024
    max_batch: int = 128
    kv_cache_gb: float | None = None
    tensor_parallel: int = 1
    seed: int = 0
    threads: int = 1
    vllm_args: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in ("torch", "vllm") or self.mode not in ("inprocess", "async"):
            raise ValueError(f"no engine of kind {self.kind!r} and mode {self.mode!r}")
        if self.tensor_parallel > 1 and (self.kind, self.mode) != ("vllm", "async"):
            raise ValueError("tensor_parallel > 1 needs kind='vllm' and mode='async'")
        if self.max_model_len < 2 or self.max_batch < 1:
            raise ValueError(f"max_model_len {self.max_model_len} must be >= 2 and max_batch {self.max_batch} >= 1")
