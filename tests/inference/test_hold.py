"""Bookkeeping of syncs that are given up half-way, with and without a step thread; a stand-in steps for vLLM."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from rl_agents.inference import EngineSettings, vllm_engine
from rl_agents.inference.vllm_engine import VLLMInlineEngine, VLLMInProcessEngine


@pytest.fixture(params=[VLLMInProcessEngine, VLLMInlineEngine])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    vllm = SimpleNamespace(
        has_unfinished_requests=lambda: False, engine_core=SimpleNamespace(shutdown=lambda: None),
    )  # fmt: skip
    monkeypatch.setattr(vllm_engine, "_start", lambda settings: vllm)
    monkeypatch.setattr(vllm_engine, "counts_versions", lambda: False)
    engine = request.param(EngineSettings("", kind="vllm"))
    yield engine
    engine.close()


async def goes_on(engine: VLLMInProcessEngine, version: int) -> None:
    """A sync is granted and released, and nobody is held afterwards."""
    await asyncio.wait_for(engine.hold(version), 10)
    await asyncio.wait_for(engine.release(version), 10)
    assert engine.version == version and not engine._syncs and not engine._loading
    held = engine.held.seconds()
    await asyncio.sleep(0.02)
    assert engine.held.seconds() == held


def test_a_sync_cancelled_in_the_moment_it_is_granted_holds_nobody(engine: VLLMInProcessEngine) -> None:
    async def scenario() -> None:
        hold = asyncio.create_task(engine.hold(1))
        await asyncio.sleep(0)
        until = time.monotonic() + 10
        while not engine._loading and time.monotonic() < until:
            if isinstance(engine, VLLMInlineEngine):
                await asyncio.sleep(0)
            time.sleep(0.001)  # the thread grants it, and this loop has not heard of it
        assert engine._loading and not hold.done()
        hold.cancel()
        await asyncio.gather(hold, return_exceptions=True)
        assert hold.cancelled()
        await goes_on(engine, 2)

    asyncio.run(scenario())


def test_a_sync_cancelled_before_it_is_granted_is_forgotten(engine: VLLMInProcessEngine) -> None:
    async def scenario() -> None:
        sync = vllm_engine._Sync(1, time.monotonic())
        sync.future.cancel()
        engine._post(lambda: engine._syncs.append(sync))
        await goes_on(engine, 2)
        assert engine.dead is None

    asyncio.run(scenario())


def test_giving_up_what_was_released_already_does_no_harm(engine: VLLMInProcessEngine) -> None:
    """A caller cancelled while it awaits `release` gives up afterwards; the thread has gone on by then."""

    async def scenario() -> None:
        await engine.hold(1)
        release = asyncio.create_task(engine.release(1))
        await asyncio.sleep(0)
        release.cancel()
        await asyncio.gather(release, return_exceptions=True)
        await engine.give_up("cancelled")
        await goes_on(engine, 2)

    asyncio.run(scenario())
