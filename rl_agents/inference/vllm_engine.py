"""vLLM in this process, stepped by one thread or by an event loop: light and quick to start, for CPUs.

vLLM changes its process (it initializes torch.distributed, disables ``torch.set_num_threads``, freezes the
garbage collector), so build this engine in an actor of its own, never in a learner or a driver.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
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
from rl_agents.inference.weight_update_gate import OverlapClock, Running, overdue

CLOSED = "vLLM engine is closed"


class _Pending:
    """A coroutine's wait for a result that the step thread produces."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()


class _Call(_Pending):
    """One request, and how much of its answer has been heard."""

    def __init__(self, prompt_ids: Sequence[int], sampling: Sampling, on_tokens: OnTokens | None) -> None:
        super().__init__()
        self.prompt_ids, self.sampling, self.on_tokens = prompt_ids, sampling, on_tokens
        self.running = Running(len(prompt_ids), sampling.max_tokens)
        self.version = self.known = 0


class _Sync(_Pending):
    """New weights on their way; answered when they may be loaded."""

    def __init__(self, version: int, deadline: float) -> None:
        super().__init__()
        self.version, self.deadline = version, deadline


class VLLMInProcessEngine:
    """See the module docstring. The thread owns the engine: requests and weights reach it between two steps."""

    def __init__(self, settings: EngineSettings) -> None:
        """Start vLLM: 9 to 16 s of wall time, nearly all of it imports.

        Raises:
            InputError: there is no model in ``settings.model_dir``.
        """
        self.version = 0
        self.counters = Counters()
        self.held = OverlapClock()
        self.salted = True  # a test switches it off to show what a stale cache does
        self.dead: str | None = None
        self._keep, self._patience_s = settings.weight_switch == "keep", settings.switch_timeout_s
        self._room = batch_room(settings)
        self._loads = 0  # part of every prompt's cache key: no prefix outlives the weights that it was computed with
        self._unsound = ""  # why there are no whole weights to sample from
        self._engine = _start(settings)
        self._adapters = lora_requests(settings.adapters)
        for request in filter(None, self._adapters.values()):  # a broken one fails here, not a batch of requests
            self._engine.add_lora(request)
        self._counts_versions = counts_versions()
        self._ids = itertools.count()
        self._waiting: dict[str, _Call] = {}
        self._pending: dict[str, _Call] = {}
        self._syncs: deque[_Sync] = deque()
        self._inbox: list[Callable[[], None]] = []
        self._wake = threading.Condition()
        self._stopping = self._loading = False
        self.port = Port(self, shared_file=False)
        self._begin()

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._run, name="vllm-step", daemon=True)
        self._thread.start()

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, on_tokens: OnTokens | None = None
    ) -> Completion:
        """Sample a response to ``prompt_ids``.

        Raises:
            EngineError: vLLM rejects the request, or has failed, or its weights are loaded in part.
        """
        call, request_id = _Call(prompt_ids, sampling, on_tokens), str(next(self._ids))
        self._post(lambda: self._waiting.__setitem__(request_id, call))
        try:
            return await call.future
        except asyncio.CancelledError:
            self._post(lambda: self._abort(request_id))
            raise

    async def sync(self, weights: Weights, version: int) -> None:
        """Replace the weights between two steps: when no call runs (``wait``), or at once (``keep``).

        Raises:
            EngineError: vLLM cannot load the weights, and samples nothing until others are; or running calls do not
                end in time.
        """
        await self.port.load(weights, version)

    async def hold(self, version: int) -> None:
        """Let running calls end (``wait``), or stop them where they are (``keep``), and let no new one in.

        Raises:
            EngineError: running calls do not end in time; the old weights stay.
        """
        sync = _Sync(version, time.monotonic() + self._patience_s)
        self.held.begin()
        try:
            self._post(lambda: self._syncs.append(sync))
            await sync.future
        except BaseException:
            self.held.end()
            with contextlib.suppress(EngineError):  # dead: nobody is held
                self._post(lambda: self._withdraw(sync))
            raise

    async def release(self, version: int) -> None:
        """Go on sampling, as ``version``."""

        def go_on() -> None:
            if self._keep:  # the keys of running requests are computed again with the new weights
                self._engine.reset_prefix_cache(reset_running_requests=True)
            if self._counts_versions:
                self._engine.set_weight_version(str(version))
            self.version, self._unsound = version, ""
            self._go_on()

        await self._on_thread(go_on)
        self.held.end()

    async def give_up(self, reason: str) -> None:
        """End what runs: its weights are neither old nor new. Nothing is sampled until others are loaded."""

        def fail() -> None:
            self._unsound = reason
            self._go_on()
            self._fail_running(reason)

        try:
            await self._on_thread(fail)
        finally:
            self.held.end()

    async def worker(self, method: str, **kwargs: Any) -> list[Any]:
        """Call a method of vLLM's worker between two steps."""
        results: list[Any] = await self._on_thread(lambda: self._engine.collective_rpc(method, kwargs=kwargs))
        return results

    async def sleep(self, level: int) -> None:
        """Free GPU memory; no call runs."""
        await self._on_thread(lambda: self._engine.sleep(level))

    async def wake_up(self, tags: list[str]) -> None:
        """Take GPU memory again."""
        await self._on_thread(lambda: self._engine.wake_up(tags))

    async def _on_thread(self, job: Callable[[], Any]) -> Any:
        """Return what ``job`` returns, called by the thread between two steps."""
        pending = _Pending()

        def answer() -> None:
            try:
                _answer([(pending, job())])
            except Exception as error:
                _answer([(pending, error)])

        self._post(answer)
        return await pending.future

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
        if self._waiting.pop(request_id, None) is None and self._pending.pop(request_id, None) is not None:
            self._engine.abort_request([request_id])

    def _switch(self) -> None:
        """Grant the first sync that waits, as soon as it may load."""
        while self._syncs and not self._loading:
            sync, problem = self._syncs[0], None
            if sync.future.cancelled():
                self._syncs.popleft()
                continue
            if self._keep or not self._pending:
                self._loading = True
            elif time.monotonic() < sync.deadline:
                return
            else:
                self._syncs.popleft()
                problem = overdue(sync.version, self._patience_s, [call.running for call in self._pending.values()])
            _answer([(sync, problem)])

    def _go_on(self) -> None:
        """End the sync that was granted, unless a `release` whose caller was cancelled has done so."""
        self._loads += 1
        if self._loading:
            self._loading = False
            self._syncs.popleft()

    def _withdraw(self, sync: _Sync) -> None:
        """Forget a sync whose caller was cancelled, perhaps in the moment in which it was granted."""
        if sync in self._syncs:
            self._loading = self._loading and self._syncs[0] is not sync
            self._syncs.remove(sync)

    def _let_in(self) -> None:
        """Give vLLM the calls that wait, as many as it decodes together, and none while a sync waits."""
        while self._waiting and not self._syncs and len(self._pending) < self._room:
            request_id = next(iter(self._waiting))
            self._add(request_id, self._waiting.pop(request_id))

    def _add(self, request_id: str, call: _Call) -> None:
        if self._unsound:
            _answer([(call, EngineError(self._unsound))])
            return
        try:
            prompt = token_prompt(call.prompt_ids, str(self._loads) if self.salted else "salt")
            params = sampling_params(call.sampling, call.on_tokens is not None)
            adapter = lora_of(self._adapters, call.sampling)
            self._engine.add_request(request_id, prompt, params, lora_request=adapter)
        except RequestRefused as error:
            _answer([(call, error)])
            return
        except Exception as error:
            kind = RequestRefused if is_refusal(error) else EngineError
            _answer([(call, kind(f"vLLM rejects the request: {error}"))])
            return
        call.version, call.running.since = self.version, time.monotonic()
        self._pending[request_id] = call

    def _run(self) -> None:
        """The thread: one turn after the other, as long as there is work."""
        try:
            while not self._stopping:
                with self._wake:
                    while not (self._inbox or self._stopping or self._busy()):
                        self._wake.wait()
                    jobs, self._inbox = self._inbox, []
                self._turn(jobs)
            self._die(CLOSED)
        except BaseException as error:
            self._die_of(error)

    def _turn(self, jobs: Sequence[Callable[[], None]]) -> None:
        """Take what has arrived, make one step, hand out what is finished."""
        for job in jobs:
            job()
        self._switch()
        self._let_in()
        if self._has_work():
            self._hand_out(self._engine.step())

    def _busy(self) -> bool:
        return self._has_work() or (not self._loading and bool(self._syncs or self._waiting))

    def _has_work(self) -> bool:
        return not self._loading and self._engine.has_unfinished_requests()

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

    def _fail_running(self, reason: str) -> None:
        if self._pending:
            self._engine.abort_request(list(self._pending))
        _answer([(call, EngineError(reason)) for call in self._pending.values()])
        self._pending.clear()

    def _die_of(self, error: BaseException) -> None:
        self._die(str(error) if isinstance(error, EngineError) else f"vLLM's step failed: {error!r}")

    def _die(self, reason: str) -> None:
        """Fail everything that waits, and whatever comes later."""
        with self._wake:
            self.dead = reason
            jobs, self._inbox = self._inbox, []
        for job in jobs:
            with contextlib.suppress(Exception):  # whatever a dead vLLM says, the others are answered
                job()  # puts its call or sync where the next lines find it
        left = [*self._syncs, *self._pending.values(), *self._waiting.values()]
        _answer([(waiting, EngineError(reason)) for waiting in left])
        for known in (self._syncs, self._pending, self._waiting):
            known.clear()


def _tell(pending: _Call | None, output: Any) -> None:
    """Pass on what one step sampled for a request that is listened to."""
    if pending is None or pending.on_tokens is None or pending.loop.is_closed():
        return
    tokens, logprobs = sampled(output)
    told: list[Any] = [tokens[pending.known :], logprobs[pending.known :]]
    if pending.sampling.extras is not None and pending.sampling.extras.top_logprobs:
        told.append(likeliest(output, pending.known))
    pending.loop.call_soon_threadsafe(pending.on_tokens, *told)
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


#: Passes of the event loop between two steps: in the first futures are resolved, in the second those who waited for
#: them go on, and have two more for what else they await before they ask again.
PASSES = 4


class VLLMInlineEngine(VLLMInProcessEngine):
    """vLLM stepped by the event loop of those who ask it: for the process of an env runner.

    There is no thread. While anybody waits for an answer, a task of the loop makes one step after the other, and
    between two of them lets whoever was answered go on: the next prompt of an episode joins the next step, and no
    thread waits for the interpreter. Environments that run on the loop, and everything else there, wait while a step
    is made. Only one event loop at a time may use it; it stands still while that does.
    """

    def _begin(self) -> None:
        self._stepping: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Stop vLLM; whoever waits gets an `EngineError`."""
        self._die(CLOSED)
        self._engine.engine_core.shutdown()

    def _post(self, job: Callable[[], None]) -> None:
        if self.dead is not None:
            raise EngineError(self.dead)
        self._inbox.append(job)
        loop = asyncio.get_running_loop()
        if self._stepping is None or self._stepping.done() or self._stepping.get_loop() is not loop:
            self._stepping = loop.create_task(self._steps())

    async def _steps(self) -> None:
        """Take turns as long as there is work."""
        try:
            while self.dead is None and (self._inbox or self._busy()):
                jobs, self._inbox = self._inbox, []
                self._turn(jobs)
                for _ in range(PASSES):
                    await asyncio.sleep(0)
        except asyncio.CancelledError:  # the loop ends; another one may go on
            raise
        except BaseException as error:
            self._die_of(error)
            if not isinstance(error, Exception):
                raise
