"""vLLM's AsyncLLM: a core process and, with tensor parallelism, one worker per GPU."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Sequence
from typing import Any

from rl_agents.inference.adapters import lora_of, lora_requests
from rl_agents.inference.base import (
    Completion,
    EngineError,
    EngineSettings,
    OnTokens,
    RequestRefused,
    Sampling,
    Weights,
)
from rl_agents.inference.vllm_common import (
    Counters,
    batch_room,
    completion,
    counts_versions,
    engine_args,
    is_refusal,
    likeliest,
    prepare_environment,
    register_model_class,
    sampled,
    sampling_params,
    token_prompt,
)
from rl_agents.inference.weight_port import Port
from rl_agents.inference.weight_update_gate import Gate, Running


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
        self._keep = settings.weight_switch == "keep"
        self._gate = Gate(batch_room(settings), settings.switch_timeout_s, self._keep)
        self.held = self._gate.held
        self._loads = 0  # part of every prompt's cache key: no prefix outlives the weights that it was computed with
        self._unsound = ""  # why there are no whole weights to sample from
        self._given_up: list[str] = []  # why, each time
        self._holding = contextlib.AsyncExitStack()
        self.port = Port(self, shared_file=True)
        self._engine = _start(settings)
        self._adapters = lora_requests(settings.adapters)
        self._counts_versions = counts_versions()

    @property
    def dead(self) -> str | None:
        """Why no request can succeed any more; None while the engine lives."""
        return f"vLLM's core process died: {self._engine.dead_error!r}" if self._engine.errored else None

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, on_tokens: OnTokens | None = None
    ) -> Completion:
        """Sample a response to ``prompt_ids``.

        Raises:
            EngineError: vLLM rejects the request, or has failed, or its weights are loaded in part.
        """
        async with self._gate.call(Running(len(prompt_ids), sampling.max_tokens)):
            if self._unsound:
                raise EngineError(self._unsound)
            version, before = self.version, len(self._given_up)
            final = await self._ask(token_prompt(prompt_ids, str(self._loads)), sampling, on_tokens)
        # With `keep` a call may be on its way into vLLM when weights fail to load, so that their abort does not reach
        # it, and it is sampled by what there is.
        self._check_whole(before)
        if final is None or not final.finished or final.outputs[0].finish_reason == "abort":
            raise EngineError("vLLM ended the request without a result")
        self.counters.add(final)
        return completion(final, version)

    async def _ask(self, prompt: Any, sampling: Sampling, on_tokens: OnTokens | None) -> Any:
        """Return the request's last output, None without any."""
        final, known, before = None, 0, len(self._given_up)
        params = sampling_params(sampling, on_tokens is not None)
        adapter = lora_of(self._adapters, sampling)
        more = sampling.extras is not None and sampling.extras.top_logprobs > 0
        try:
            async for output in self._engine.generate(prompt, params, str(next(self._ids)), lora_request=adapter):
                final = output
                if on_tokens is not None and before == len(self._given_up):
                    tokens, logprobs = sampled(output)
                    on_tokens(tokens[known:], logprobs[known:], *([likeliest(output, known)] if more else []))
                    known = len(tokens)
        except Exception as error:
            if is_refusal(error):
                raise RequestRefused(f"vLLM rejects the request: {error}") from error
            raise EngineError(f"vLLM failed or rejects the request: {error}") from error
        return final

    def _check_whole(self, before: int) -> None:
        """Refuse what was sampled while weights were given up, even if whole ones have arrived since.

        Args:
            before: how often that had happened when the call began.
        """
        if len(self._given_up) > before:
            raise EngineError(self._given_up[before])

    async def sync(self, weights: Weights, version: int) -> None:
        """Replace the weights when no call runs (``wait``), or at once (``keep``).

        Raises:
            EngineError: vLLM cannot load the weights, and samples nothing until others are; or running calls do not
                end in time.
        """
        await self.port.load(weights, version)

    async def hold(self, version: int) -> None:
        """Let running calls end (``wait``), or stop them where they are (``keep``), and let no new one in.

        Raises:
            EngineError: running calls do not end in time, and the old weights stay; or vLLM has died.
        """
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._gate.sync(version))
            # keep + clear_cache: vLLM computes the keys of running requests again with the new weights. wait: what is
            # in the cache stays under its old salt, which nobody asks for again, until its room is needed.
            try:
                await self._engine.pause_generation(mode="keep" if self._keep else "wait", clear_cache=self._keep)
            except BaseException as error:
                with contextlib.suppress(Exception):  # cancelled half-way: nobody else would let it go on
                    await self._engine.resume_generation()
                if isinstance(error, Exception):
                    raise EngineError(f"vLLM does not pause for weights of version {version}: {error!r}") from error
                raise
            self._holding = stack.pop_all()

    async def release(self, version: int) -> None:
        """Go on sampling, as ``version``."""
        self._loads += 1
        if self._counts_versions:
            await self._engine.update_weight_version(str(version))
        self.version, self._unsound = version, ""
        await self._engine.resume_generation()
        await self._holding.aclose()

    async def give_up(self, reason: str) -> None:
        """End what runs: its weights are neither old nor new. Nothing is sampled until others are loaded."""
        self._loads += 1
        self._unsound = reason
        self._given_up.append(reason)
        try:
            with contextlib.suppress(Exception):  # vLLM has died: `dead` says so
                await self._engine.pause_generation(mode="abort", clear_cache=True)
        finally:  # cancelled half-way, it must not hold the next weights either
            with contextlib.suppress(Exception):
                await self._engine.resume_generation()
            await self._holding.aclose()

    async def worker(self, method: str, **kwargs: Any) -> list[Any]:
        """Call a method of all workers."""
        results: list[Any] = await self._engine.collective_rpc(method, kwargs=kwargs)
        return results

    async def sleep(self, level: int) -> None:
        """Free GPU memory; no call runs."""
        await self._engine.sleep(level)

    async def wake_up(self, tags: list[str]) -> None:
        """Take GPU memory again."""
        await self._engine.wake_up(tags)

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
