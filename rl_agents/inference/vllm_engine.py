"""vLLM as an engine: in this process, stepped by a thread, or in processes of its own.

``inprocess`` is light and quick to start, for CPUs; ``async`` is vLLM's AsyncLLM, a core process and, with tensor
parallelism, one worker per GPU. In this process vLLM changes much (it initializes torch.distributed, disables
``torch.set_num_threads``, freezes the garbage collector), so build the engine in an actor of its own, never in a
learner or a driver. One event loop at a time may use it.

New weights are loaded by vLLM's own calls (start, update, finish; `rl_agents.inference.weight_receivers` is their end
in the workers), and nothing is sampled in between. After a failure in any of them the engine samples nothing until a
whole update has arrived.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from rl_agents.inference.base import (
    Completion,
    EngineError,
    EngineSettings,
    OnTokens,
    RequestRefused,
    Sampling,
    Weights,
    stamp,
)
from rl_agents.inference.vllm_common import (
    ABANDON,
    FILE,
    TENSORS,
    completion,
    engine_args,
    likeliest,
    prepare_environment,
    register_model_class,
    sampled,
    sampling_params,
)
from rl_agents.inference.weight_update_gate import Gate, Running
from rl_agents.inference.weights import layout, untied, write

CLOSED = "vLLM engine is closed"
#: A queue and the event loop that reads it.
Listener = tuple[asyncio.AbstractEventLoop, asyncio.Queue[Any]]


class VLLMEngine:
    """See the module docstring. ``async``: build it in a coroutine or alongside a running event loop.

    Attributes:
        sampled_tokens, prompt_tokens, cached_tokens: totals.
        unsound: why there are no whole weights to sample from; empty: there are.
    """

    def __init__(self, settings: EngineSettings) -> None:
        """Start vLLM: 9 to 16 s of wall time, nearly all of it imports.

        Raises:
            InputError: there is no model in ``settings.model_dir``.
        """
        self.version = 0
        self.sampled_tokens = self.prompt_tokens = self.cached_tokens = 0
        self.salted = True  # a test turns it off to show the effect of a stale cache
        self._ids = itertools.count()
        self._keep = settings.weight_switch == "keep"
        self._gate = Gate(settings.max_batch, settings.switch_timeout_s, self._keep)
        self.held = self._gate.held
        self._loads = 0  # part of every prompt's cache key, so that no prefix outlives its weights
        self.unsound = ""
        self._given_up: list[str] = []  # the reasons, one for each time that running calls were aborted
        self._holding = contextlib.AsyncExitStack()
        self._updating = asyncio.Lock()
        self._shared_file = settings.mode == "async"  # tensors do not reach workers in other processes
        #: Calls are held for sleep, and what still sleeps, in the order in which it must wake: the cache needs memory
        #: that an update still uses.
        self._asleep, self._sleeping = False, list[str]()
        self._engine = _start(settings)

    @property
    def dead(self) -> str | None:
        """Why no request can succeed anymore; None while the engine lives."""
        return f"vLLM has died: {self._engine.dead_error!r}" if self._engine.errored else None

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, on_tokens: OnTokens | None = None
    ) -> Completion:
        """Sample a response to ``prompt_ids``.

        Raises:
            EngineError: vLLM rejects the request, or has failed, or its weights are loaded in part.
        """
        async with self._gate.call(Running(len(prompt_ids), sampling.max_tokens)):
            if self.unsound:
                raise EngineError(self.unsound)
            version, before = self.version, len(self._given_up)
            # Cached prefixes are shared only with prompts of the same salt.
            salt = str(self._loads) if self.salted else "salt"
            prompt = {"prompt_token_ids": list(prompt_ids), "cache_salt": salt}
            final = await self._ask(prompt, sampling, on_tokens)
        # With `keep`, weights may fail to load while a call is still entering vLLM. The abort does not reach such a
        # call, and partly loaded weights sample it. It is refused even if whole weights have arrived since.
        if len(self._given_up) > before:
            raise EngineError(self._given_up[before])
        if isinstance(final, Completion):  # its caller ended it
            return final
        if final is None or not final.finished or final.outputs[0].finish_reason == "abort":
            raise EngineError("vLLM ended the request without a result")
        self._count(final)
        return completion(final, version)

    async def _ask(self, prompt: Any, sampling: Sampling, on_tokens: OnTokens | None) -> Any:
        """Return vLLM's last output, or the response so far if ``on_tokens`` ends it."""
        final, known, before = None, 0, len(self._given_up)
        heard: list[tuple[int, int]] = []  # vLLM reports versions only with a finished response
        try:
            params = sampling_params(sampling, on_tokens is not None)
            async with contextlib.aclosing(self._engine.generate(prompt, params, str(next(self._ids)))) as outputs:
                async for output in outputs:
                    final = output
                    if on_tokens is None or before != len(self._given_up):
                        continue
                    tokens, logprobs = sampled(output)
                    if len(tokens) == known:  # outputs share one list, and the one before reported these tokens
                        continue
                    likely = likeliest(output, range(known, len(tokens)))
                    heard.append((self.version, len(tokens) - known))
                    if on_tokens(tokens[known:], logprobs[known:], *([likely] if likely else [])):
                        self._count(output)
                        version, spans = stamp(heard)
                        likely = likeliest(output, range(len(tokens)))
                        return Completion(tokens, logprobs, version, "stop", version_spans=spans, likeliest=likely)
                    known = len(tokens)
        except EngineError:
            raise
        except Exception as error:
            from vllm.exceptions import VLLMClientError

            if isinstance(error, ValueError | VLLMClientError):
                raise RequestRefused(f"vLLM rejects the request: {error}") from error
            raise EngineError(f"vLLM failed or rejects the request: {error}") from error
        return final

    def _count(self, output: Any) -> None:
        self.sampled_tokens += len(output.outputs[0].token_ids)
        self.prompt_tokens += len(output.prompt_token_ids or ())
        self.cached_tokens += output.num_cached_tokens or 0

    async def load_weights(self, weights: Weights, version: int) -> None:
        """Replace the weights when no call runs (``wait``), or at once (``keep``); wake the engine if it sleeps.

        Raises:
            EngineError: vLLM cannot load the weights, and samples nothing until others are loaded; or running calls do
                not end in time, and nothing has changed.
        """
        async with self._updating:
            with self._payload(weights) as payload:  # while calls still run
                await self._update(payload, version)

    async def _update(self, payload: dict[str, Any], version: int) -> None:
        if not self._asleep:
            await self._hold(version)
        self._asleep = False
        try:
            await self._wake_up("weights")
            await self.worker("start_weight_update")
            await self.worker("update_weights", update_info=payload)
            await self.worker("finish_weight_update")
            await self._wake_up("kv_cache")
            await self._release(version)
        except BaseException as error:
            problem = f"vLLM cannot load weights of version {version}: {_first_line(error)}"
            with contextlib.suppress(Exception):  # only a failing call makes vLLM end an update in progress
                await self.worker("update_weights", update_info={ABANDON: True})
            await self._give_up(problem)
            if isinstance(error, Exception):
                raise EngineError(problem) from error
            raise

    @contextlib.contextmanager
    def _payload(self, weights: Weights) -> Iterator[dict[str, Any]]:
        """Yield what the workers receive: tensors, or the path of a file with them."""
        if not self._shared_file:
            yield {TENSORS: weights}
            return
        tensors = untied(weights)
        index, nbytes = layout(tensors)
        with file_in_memory() as path:
            write(tensors, index, np.memmap(path, dtype=np.uint8, mode="w+", shape=(nbytes,)))
            yield {FILE: path, "index": [(entry.name, entry.dtype, entry.shape, entry.offset) for entry in index]}

    async def sleep(self, level: int) -> None:
        """Free the GPU for the learner; nothing is sampled until the next `load_weights`.

        Args:
            level: vLLM's: 1 moves weights to the CPU, 2 drops them.

        Raises:
            EngineError: the engine has no whole weights, or sleeps already; or running calls do not end in time, and
                it stays awake.
        """
        async with self._updating:
            if self._asleep or self.unsound:
                raise EngineError(f"the engine cannot sleep: {self.unsound or 'it sleeps already'}")
            await self._hold(self.version)
            try:
                await self._engine.sleep(level)
            except BaseException as error:  # memory may be partly freed: only an update restores it
                await self._give_up(f"the engine did not fall asleep: {_first_line(error)}")
                raise
            self._asleep, self._sleeping = True, ["weights", "kv_cache"]

    async def _wake_up(self, tag: str) -> None:
        if tag in self._sleeping:
            await self._engine.wake_up([tag])
            self._sleeping.remove(tag)

    async def _hold(self, version: int) -> None:
        """Let running calls end (``wait``) or pause them (``keep``), and admit no new one.

        Raises:
            EngineError: running calls do not end in time, and the old weights stay; or vLLM has died.
        """
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._gate.update(version))
            # keep + clear_cache: vLLM computes the keys of running requests again with the new weights. wait: the cache
            # keeps entries under the old salt, which no request uses again, until their memory is needed.
            try:
                await self._engine.pause_generation(mode="keep" if self._keep else "wait", clear_cache=self._keep)
            except BaseException as error:
                with contextlib.suppress(Exception):  # canceled midway; no other call resumes it
                    await self._engine.resume_generation()
                if isinstance(error, Exception):
                    raise EngineError(f"vLLM does not pause for weights of version {version}: {error!r}") from error
                raise
            self._holding = stack.pop_all()

    async def _release(self, version: int) -> None:
        """Let calls continue, which sample ``version`` from now on."""
        self._loads += 1
        await self._engine.update_weight_version(str(version))
        self.version, self.unsound = version, ""
        await self._engine.resume_generation()
        await self._holding.aclose()

    async def _give_up(self, reason: str) -> None:
        """Abort running calls, whose weights are neither old nor new. Nothing is sampled until others are loaded."""
        self._loads += 1
        self.unsound = reason
        self._given_up.append(reason)
        try:
            with contextlib.suppress(Exception):  # vLLM has died, which `dead` reports
                await self._engine.pause_generation(mode="abort", clear_cache=True)
        finally:  # even if canceled midway, it must not block the next weights
            with contextlib.suppress(Exception):
                await self._engine.resume_generation()
            await self._holding.aclose()

    async def worker(self, method: str, **kwargs: Any) -> list[Any]:
        results: list[Any] = await self._engine.collective_rpc(method, kwargs=kwargs)
        return results

    def close(self) -> None:
        self._engine.shutdown()


@contextlib.contextmanager
def file_in_memory() -> Iterator[str]:
    """Make an empty file that child processes can open by its path; a process that is killed leaves none behind."""
    number = os.memfd_create("rl-agents-sync")
    try:
        yield f"/proc/{os.getpid()}/fd/{number}"
    finally:
        os.close(number)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [repr(error)]
    return f"{type(error).__name__}: {lines[0]}"


class SteppedLLM:
    """The part of vLLM's `AsyncLLM` that `VLLMEngine` uses, in this process, stepped by one thread.

    The thread owns vLLM's engine. All other calls reach it between two steps.

    Attributes:
        dead_error: why no call can succeed anymore; None while vLLM lives.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.dead_error: str | None = None
        self._paused = self._stopping = False
        #: Receivers of the outputs of each request.
        self._listening: dict[str, Listener] = {}
        self._inbox: list[Callable[[], None]] = []
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="vllm-step", daemon=True)
        self._thread.start()

    @property
    def errored(self) -> bool:
        return self.dead_error is not None

    async def generate(self, prompt: Any, params: Any, request_id: str) -> AsyncIterator[Any]:
        """Yield a request's outputs; a request whose caller stops is aborted."""
        outputs: asyncio.Queue[Any] = asyncio.Queue()
        listener = asyncio.get_running_loop(), outputs

        def add() -> None:
            self._listening[request_id] = listener
            try:
                self._engine.add_request(request_id, prompt, params)
            except Exception as error:
                del self._listening[request_id]
                _deliver([(listener, error)])

        self._post(add)
        over = False
        try:
            while not over:
                output = await outputs.get()
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
        """Stop stepping. ``abort`` ends running requests; with ``wait`` the caller has made sure that none runs."""

        def pause() -> None:
            self._paused = True
            if mode == "abort":
                self._abort(list(self._listening))
            if clear_cache:  # computes the keys of running requests again with the new weights
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
        """Return what ``job`` returns, or raise what it raises; a dead engine raises `EngineError`."""
        answers: asyncio.Queue[Any] = asyncio.Queue()
        listener = asyncio.get_running_loop(), answers

        def answer() -> None:
            try:
                if self.dead_error is not None:
                    raise EngineError(self.dead_error)
                _deliver([(listener, (job(), None))])
            except Exception as error:
                _deliver([(listener, (None, error))])

        self._post(answer)
        result, error = await answers.get()
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
        import torch

        # Each thread has its own number of OpenMP threads: this call makes it the process's. vLLM's attention fails if
        # its plan and its kernel see different ones.
        torch.get_num_threads()
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
            with contextlib.suppress(Exception):  # vLLM is dead
                job()  # registers its listener, which gets the error below
        _deliver([(listener, EngineError(reason)) for listener in self._listening.values()])
        self._listening.clear()


def _deliver(news: Iterable[tuple[Listener, Any]]) -> None:
    """Put values into queues on their event loops, with one wake-up per loop."""
    loops: dict[asyncio.AbstractEventLoop, list[Callable[[], None]]] = {}
    for (loop, waiting), value in news:
        loops.setdefault(loop, []).append(partial(waiting.put_nowait, value))
    for loop, puts in loops.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(lambda puts: [put() for put in puts], puts)


def _start(settings: EngineSettings) -> Any:
    if settings.mode == "async":
        return _start_processes(settings)
    args = quick_start_args(settings)
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    engine = LLMEngine.from_engine_args(EngineArgs(**args))
    return SteppedLLM(engine)


def quick_start_args(settings: EngineSettings) -> dict[str, Any]:
    """Prepare this process for vLLM without a process of its own, and return the fields of ``EngineArgs``."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    prepare_environment()
    # A failed step would log every request of its batch, and `EngineError` has the reason.
    logging.getLogger("vllm.logging_utils.dump_input").setLevel(logging.CRITICAL)
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        # enforce_eager does not apply to two helpers of the sampler, for which Inductor takes 20 s at the first
        # request. This must be set before the sampler is imported.
        type(current_platform).simple_compile_backend = "eager"
    register_model_class(settings.model_dir)
    return engine_args(settings, current_platform.is_cpu())


def _start_processes(settings: EngineSettings) -> Any:
    prepare_environment()
    from vllm.platforms import current_platform

    is_cpu = current_platform.is_cpu()
    if is_cpu:
        # Child processes inherit both. They prevent an Inductor run in the sampler at the first request (20 s), and
        # the pinning of every engine of the node to the same cores.
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
        # Inside a placement group vLLM would create Ray actors, but ours holds the GPUs already.
        args.setdefault("distributed_executor_backend", "mp")
    return AsyncLLM.from_engine_args(AsyncEngineArgs(**args))
