"""Weights that fail to load while calls are on their way into AsyncLLM; a stand-in answers in the place of vLLM."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.logprobs import FlatLogprobs

from rl_agents.inference import vllm_engine
from rl_agents.inference.base import EngineError, EngineSettings, Sampling
from rl_agents.inference.vllm_engine import VLLMEngine


class Core:
    """vLLM's core process, as far as the race goes: what it has not heard of, it does not abort."""

    errored = False

    def __init__(self) -> None:
        self.arrives, self.paused, self.hangs = asyncio.Event(), False, asyncio.Event()
        self.hangs.set()
        self.asked: list[str] = []
        self.fails = ""

    async def generate(self, prompt: Any, params: Any, request_id: str, **_: Any) -> AsyncIterator[Any]:
        await self.arrives.wait()  # on its way: its text is read, and its socket is slow
        flat = FlatLogprobs([0], [1], [7], [-0.1], [1], [None])
        output = SimpleNamespace(token_ids=[7], logprobs=flat, finish_reason="stop", weight_versions=())
        yield SimpleNamespace(finished=True, outputs=[output], prompt_token_ids=[1], num_cached_tokens=0)

    async def pause_generation(self, mode: str, clear_cache: bool) -> None:
        self.paused = True
        await self.hangs.wait()

    async def resume_generation(self) -> None:
        self.paused = False

    async def update_weight_version(self, version: str) -> None: ...

    async def collective_rpc(self, method: str, kwargs: Any) -> list[Any]:
        self.asked.append(method)
        if method == self.fails:
            raise RuntimeError("out of memory")
        return []

    async def sleep(self, level: int) -> None:
        self.asked.append(f"sleep {level}")
        if self.fails == "sleep":
            raise RuntimeError("sleep mode is not enabled")

    async def wake_up(self, tags: list[str]) -> None:
        self.asked.append(f"wake {' '.join(tags)}")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> VLLMEngine:
    monkeypatch.setattr(vllm_engine, "_start", lambda settings: Core())
    monkeypatch.setattr(vllm_engine, "sampling_params", lambda *args: None)

    async def build() -> VLLMEngine:
        return VLLMEngine(EngineSettings("", kind="vllm", mode="async", weight_switch="keep"))

    return asyncio.run(build())


async def fail_to_load(engine: VLLMEngine, version: int) -> None:
    await engine._hold(version)
    await engine._give_up("the weights are half-way")


@pytest.mark.parametrize("mended", [False, True])
def test_a_call_that_the_abort_did_not_reach_is_answered_by_no_half_loaded_weights(engine, mended) -> None:
    heard: list[int] = []

    async def scenario() -> None:
        core: Any = engine._engine
        call = asyncio.create_task(engine.generate([1], Sampling(4), lambda ids, _: heard.extend(ids)))
        await asyncio.sleep(0)
        await fail_to_load(engine, 1)
        if mended:  # before the call arrives: what it says is of the new weights, and its start is not known to be
            await engine._hold(2)
            await engine._release(2)
        core.arrives.set()
        with pytest.raises(EngineError, match="the weights are half-way"):
            await call
        later = engine.generate([1], Sampling(4))
        if mended:
            assert (await later).policy_version == 2
        else:
            with pytest.raises(EngineError, match="the weights are half-way"):
                await later

    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert not heard


def test_giving_up_that_is_cancelled_half_way_does_not_hold_the_next_weights(engine: VLLMEngine) -> None:
    async def scenario() -> None:
        core: Any = engine._engine
        await engine._hold(1)
        core.hangs.clear()
        giving_up = asyncio.create_task(engine._give_up("the weights are half-way"))
        await asyncio.sleep(0.01)
        giving_up.cancel()
        await asyncio.gather(giving_up, return_exceptions=True)
        core.hangs.set()
        core.arrives.set()
        await asyncio.wait_for(engine._hold(2), 60)
        await engine._release(2)
        assert (await engine.generate([1], Sampling(4))).policy_version == 2 and not core.paused
        held = engine.held.seconds()
        await asyncio.sleep(0.02)
        assert engine.held.seconds() == held

    asyncio.run(asyncio.wait_for(scenario(), 60))


WEIGHTS = {"a": torch.ones(2, 3), "b": torch.zeros(4, dtype=torch.bfloat16)}
UPDATE = ["start_weight_update", "update_weights", "finish_weight_update"]


@pytest.mark.parametrize("fails", ["", *UPDATE])
def test_weights_wake_before_an_update_and_the_cache_after_one_that_succeeds(engine: VLLMEngine, fails: str) -> None:
    async def scenario() -> None:
        core: Any = engine._engine
        await engine.sleep(1)
        core.fails = fails
        if fails:
            with pytest.raises(EngineError, match=r"weights of version 7: RuntimeError: out of memory"):
                await engine.load_weights(WEIGHTS, 7)
            assert "wake kv_cache" not in core.asked
            with pytest.raises(EngineError, match="the engine cannot sleep: vLLM cannot load weights"):
                await engine.sleep(1)
            core.fails, core.asked = "", ["sleep 1", "wake weights"]
        await engine.load_weights(WEIGHTS, 7)
        assert core.asked == ["sleep 1", "wake weights", *UPDATE, "wake kv_cache"]
        assert (engine.version, engine.unsound, core.paused) == (7, "", False)

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_an_engine_that_does_not_fall_asleep_holds_no_call(engine: VLLMEngine) -> None:
    async def scenario() -> None:
        core: Any = engine._engine
        core.fails = "sleep"
        with pytest.raises(RuntimeError, match="sleep mode"):
            await engine.sleep(1)
        assert not core.paused and "did not fall asleep" in engine.unsound
        await engine.load_weights(WEIGHTS, 2)
        core.arrives.set()
        assert (await engine.generate([1], Sampling(4))).policy_version == 2

    asyncio.run(asyncio.wait_for(scenario(), 60))
