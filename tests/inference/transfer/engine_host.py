"""Real vLLM engines in processes that start within a second, and can be killed and stopped at any point.

A fork server imports vLLM once (10 s); its children build an engine each and answer over a pipe. They hurt themselves
where a test says, so that a kill -9 hits the same instruction every time.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import multiprocessing.connection
import os
import sys
import threading
from collections.abc import Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

from rl_agents.inference.base import Completion, EngineSettings, Sampling
from rl_agents.inference.weight_port import Call
from rl_agents.inference.weights import PackedWeights, unpack

CONTEXT = multiprocessing.get_context("forkserver")


def start_fork_server() -> None:
    """Start it with this process's import path, which Python 3.11 does not pass on; twice does no harm."""
    CONTEXT.set_forkserver_preload(["engines.transfer.imported_early"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        patch.setenv("PYTHONWARNINGS", "ignore")
        patch.setenv("TORCH_CPP_LOG_LEVEL", "ERROR")  # a stack trace for each member that goes missing
        forkserver.ensure_running()


def settings(model_dir: Path, **fields: Any) -> EngineSettings:
    fields = {"max_model_len": 128, "max_batch": 8, "kv_cache_gb": 0.0625, "kind": "vllm"} | fields
    return EngineSettings(str(model_dir), **fields)


class HostedEngine:
    """One engine in its process."""

    def __init__(self, settings: EngineSettings) -> None:
        self.pipe, theirs = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=_serve, args=(theirs, settings), daemon=True)
        self.process.start()
        theirs.close()
        self.number = 0
        self.answers: dict[int, Any] = {}

    def begin(self, method: str, *args: Any) -> int:
        self.number += 1
        try:
            self.pipe.send((self.number, method, args))
        except OSError:
            self.answers[self.number] = EOFError("the engine's process is dead")
        return self.number

    def collect(self) -> None:
        """Take what has arrived."""
        try:
            while self.pipe.poll():
                number, answer = self.pipe.recv()
                self.answers[number] = answer
        except (EOFError, OSError):
            self.answers |= {n: EOFError("the engine's process died") for n in range(self.number + 1)} | self.answers

    def call(self, method: str, *args: Any, timeout_s: float = 60) -> Any:
        number = self.begin(method, *args)
        if number not in self.answers:
            multiprocessing.connection.wait([self.pipe], timeout_s)
        while number not in self.answers:
            assert self.pipe.poll(timeout_s), f"{method} is not answered"
            self.collect()
        answer = self.answers.pop(number)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def generate(self, prompt: Sequence[int], **sampling: Any) -> Completion:
        options = {"max_tokens": 8, "temperature": 0.0, **sampling}
        return self.call("generate", list(prompt), Sampling(**options))

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


def _serve(pipe: Any, settings: EngineSettings) -> None:
    asyncio.run(_answer_all(pipe, settings))


async def _answer_all(pipe: Any, settings: EngineSettings) -> None:
    from rl_agents.inference.vllm_engine import VLLMEngine

    host = _Host(VLLMEngine(settings))
    requests: asyncio.Queue[Any] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read() -> None:
        try:
            while True:
                loop.call_soon_threadsafe(requests.put_nowait, pipe.recv())
        except EOFError:
            os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    tasks = set()  # asyncio keeps weak references only

    async def answer(number: int, method: str, args: Any) -> None:
        try:
            result = await getattr(host, method)(*args)
        except Exception as error:
            result = RuntimeError(str(error))  # of a type that every process knows
        pipe.send((number, result))

    while True:
        tasks.add(asyncio.create_task(answer(*await requests.get())))


class _Host:
    """What an engine's process can be asked."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine

    async def ping(self) -> str:
        return "pong"

    async def generate(self, prompt: list[int], sampling: Sampling) -> Completion:
        return await self.engine.generate(prompt, sampling)

    async def transfer(self, calls: Sequence[Call], version: int) -> None:
        await self.engine.port.run(*calls, version=version)

    async def sync(self, packed: PackedWeights, version: int) -> None:
        await self.engine.sync(unpack(packed), version)

    async def sleep(self, level: int) -> None:
        await self.engine.port.sleep(level)

    async def state(self) -> str:
        return str(self.engine.port.state)

    async def digests(self) -> dict[str, str]:
        """Of all tensors that vLLM holds, quantized ones and their scales too."""
        (digests,) = await self.engine.worker("compute_weight_checksums")
        return {name.rpartition(":")[2]: digest for name, digest in digests.items()}
