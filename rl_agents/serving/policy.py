"""Policy replicas: an engine each behind Serve, which takes and returns tokens and loads new weights in place."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ray.exceptions import RayActorError, RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from rl_agents.errors import InputError
from rl_agents.inference.base import Completion, EngineError, EngineSettings, Likeliest, Sampling
from rl_agents.inference.model_shape import check_model_dir, read_config
from rl_agents.inference.weight_update_gate import Gate, Running
from rl_agents.serving.options import ServingOptions
from rl_agents.serving.source import Checkpoint, find_checkpoint, present
from rl_agents.web.errors import ApiError

if TYPE_CHECKING:
    import torch

logger = logging.getLogger("ray.serve")

#: Seconds until a replica tries again to load weights that it could not read.
RETRY_S = 10.0
#: Seconds that all replicas together have to load new weights, and to report what they serve.
LOAD_S, SERVED_S = 600.0, 4.0
#: Tokens of an answer, or all of them, and the label of the checkpoint with whose weights the answer began. The finish
#: reason is empty if more tokens follow.
Sampled = tuple[str, Completion]


@dataclass(frozen=True)
class Target:
    """The weights that requests ask for.

    Attributes:
        number: later targets have greater numbers (nanoseconds since 1970), also after a restart of the gateway.
    """

    number: int
    checkpoint: Checkpoint

    @classmethod
    def now(cls, checkpoint: Checkpoint) -> Target:
        return cls(time.time_ns(), checkpoint)


class PolicyReplica:
    """The deployment's class."""

    def __init__(self, settings: EngineSettings, options: ServingOptions, checkpoint: Checkpoint) -> None:
        """Build the engine; if the run has deleted ``checkpoint``, or with ``follow``, of the newest one."""
        os.environ["OMP_NUM_THREADS"] = str(settings.threads)  # before torch is imported
        from rl_agents.inference.engines import build_engine

        checkpoint = find_checkpoint(options.checkpoint) if options.follow else present(checkpoint, options.checkpoint)
        self._engine = build_engine(replace(settings, model_dir=str(checkpoint.hf_dir)))
        self._target = Target(0, checkpoint)
        self._gate = Gate(settings.max_batch, options.drain_s, patient=False)
        self._loading = asyncio.Lock()
        self._failed: tuple[int, float] = (0, 0.0)
        self._broken = ""

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, target: Target) -> Sampled:
        """Sample an answer.

        Raises:
            EngineError: the engine rejects the request, or has failed.
        """
        async with self._running(prompt_ids, sampling, target) as label:
            return label, _ended(await self._engine.generate(prompt_ids, sampling))

    async def stream(
        self, prompt_ids: Sequence[int], sampling: Sampling, target: Target
    ) -> AsyncGenerator[Sampled, None]:
        """Sample an answer and yield its tokens as they are sampled; closing it stops the engine. See `generate`."""
        async with self._running(prompt_ids, sampling, target) as label:
            sent, news = 0, asyncio.Event()
            known = Completion([], [], 0, "", likeliest=[])

            def on_tokens(ids: list[int], logprobs: list[float], likeliest: Sequence[Likeliest] = ()) -> None:
                known.token_ids.extend(ids)
                known.logprobs.extend(logprobs)
                known.likeliest.extend(likeliest)  # type: ignore[attr-defined]
                news.set()

            work = asyncio.ensure_future(self._engine.generate(prompt_ids, sampling, on_tokens))
            work.add_done_callback(lambda _: news.set())
            try:
                while await news.wait() and not work.done():
                    news.clear()
                    yield label, _after(known, sent)
                    sent = len(known.token_ids)
                yield label, _after(_ended(work.result()), sent)
            finally:
                work.cancel()

    @asynccontextmanager
    async def _running(self, prompt_ids: Sequence[int], sampling: Sampling, target: Target) -> AsyncIterator[str]:
        """Sample inside, with the weights that a request asks for; yield the label of their checkpoint."""
        await self._keep_up(target)
        async with self._gate.call(Running(len(prompt_ids), sampling.max_tokens)):
            yield self._target.checkpoint.label

    async def load(self, target: Target) -> None:
        """Serve ``target``, unless this replica already serves it or a later one.

        Raises:
            InputError: the weights cannot be read; the old ones stay.
            EngineError: they do not fit, which `check_replaces` should have found; this replica needs a restart.
        """
        async with self._loading:
            if target.number <= self._target.number:
                return
            weights = await asyncio.to_thread(read_weights, target.checkpoint)
            async with self._gate.update(target.number):
                self._broken = f"new weights ({target.checkpoint.label}) were loaded in part"
                await self._engine.load_weights(weights, target.number)
                self._broken, self._target = "", target
        logger.info("serving %s", target.checkpoint.label)

    async def served(self) -> Target:
        return self._target

    async def check_health(self) -> None:
        """Serve's probe, which replaces a replica whose engine has died or contains parts of two checkpoints.

        Raises:
            EngineError: the engine is in this state.
        """
        if dead := self._broken or getattr(self._engine, "dead", None):
            raise EngineError(str(dead))

    async def _keep_up(self, target: Target) -> None:
        """Load the weights that a request asks for, if this replica started after `load` was called."""
        if target.number <= self._target.number:
            return
        number, when = self._failed
        if number == target.number and time.monotonic() - when < RETRY_S:
            return
        try:
            await self.load(target)
        except InputError as error:  # a deleted checkpoint: an answer from older weights is better than none
            self._failed = (target.number, time.monotonic())
            logger.warning("still serving %s: %s", self._target.checkpoint.label, error)


class RemotePolicy:
    """The replicas behind a Serve handle, with the methods of `PolicyReplica`.

    All methods raise `ApiError` (429) for a full queue, and `EngineError` for a failed replica.
    """

    def __init__(self, handle: DeploymentHandle) -> None:
        self._handle = handle
        self._stream = handle.options(stream=True)

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, target: Target) -> Sampled:
        with _serve_errors():
            sampled: Sampled = await self._handle.generate.remote(prompt_ids, sampling, target)
        return sampled

    async def stream(
        self, prompt_ids: Sequence[int], sampling: Sampling, target: Target
    ) -> AsyncGenerator[Sampled, None]:
        parts: Any = self._stream.stream.remote(prompt_ids, sampling, target)
        try:
            with _serve_errors():
                async for part in parts:
                    yield part
        finally:
            parts.cancel()

    async def load(self, target: Target) -> None:
        """Load into all replicas at the same time; later replicas get the target from requests."""
        with _serve_errors():
            await self._handle.broadcast("load", target).results_async(timeout_s=LOAD_S)

    async def served(self) -> Target:
        """Return the newest target that a replica serves; this call does not wait in the queue of a busy replica."""
        with _serve_errors():
            targets: list[Target] = await self._handle.broadcast("served").results_async(timeout_s=SERVED_S)
        if not targets:
            raise EngineError("no engine replica is running")
        return max(targets, key=lambda target: target.number)


@contextmanager
def _serve_errors() -> Iterator[None]:
    """Convert Serve's errors."""
    try:
        yield
    except BackPressureError:
        raise ApiError(429, "the server is busy; try again in a moment", "overloaded") from None
    except RayTaskError as error:
        raise error.cause from None
    except (RayActorError, DeploymentUnavailableError) as error:
        raise EngineError(f"an engine replica is gone: {type(error).__name__}") from None
    except TimeoutError:
        raise EngineError("the engine replicas did not answer in time") from None


def read_weights(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    """Read all tensors of a Hugging Face folder; nothing is unpickled.

    Raises:
        InputError: a file is missing or damaged.
    """

    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from rl_agents.inference.weights import untied

    folder = check_model_dir(checkpoint.hf_dir)
    weights: dict[str, Any] = {}
    try:
        for path in sorted(folder.glob("*.safetensors")):
            weights.update(load_file(path))
        config = read_config(folder)
    except (OSError, SafetensorError, ValueError) as error:
        raise InputError(f"{checkpoint.label}: damaged checkpoint: {error}") from error
    return untied(weights, tied=bool(config.get("tie_word_embeddings")))


def _after(completion: Completion, count: int) -> Completion:
    """Return the part of an answer after its first tokens."""
    ids, logprobs, likeliest = completion.token_ids, completion.logprobs, completion.likeliest
    return Completion(ids[count:], logprobs[count:], 0, completion.finish_reason, likeliest=likeliest[count:])


def _ended(completion: Completion) -> Completion:
    """Raise EngineError if the engine has not completed the answer."""
    if completion.finish_reason not in ("stop", "length"):
        raise EngineError(f"the engine did not complete the answer: {completion.finish_reason}")
    return completion
