"""Bookkeeping of syncs that are given up half-way, with and without a step thread; a stand-in steps for vLLM."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rl_agents.inference import vllm_engine
from rl_agents.inference.base import EngineSettings
from rl_agents.inference.vllm_engine import InlineLLM, SteppedLLM, VLLMEngine


@pytest.fixture(params=[SteppedLLM, InlineLLM])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    vllm = SimpleNamespace(
        has_unfinished_requests=lambda: False, engine_core=SimpleNamespace(shutdown=lambda: None),
        reset_prefix_cache=lambda reset_running_requests: None,
    )  # fmt: skip
    monkeypatch.setattr(vllm_engine, "_start", lambda settings: request.param(vllm))
    monkeypatch.setattr(vllm_engine, "counts_versions", lambda: False)
    engine = VLLMEngine(EngineSettings("", kind="vllm"))
    yield engine
    engine.close()


async def goes_on(engine: VLLMEngine, version: int) -> None:
    """A sync is granted and released, and nobody is held afterwards."""
    await asyncio.wait_for(engine._hold(version), 60)
    await asyncio.wait_for(engine._release(version), 60)
    assert engine.version == version and engine.dead is None
    held = engine.held.seconds()
    await asyncio.sleep(0.02)
    assert engine.held.seconds() == held


@pytest.mark.parametrize("passes", range(5))
def test_a_sync_cancelled_at_any_moment_holds_nobody(engine: VLLMEngine, passes: int) -> None:
    async def scenario() -> None:
        hold = asyncio.create_task(engine._hold(1))
        for _ in range(passes):
            await asyncio.sleep(0)
        hold.cancel()
        await asyncio.gather(hold, return_exceptions=True)
        if not hold.cancelled():  # it was granted already
            await engine._release(1)
        await goes_on(engine, 2)

    asyncio.run(scenario())


def test_giving_up_what_was_released_already_does_no_harm(engine: VLLMEngine) -> None:
    """A caller cancelled while it awaits `release` gives up afterwards; the thread has gone on by then."""

    async def scenario() -> None:
        await engine._hold(1)
        release = asyncio.create_task(engine._release(1))
        await asyncio.sleep(0)
        release.cancel()
        await asyncio.gather(release, return_exceptions=True)
        await engine._give_up("cancelled")
        await goes_on(engine, 2)

    asyncio.run(scenario())
