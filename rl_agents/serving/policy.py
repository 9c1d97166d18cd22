"""A policy replica: one engine behind Serve. Tokens in, tokens out, and new weights in place."""

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
from rl_agents.inference.model_shape import check_model_dir

if TYPE_CHECKING:
    import torch

    from rl_agents.serving.metrics import EngineMeter
    from rl_agents.serving.source import Checkpoint

logger = logging.getLogger("ray.serve")

#: Token ids, their log-probabilities, and the likeliest tokens where they were asked for.
Heard = tuple[list[int], list[float], list[Likeliest]]
#: Seconds for which a replica does not try again to load weights that it could not read.
RETRY_S = 10.0


@dataclass(frozen=True)
class Target:
    """The weights that requests want.

    Attributes:
        number: later targets have greater numbers (nanoseconds since 1970), also after the gateway restarted.
    """

    number: int
    checkpoint: Checkpoint

    @classmethod
    def now(cls, checkpoint: Checkpoint) -> Target:
        return cls(time.time_ns(), checkpoint)


@dataclass(frozen=True, slots=True)
class Piece:
    """What a replica returns: tokens as they come, and at the end why they ended.

    Attributes:
        finish_reason: ``stop`` or ``length``; empty while more is to come.
        label: checkpoint whose weights the answer began with, or adapter over them.
        likeliest: see `Completion.likeliest`.
    """

    token_ids: list[int]
    logprobs: list[float]
    finish_reason: str
    label: str
    likeliest: Sequence[Likeliest] = ()


class PolicyClient(Protocol):
    """What the gateway needs of the replicas: `Policy` itself in one process, `RemotePolicy` behind Serve."""

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, target: Target) -> Piece:
        """Return a whole answer."""

    def stream(self, prompt_ids: Sequence[int], sampling: Sampling, target: Target) -> AsyncGenerator[Piece, None]:
        """Yield an answer piece by piece; closing the iterator stops the engine's work on it."""

    async def load(self, target: Target) -> None:
        """Have all replicas take new weights."""

    async def served(self) -> Target:
        """Return what the replicas serve; an error when none is ready."""


class UpdateLock:
    """Answers pass together; new weights wait until none is inside, and keep new ones out meanwhile."""

    def __init__(self, tell: Callable[[int], None] | None = None) -> None:
        """Begin open; ``tell`` hears how many are inside, whenever that changes."""
        self._inside, self._tell = 0, tell or (lambda inside: None)
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
        """Enter to replace the weights: alone, or after ``patience_s`` alongside answers that still run."""
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

    def __init__(
        self,
        settings: EngineSettings,
        checkpoint: Checkpoint,
        drain_s: float = 10.0,
        meter: EngineMeter | None = None,
    ) -> None:
        """Build the engine.

        Args:
            settings: of the engine; its ``model_dir`` is the checkpoint's.
            checkpoint: what is served until `load`.
            drain_s: seconds that new weights wait for running answers.
            meter: told of running answers and of checkpoints.
        """
        os.environ["OMP_NUM_THREADS"] = str(settings.threads)  # before torch is imported
        from rl_agents.inference.select import build_engine

        self._engine = build_engine(settings)
        self._drain_s = drain_s
        self._target = Target(0, checkpoint)
        self._adapters = {adapter.name: adapter.label for adapter in settings.adapters}
        self._meter = meter
        if meter is not None:
            meter.serves(checkpoint.label)
        self._turnstile = UpdateLock(meter.running if meter is not None else None)
        self._loading = asyncio.Lock()
        self._failed: tuple[int, float] = (0, 0.0)
        self._broken = ""

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, target: Target) -> Piece:
        """Sample an answer.

        Raises:
            EngineError: the engine rejects the request, or has failed.
        """
        await self._keep_up(target)
        async with self._turnstile.answer():
            label = self._label(sampling)
            completion = _ended(await self._engine.generate(prompt_ids, sampling))
        told = completion.likeliest
        return Piece(completion.token_ids, completion.logprobs, completion.finish_reason, label, told)

    async def stream(
        self, prompt_ids: Sequence[int], sampling: Sampling, target: Target
    ) -> AsyncGenerator[Piece, None]:
        """Sample an answer and yield its tokens as they come; see `generate`."""
        await self._keep_up(target)
        async with self._turnstile.answer():
            label = self._label(sampling)
            heard: asyncio.Queue[Heard | None] = asyncio.Queue()

            def hear(ids: list[int], logprobs: list[float], likeliest: Sequence[Likeliest] = ()) -> None:
                heard.put_nowait((ids, logprobs, list(likeliest)))

            work = asyncio.ensure_future(self._engine.generate(prompt_ids, sampling, hear))
            work.add_done_callback(lambda _: heard.put_nowait(None))
            try:
                sent = 0
                while (news := await _together(heard)) is not None:
                    sent += len(news[0])
                    yield Piece(news[0], news[1], "", label, news[2])
                rest = _ended(work.result())
                yield Piece(
                    rest.token_ids[sent:], rest.logprobs[sent:], rest.finish_reason, label, rest.likeliest[sent:]
                )
            finally:
                work.cancel()

    async def load(self, target: Target) -> None:
        """Serve ``target`` from now on, unless this replica serves it or a later one already.

        Raises:
            InputError: the weights cannot be read; the old ones stay.
            EngineError: they do not fit, which `check_replaces` should have told; this replica needs a restart.
        """
        async with self._loading:
            if target.number <= self._target.number:
                return
            weights = await asyncio.to_thread(read_weights, target.checkpoint)
            async with self._turnstile.exchange(self._drain_s):
                self._broken = f"new weights ({target.checkpoint.label}) were loaded in part"
                await self._engine.sync(weights, target.number)
                self._broken, self._target = "", target
        if self._meter is not None:
            self._meter.serves(target.checkpoint.label)
        logger.info("serving %s", target.checkpoint.label)

    async def served(self) -> Target:
        return self._target

    async def check_health(self) -> None:
        """Serve's probe: a replica whose engine has died, or holds half of two checkpoints, is replaced.

        Raises:
            EngineError: it has.
        """
        if dead := self._broken or getattr(self._engine, "dead", None):
            raise EngineError(str(dead))

    def _label(self, sampling: Sampling) -> str:
        adapter = sampling.extras.adapter if sampling.extras is not None else ""
        return self._adapters.get(adapter, self._target.checkpoint.label)

    async def _keep_up(self, target: Target) -> None:
        """Take the weights that a request wants: a replica that started after `load` learns of them this way."""
        if target.number <= self._target.number:
            return
        number, when = self._failed
        if number == target.number and time.monotonic() - when < RETRY_S:
            return
        try:
            await self.load(target)
        except InputError as error:  # a pruned checkpoint: an answer from older weights is better than none
            self._failed = (target.number, time.monotonic())
            logger.warning("still serving %s: %s", self._target.checkpoint.label, error)


def read_weights(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    """Read all tensors of a Hugging Face folder; nothing is unpickled.

    Raises:
        InputError: a file is missing or damaged.
    """
    import json

    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from rl_agents.inference.weights import untied

    folder = check_model_dir(checkpoint.hf_dir)
    weights: dict[str, Any] = {}
    try:
        for path in sorted(folder.glob("*.safetensors")):
            weights.update(load_file(path))
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, SafetensorError, ValueError) as error:
        raise InputError(f"{checkpoint.label}: damaged checkpoint: {error}") from error
    return untied(weights, tied=bool(config.get("tie_word_embeddings")))


async def _together(heard: asyncio.Queue[Heard | None]) -> Heard | None:
    """Wait for tokens; return all that have come, and None once nothing but the end has."""
    first = await heard.get()
    if first is None:
        return None
    ids, logprobs, likeliest = list(first[0]), list(first[1]), list(first[2])
    while not heard.empty():
        more = heard.get_nowait()
        if more is None:
            heard.put_nowait(None)
            break
        ids += more[0]
        logprobs += more[1]
        likeliest += more[2]
    return ids, logprobs, likeliest


def _ended(completion: Completion) -> Completion:
    """Return a completion that ended as one does."""
    if completion.finish_reason not in ("stop", "length"):
        raise EngineError(f"the engine gave the answer up: {completion.finish_reason}")
    return completion
