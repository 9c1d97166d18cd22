"""vLLM in this process, stepped by one thread: light and quick to start, for CPUs.

vLLM changes its process (it initialises torch.distributed, disables ``torch.set_num_threads``, freezes the
garbage collector), so build this engine in an actor of its own, never in a learner or a driver.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

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


class _Pending:
    """A coroutine's wait for a result that the step thread produces."""

    def __init__(self, version: int = 0, on_tokens: OnTokens | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.version, self.on_tokens, self.known = version, on_tokens, 0


class VLLMInProcessEngine:
    """See the module docstring. The thread owns the engine: requests and weights reach it between two steps."""

    def __init__(self, settings: EngineSettings) -> None:
        """Start vLLM: 9 to 16 s of wall time, nearly all of it imports.

        Raises:
            InputError: there is no model in ``settings.model_dir``.
        """
        self.version = 0
        self.counters = Counters()
        self.reset_cache_on_sync = True  # a test switches it off to show what a stale cache does
        self.dead: str | None = None
        self._engine = _start(settings)
        self._ids = itertools.count()
        self._pending: dict[str, _Pending] = {}
        self._inbox: list[Callable[[], None]] = []
        self._wake = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="vllm-step", daemon=True)
        self._thread.start()

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, on_tokens: OnTokens | None = None
    ) -> Completion:
        """Sample a response to ``prompt_ids``.

        Raises:
            EngineError: vLLM rejects the request, or has failed.
        """
        pending, request_id = _Pending(self.version, on_tokens), str(next(self._ids))
        prompt = {"prompt_token_ids": list(prompt_ids)}

        def add() -> None:
            try:
                pending.version = self.version
                self._engine.add_request(request_id, prompt, sampling_params(sampling, on_tokens is not None))
                self._pending[request_id] = pending
            except Exception as error:
                _answer([(pending, EngineError(f"vLLM rejects the request: {error}"))])

        self._post(add)
        try:
            return await pending.future
        except asyncio.CancelledError:
            self._post(lambda: self._abort(request_id))
            raise

    async def sync(self, weights: Weights, version: int) -> None:
        """Replace the weights between two steps; running requests go on, their keys are computed anew.

        Raises:
            EngineError: vLLM cannot load the weights. They may be loaded in part then.
        """
        pending = _Pending()

        def load() -> None:
            try:
                self._engine.collective_rpc("rl_load", args=(weights,))
                if self.reset_cache_on_sync:
                    self._engine.reset_prefix_cache(reset_running_requests=True)
                self.version = version
                _answer([(pending, None)])
            except Exception as error:
                _answer([(pending, EngineError(f"vLLM cannot load weights of version {version}: {error!r}"))])

        self._post(load)
        await pending.future

    def close(self) -> None:
        """Stop the thread and vLLM."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(timeout=30)
        self._engine.engine_core.shutdown()

    def _post(self, job: Callable[[], None]) -> None:
        """Have the thread call ``job`` between two steps.

        Raises:
            EngineError: the thread has died.
        """
        with self._wake:
            if self.dead is not None:
                raise EngineError(self.dead)
            self._inbox.append(job)
            self._wake.notify()

    def _abort(self, request_id: str) -> None:
        if self._pending.pop(request_id, None) is not None:
            self._engine.abort_request([request_id])

    def _run(self) -> None:
        """The thread: take what has arrived, make one step, hand out what is finished."""
        try:
            while not self._stopping:
                with self._wake:
                    while not (self._inbox or self._stopping or self._engine.has_unfinished_requests()):
                        self._wake.wait()
                    jobs, self._inbox = self._inbox, []
                for job in jobs:
                    job()
                if self._engine.has_unfinished_requests():
                    self._hand_out(self._engine.step())
            self._die("vLLM engine is closed")
        except BaseException as error:
            self._die(f"vLLM's step failed: {error!r}")

    def _hand_out(self, outputs: Iterable[Any]) -> None:
        answers: list[tuple[_Pending, Any]] = []
        for output in outputs:
            if not output.finished:
                _tell(self._pending.get(output.request_id), output)
                continue
            if (pending := self._pending.pop(output.request_id, None)) is None:
                continue
            self.counters.add(output)
            answers.append((pending, completion(output, pending.version)))
        _answer(answers)

    def _die(self, reason: str) -> None:
        """Fail everything that waits, and whatever comes later."""
        with self._wake:
            self.dead = reason
            jobs, self._inbox = self._inbox, []
        for job in jobs:
            job()  # registers its request, or answers it
        _answer([(pending, EngineError(reason)) for pending in self._pending.values()])
        self._pending.clear()


def _tell(pending: _Pending | None, output: Any) -> None:
    """Pass on what one step sampled for a request that is listened to."""
    if pending is None or pending.on_tokens is None or pending.loop.is_closed():
        return
    tokens, logprobs = sampled(output)
    pending.loop.call_soon_threadsafe(pending.on_tokens, tokens[pending.known :], logprobs[pending.known :])
    pending.known = len(tokens)


def _answer(answers: list[tuple[_Pending, Any]]) -> None:
    """Resolve futures on their event loops, one wake-up per loop."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[_Pending, Any]]] = {}
    for pending, value in answers:
        loops.setdefault(pending.loop, []).append((pending, value))
    for loop, mine in loops.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, mine)


def _resolve(answers: list[tuple[_Pending, Any]]) -> None:
    for pending, value in answers:
        if pending.future.done():
            continue
        if isinstance(value, Exception):
            pending.future.set_exception(value)
        else:
            pending.future.set_result(value)


def _start(settings: EngineSettings) -> Any:
    """Build vLLM's engine along the quickest path."""
    args = quick_start_args(settings)
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    return LLMEngine.from_engine_args(EngineArgs(**args))


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
