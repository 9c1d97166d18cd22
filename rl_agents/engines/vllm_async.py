"""vLLM's AsyncLLM: a core process and, with tensor parallelism, one worker per GPU."""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rl_agents.engines.base import Completion, EngineError, EngineSettings, OnTokens, Sampling, Weights
from rl_agents.engines.vllm_common import (
    Counters,
    completion,
    engine_args,
    prepare_environment,
    register_model_class,
    sampled,
    sampling_params,
)
from rl_agents.engines.weights import layout, untied, write


class VLLMAsyncEngine:
    """For GPUs; runs on CPUs too. Build it in a coroutine or beside a running event loop."""

    def __init__(self, settings: EngineSettings) -> None:
        """Start vLLM's processes.

        Raises:
            InputError: there is no model in ``settings.model_dir``.
        """
        self.version = 0
        self.counters = Counters()
        self._ids = itertools.count()
        self._settings = settings
        self._syncing = asyncio.Lock()
        self._engine = _start(settings)

    @property
    def dead(self) -> str | None:
        """Why no request can succeed any more; None while the engine lives."""
        return f"vLLM's core process died: {self._engine.dead_error!r}" if self._engine.errored else None

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, on_tokens: OnTokens | None = None
    ) -> Completion:
        """Sample a response to ``prompt_ids``.

        Raises:
            EngineError: vLLM rejects the request, or has failed.
        """
        version, request_id = self.version, str(next(self._ids))
        prompt = {"prompt_token_ids": list(prompt_ids)}
        final, known = None, 0
        params = sampling_params(sampling, on_tokens is not None)
        try:
            async for output in self._engine.generate(prompt, params, request_id):
                final = output
                if on_tokens is not None:
                    tokens, logprobs = sampled(output)
                    on_tokens(tokens[known:], logprobs[known:])
                    known = len(tokens)
        except Exception as error:
            raise EngineError(f"vLLM failed or rejects the request: {error}") from error
        if final is None or not final.finished:
            raise EngineError("vLLM ended the request without a result")
        self.counters.add(final)
        return completion(final, version)

    async def sync(self, weights: Weights, version: int) -> None:
        """Pause, replace the weights, resume; running requests go on, their keys are computed anew.

        Raises:
            EngineError: vLLM cannot load the weights. They may be loaded in part then.
        """
        async with self._syncing:
            await self._sync(weights, version)

    async def _sync(self, weights: Weights, version: int) -> None:
        try:
            # keep + clear_cache: vLLM recomputes the keys of running requests with the new weights.
            await self._engine.pause_generation(mode="keep", clear_cache=True)
            await self._load(weights)
            self.version = version
            await self._engine.resume_generation()
        except Exception as error:
            raise EngineError(f"vLLM cannot load weights of version {version}: {error!r}") from error

    async def _load(self, weights: Weights) -> None:
        """Pass the weights to all workers of this node through a file in shared memory; no code travels."""
        tensors = untied(weights)
        index, nbytes = layout(tensors)
        folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
        with tempfile.TemporaryDirectory(prefix="rl-agents-sync-", dir=folder) as directory:
            path = Path(directory) / "weights"
            write(tensors, index, np.memmap(path, dtype=np.uint8, mode="w+", shape=(nbytes,)))
            plain = [(entry.name, entry.dtype, entry.shape, entry.offset) for entry in index]
            await self._engine.collective_rpc("rl_load_file", args=(str(path), plain))

    def close(self) -> None:
        """Stop vLLM's processes."""
        self._engine.shutdown()


def _start(settings: EngineSettings) -> Any:
    prepare_environment()
    from vllm.platforms import current_platform

    is_cpu = current_platform.is_cpu()
    if is_cpu:
        # Child processes inherit both: no Inductor run in the sampler at the first request (20 s), and no
        # pinning of every engine of the node to the same cores.
        os.environ["TORCHDYNAMO_DISABLE"] = "1"
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    args = engine_args(settings, is_cpu)
    if is_cpu:
        register_model_class(settings.model_dir)
        # By its short name ("uni") vLLM turns it into a third process that doubles the CPU time.
        args.setdefault("distributed_executor_backend", "vllm.v1.executor.uniproc_executor.UniProcExecutor")
    elif settings.tensor_parallel > 1:
        # Inside a placement group vLLM would ask Ray for actors of its own; ours holds the GPUs already.
        args.setdefault("distributed_executor_backend", "mp")
    return AsyncLLM.from_engine_args(AsyncEngineArgs(**args))
