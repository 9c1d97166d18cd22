"""A policy replica: one engine behind Serve, which takes and returns tokens and loads new weights in place."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rl_agents.errors import InputError
from rl_agents.inference.base import Completion, EngineError, EngineSettings, Likeliest, Sampling
from rl_agents.inference.model_shape import check_model_dir, read_config
from rl_agents.serving.metrics import EngineMeter

if TYPE_CHECKING:
    import torch

    from rl_agents.serving.source import Checkpoint

logger = logging.getLogger("ray.serve")

#: Seconds until a replica tries again to load weights that it could not read.
RETRY_S = 10.0


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


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an answer, or all of it.

    Attributes:
        finish_reason: ``stop`` or ``length``; empty if more tokens follow.
        label: checkpoint with whose weights the answer began.
        likeliest: see `Completion.likeliest`.
    """

    token_ids: list[int]
    logprobs: list[float]
    finish_reason: str
    label: str
    likeliest: Sequence[Likeliest] = ()

    def __add__(self, more: Piece) -> Piece:
        likeliest = [*self.likeliest, *more.likeliest]
        return Piece(
            self.token_ids + more.token_ids, self.logprobs + more.logprobs, more.finish_reason, self.label, likeliest
        )


class PolicyClient(Protocol):
    """The gateway's view of the replicas: `Policy` itself in one process, `RemotePolicy` behind Serve."""

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, target: Target) -> Piece:
        """Return a complete answer."""

    def stream(self, prompt_ids: Sequence[int], sampling: Sampling, target: Target) -> AsyncGenerator[Piece, None]:
        """Yield an answer piece by piece; closing the iterator stops the engine."""

    async def load(self, target: Target) -> None:
        """Load new weights into all replicas."""

    async def served(self) -> Target:
        """Return the served target; raises if no replica is ready."""


class UpdateLock:
    """Answers run concurrently; new weights wait until none is running, and block new ones meanwhile."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        """``tell`` gets the number of running answers whenever it changes."""
        self._inside, self._tell = 0, tell
        self._open, self._empty = asyncio.Event(), asyncio.Event()
        self._open.set()
        self._empty.set()

    @asynccontextmanager
    async def answer(self) -> AsyncIterator[None]:
        while not self._open.is_set():
            await self._open.wait()
        self._inside += 1
        self._tell(self._inside)
        self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            self._tell(self._inside)
            if not self._inside:
                self._empty.set()

    @asynccontextmanager
    async def exchange(self, patience_s: float) -> AsyncIterator[None]:
        """Enter to replace the weights: alone, or after ``patience_s`` seconds together with running answers."""
        self._open.clear()
        try:
            try:
                await asyncio.wait_for(self._empty.wait(), patience_s)
            except TimeoutError:
                logger.warning("new weights under %d running answers, after %g s", self._inside, patience_s)
            yield
        finally:
            self._open.set()


class Policy:
    """The deployment's class; `rl_agents.serving.app.build` wraps it."""

    def __init__(self, settings: EngineSettings, checkpoint: Checkpoint, drain_s: float) -> None:
        """Build the engine; new weights wait ``drain_s`` seconds for running answers."""
        os.environ["OMP_NUM_THREADS"] = str(settings.threads)  # before torch is imported
        from rl_agents.inference.select import build_engine

        self._engine = build_engine(settings)
        self._drain_s = drain_s
        self._target = Target(0, checkpoint)
        self._meter = EngineMeter()
        self._meter.serves(checkpoint.label)
        self._update_lock = UpdateLock(self._meter.running)
        self._loading = asyncio.Lock()
        self._failed: tuple[int, float] = (0, 0.0)
        self._broken = ""

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, target: Target) -> Piece:
        """Sample an answer.

        Raises:
            EngineError: the engine rejects the request, or has failed.
        """
        await self._keep_up(target)
        async with self._update_lock.answer():
            label = self._target.checkpoint.label
            answer = _ended(await self._engine.generate(prompt_ids, sampling))
        return Piece(answer.token_ids, answer.logprobs, answer.finish_reason, label, answer.likeliest)

    async def stream(
        self, prompt_ids: Sequence[int], sampling: Sampling, target: Target
    ) -> AsyncGenerator[Piece, None]:
        """Sample an answer and yield its tokens as they are sampled; see `generate`."""
        await self._keep_up(target)
        async with self._update_lock.answer():
            label = self._target.checkpoint.label
            heard: asyncio.Queue[Piece | None] = asyncio.Queue()

            def hear(ids: list[int], logprobs: list[float], likeliest: Sequence[Likeliest] = ()) -> None:
                heard.put_nowait(Piece(ids, logprobs, "", label, likeliest))

            work = asyncio.ensure_future(self._engine.generate(prompt_ids, sampling, hear))
            work.add_done_callback(lambda _: heard.put_nowait(None))
            try:
                sent = 0
                while (piece := await _together(heard)) is not None:
                    sent += len(piece.token_ids)
                    yield piece
                rest = _ended(work.result())
                yield Piece(
                    rest.token_ids[sent:], rest.logprobs[sent:], rest.finish_reason, label, rest.likeliest[sent:]
                )
            finally:
                work.cancel()

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
            async with self._update_lock.exchange(self._drain_s):
                self._broken = f"new weights ({target.checkpoint.label}) were loaded in part"
                await self._engine.sync(weights, target.number)
                self._broken, self._target = "", target
        self._meter.serves(target.checkpoint.label)
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


async def _together(heard: asyncio.Queue[Piece | None]) -> Piece | None:
    """Wait for tokens and return all that are there; None at the end."""
    piece = await heard.get()
    while piece is not None and not heard.empty():
        more = heard.get_nowait()
        if more is None:
            heard.put_nowait(None)
            break
        piece += more
    return piece


def _ended(completion: Completion) -> Completion:
    """Raise EngineError if the engine has not completed the answer."""
    if completion.finish_reason not in ("stop", "length"):
        raise EngineError(f"the engine did not complete the answer: {completion.finish_reason}")
    return completion
