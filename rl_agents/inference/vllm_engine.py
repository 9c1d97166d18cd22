"""vLLM as an engine: in this process, stepped by a thread or by an event loop, or in processes of its own.

``inprocess`` is light and quick to start, for CPUs; ``inline`` is for an env runner's process; ``async`` is vLLM's
AsyncLLM, a core process and, with tensor parallelism, one worker per GPU. In this process vLLM changes much (it
initializes torch.distributed, disables ``torch.set_num_threads``, freezes the garbage collector), so build the engine
in an actor of its own, never in a learner or a driver. One event loop at a time may use it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
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

CLOSED = "vLLM engine is closed"
#: Passes of the event loop between two steps: in the first futures are resolved, in the second those who waited for
#: them continue and have two more for what else they await before they ask again.
PASSES = 4


class VLLMEngine:
    """See the module docstring. ``async``: build it in a coroutine or alongside a running event loop."""

    def __init__(self, settings: EngineSettings) -> None:
        """Start vLLM: 9 to 16 s of wall time, nearly all of it imports.

        Raises:
            InputError: there is no model in ``settings.model_dir``.
        """
        self.version = 0
        self.counters = Counters()
        self.salted = True  # a test switches it off to show what a stale cache does
        self._ids = itertools.count()
        self._keep = settings.weight_switch == "keep"
        self._gate = Gate(batch_room(settings), settings.switch_timeout_s, self._keep)
        self.held = self._gate.held
        self._loads = 0  # part of every prompt's cache key: no prefix outlives the weights that it was computed with
        self._unsound = ""  # why there are no whole weights to sample from
        self._given_up: list[str] = []  # why, each time
        self._holding = contextlib.AsyncExitStack()
        self.port = Port(self, shared_file=settings.mode == "async")
        self._adapters = lora_requests(settings.adapters)
        self._engine = _start(settings, [request for request in self._adapters.values() if request])
        self._counts_versions = counts_versions()

    @property
    def dead(self) -> str | None:
        """Why no request can succeed any more; None while the engine lives."""
        return f"vLLM has died: {self._engine.dead_error!r}" if self._engine.errored else None

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
            prompt = token_prompt(prompt_ids, str(self._loads) if self.salted else "salt")
            final = await self._ask(prompt, sampling, on_tokens)
        # With `keep` a call may be on its way into vLLM when weights fail to load, so that their abort does not reach
        # it, and it is sampled by what there is. Refused even if whole weights have arrived since.
        if len(self._given_up) > before:
            raise EngineError(self._given_up[before])
        if final is None or not final.finished or final.outputs[0].finish_reason == "abort":
            raise EngineError("vLLM ended the request without a result")
        self.counters.add(final)
        return completion(final, version)

    async def _ask(self, prompt: Any, sampling: Sampling, on_tokens: OnTokens | None) -> Any:
        final, known, before = None, 0, len(self._given_up)
        try:
            params, adapter = sampling_params(sampling, on_tokens is not None), lora_of(self._adapters, sampling)
            more = sampling.extras is not None and sampling.extras.top_logprobs > 0
            async for output in self._engine.generate(prompt, params, str(next(self._ids)), lora_request=adapter):
                final = output
                if on_tokens is not None and before == len(self._given_up):
                    tokens, logprobs = sampled(output)
                    on_tokens(tokens[known:], logprobs[known:], *([likeliest(output, known)] if more else []))
                    known = len(tokens)
        except EngineError:
            raise
        except Exception as error:
            if is_refusal(error):
                raise RequestRefused(f"vLLM rejects the request: {error}") from error
            raise EngineError(f"vLLM failed or rejects the request: {error}") from error
        return final

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
            # in the cache stays under its old salt, which is not asked for again, until its room is needed.
            try:
                await self._engine.pause_generation(mode="keep" if self._keep else "wait", clear_cache=self._keep)
            except BaseException as error:
                with contextlib.suppress(Exception):  # cancelled half-way: no other call would let it continue
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
        results: list[Any] = await self._engine.collective_rpc(method, kwargs=kwargs)
        return results

    async def sleep(self, level: int) -> None:
        await self._engine.sleep(level)

    async def wake_up(self, tags: list[str]) -> None:
        await self._engine.wake_up(tags)

    def close(self) -> None:
        self._engine.shutdown()


class SteppedLLM:
    """As much of vLLM's `AsyncLLM` as `VLLMEngine` asks, in this process, stepped by one thread.

    The thread owns vLLM's engine: everything else reaches it between two steps.

    Attributes:
        dead_error: why nothing can succeed any more.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.dead_error: str | None = None
        self._paused = self._stopping = False
        #: Where the outputs of each request go.
        self._listening: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Queue[Any]]] = {}
        self._inbox: list[Callable[[], None]] = []
        self._wake = threading.Condition()
        self._begin()

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._run, name="vllm-step", daemon=True)
        self._thread.start()

    @property
    def errored(self) -> bool:
        return self.dead_error is not None

    async def generate(self, prompt: Any, params: Any, request_id: str, lora_request: Any = None) -> AsyncIterator[Any]:
        """Yield a request's outputs; one that is given up is aborted."""
        heard: asyncio.Queue[Any] = asyncio.Queue()
        listener = asyncio.get_running_loop(), heard

        def add() -> None:
            self._listening[request_id] = listener
            try:
                self._engine.add_request(request_id, prompt, params, lora_request=lora_request)
            except Exception as error:
                del self._listening[request_id]
                _deliver([(listener, error)])

        self._post(add)
        over = False
        try:
            while not over:
                output = await heard.get()
                over = output is None or isinstance(output, Exception) or output.finished
                if isinstance(output, Exception):
                    raise output
                if output is not None:  # aborted
                    yield output
        finally:
            with contextlib.suppress(EngineError):
                if not over:
                    self._post(lambda: self._abort([request_id]))

    async def pause_generation(self, mode: str, clear_cache: bool) -> None:
        """Make no further step; ``abort`` ends what runs. ``wait``: the caller has seen to it that nothing does."""

        def pause() -> None:
            self._paused = True
            if mode == "abort":
                self._abort(list(self._listening))
            if clear_cache:  # the keys of running requests are computed again with the new weights
                self._engine.reset_prefix_cache(reset_running_requests=True)

        await self._between_steps(pause)

    async def resume_generation(self) -> None:
        await self._between_steps(lambda: setattr(self, "_paused", False))

    async def collective_rpc(self, method: str, kwargs: Any) -> Any:
        return await self._between_steps(lambda: self._engine.collective_rpc(method, kwargs=kwargs))

    async def update_weight_version(self, version: str) -> None:
        await self._between_steps(lambda: self._engine.set_weight_version(version))

    async def sleep(self, level: int) -> None:
        await self._between_steps(lambda: self._engine.sleep(level))

    async def wake_up(self, tags: list[str]) -> None:
        await self._between_steps(lambda: self._engine.wake_up(tags))

    def shutdown(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(timeout=30)
        self._engine.engine_core.shutdown()

    async def _between_steps(self, job: Callable[[], Any]) -> Any:
        """Return what ``job`` returns or raise what it raises; a dead engine does neither."""
        heard: asyncio.Queue[Any] = asyncio.Queue()
        listener = asyncio.get_running_loop(), heard

        def answer() -> None:
            try:
                if self.dead_error is not None:
                    raise EngineError(self.dead_error)
                _deliver([(listener, (job(), None))])
            except Exception as error:
                _deliver([(listener, (None, error))])

        self._post(answer)
        result, error = await heard.get()
        if error is not None:
            raise error
        return result

    def _post(self, job: Callable[[], None]) -> None:
        """Have ``job`` called between two steps.

        Raises:
            EngineError: vLLM has died.
        """
        with self._wake:
            if self.dead_error is not None:
                raise EngineError(self.dead_error)
            self._inbox.append(job)
            self._wake.notify()

    def _abort(self, ids: Sequence[str]) -> None:
        if known := [request_id for request_id in ids if request_id in self._listening]:
            self._engine.abort_request(known)
            _deliver([(self._listening.pop(request_id), None) for request_id in known])

    def _run(self) -> None:
        try:
            while not self._stopping:
                with self._wake:
                    while not (self._inbox or self._stopping or self._busy()):
                        self._wake.wait()
                    jobs, self._inbox = self._inbox, []
                self._turn(jobs)
            self._die(CLOSED)
        except BaseException as error:
            self._die(f"vLLM's step failed: {error!r}")

    def _turn(self, jobs: Sequence[Callable[[], None]]) -> None:
        for job in jobs:
            job()
        if self._busy():
            self._hand_out(self._engine.step())

    def _busy(self) -> bool:
        return not self._paused and bool(self._engine.has_unfinished_requests())

    def _hand_out(self, outputs: Iterable[Any]) -> None:
        news = []
        for output in outputs:
            known = self._listening.pop if output.finished else self._listening.get
            if (listener := known(output.request_id, None)) is not None:
                news.append((listener, output))
        _deliver(news)

    def _die(self, reason: str) -> None:
        with self._wake:
            self.dead_error = reason
            jobs, self._inbox = self._inbox, []
        for job in jobs:
            with contextlib.suppress(Exception):  # vLLM is dead, and the others get an answer
                job()  # puts its request where the next lines find it
        _deliver([(listener, EngineError(reason)) for listener in self._listening.values()])
        self._listening.clear()


class InlineLLM(SteppedLLM):
    """The same, stepped by the callers' event loop: for the process of an env runner.

    There is no thread. While anybody waits for an answer, a task of the loop makes one step after the other, and
    between two of them lets answered callers continue: the next prompt of an episode joins the next step, and no
    thread waits for the interpreter. Environments that run on the loop, and everything else there, wait while a step
    is made.
    """

    def _begin(self) -> None:
        self._stepping: asyncio.Task[None] | None = None

    def shutdown(self) -> None:
        """Stop vLLM; waiting calls get an `EngineError`."""
        self._die(CLOSED)
        self._engine.engine_core.shutdown()

    def _post(self, job: Callable[[], None]) -> None:
        super()._post(job)
        loop = asyncio.get_running_loop()
        if self._stepping is None or self._stepping.done() or self._stepping.get_loop() is not loop:
            self._stepping = loop.create_task(self._steps())

    async def _steps(self) -> None:
        try:
            while not self.errored and (self._inbox or self._busy()):
                jobs, self._inbox = self._inbox, []
                self._turn(jobs)
                for _ in range(PASSES):
                    await asyncio.sleep(0)
        except asyncio.CancelledError:  # the loop ends; another one may continue
            raise
        except BaseException as error:
            self._die(f"vLLM's step failed: {error!r}")
            if not isinstance(error, Exception):
                raise


def _deliver(news: Sequence[tuple[tuple[asyncio.AbstractEventLoop, asyncio.Queue[Any]], Any]]) -> None:
    """Put news into queues on their event loops, one wake-up per loop."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Queue[Any], Any]]] = {}
    for (loop, heard), value in news:
        loops.setdefault(loop, []).append((heard, value))
    for loop, mine in loops.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_put, mine)


def _put(news: Sequence[tuple[asyncio.Queue[Any], Any]]) -> None:
    for heard, value in news:
        heard.put_nowait(value)


def _start(settings: EngineSettings, adapters: Sequence[Any]) -> Any:
    if settings.mode == "async":
        return _start_processes(settings)
    args = quick_start_args(settings)
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    engine = LLMEngine.from_engine_args(EngineArgs(**args))
    for adapter in adapters:  # a broken one fails here, not a batch of requests
        engine.add_lora(adapter)
    return (InlineLLM if settings.mode == "inline" else SteppedLLM)(engine)


def quick_start_args(settings: EngineSettings) -> dict[str, Any]:
    """Prepare this process for vLLM without a process of its own, and return the fields of ``EngineArgs``."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    prepare_environment()
    # A failed step would log every request of its batch; `EngineError` carries the reason.
    logging.getLogger("vllm.logging_utils.dump_input").setLevel(logging.CRITICAL)
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        # enforce_eager does not reach two helpers of the sampler: Inductor takes 20 s for them at the first
        # request. This must be set before the sampler is imported.
        type(current_platform).simple_compile_backend = "eager"
    register_model_class(settings.model_dir)
    return engine_args(settings, current_platform.is_cpu())


def _start_processes(settings: EngineSettings) -> Any:
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
