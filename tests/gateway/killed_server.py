"""A real gateway process on a real pool that kills itself (SIGKILL) at the instant that it was told.

``python killed_server.py MODEL POOL INSTANT`` prints its address and the session's key, if new.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from rl_agents.chat.template import ChatTemplate, load_tokenizer
from rl_agents.gateway.gateway import Gateway, GatewayLimits
from rl_agents.gateway.server import serving
from rl_agents.inference.torch_engine import TorchEngine
from rl_agents.store.reader import PoolReader
from rl_agents.store.records import Call, SessionStart
from rl_agents.store.trajectory_store import PoolWriter

INSTANTS = ("after sampling", "after commit", "during the stream")
#: Tokens of a stream that its client has been sent when the gateway dies.
STREAMED = 12


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DeadlyPool:
    """A pool's writer, and death before or after what it writes."""

    def __init__(self, pool: PoolWriter, instant: str) -> None:
        self.pool, self.instant = pool, instant

    def add(self, *records: Any) -> Any:
        calls = any(isinstance(record, Call) for record in records)
        if calls and self.instant == "after sampling":
            die()
        future = self.pool.add(*records)
        if calls and self.instant == "after commit":
            future.result()
            die()
        return future


class DeadlyEngine(TorchEngine):
    """Passes the tokens of a stream on slowly, and dies in its middle."""

    deadly = False

    async def generate(self, prompt_ids: Any, sampling: Any, on_tokens: Any = None) -> Any:
        if not self.deadly or on_tokens is None:
            return await super().generate(prompt_ids, sampling, on_tokens)
        completion = await super().generate(prompt_ids, sampling)
        for token, logprob in zip(completion.token_ids[:STREAMED], completion.logprobs, strict=False):
            on_tokens([token], [logprob])
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        die()


@contextlib.asynccontextmanager
async def opened(model: str, path: str, instant: str = "") -> AsyncIterator[tuple[str, str]]:
    """A gateway that goes on where the pool ends: its address, and the session's key if that is new."""
    engine = DeadlyEngine(model, max_model_len=2000)
    engine.deadly = instant == "during the stream"
    limits = GatewayLimits(max_model_len=2000, max_response_tokens=24)
    with PoolWriter(Path(path)) as pool:
        gateway = Gateway(engine, ChatTemplate(load_tokenizer(model)), limits, DeadlyPool(pool, instant))
        with PoolReader(Path(path)) as reader:
            again = gateway.resume(reader)
            key = "" if again else gateway.open(SessionStart("s", 0, 0, 7, "t"))
        pool.flush()
        async with serving(gateway) as url:
            yield url, key


async def main(model: str, path: str, instant: str) -> None:
    async with opened(model, path, instant) as (url, key):
        print(url, key, flush=True)
        await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
