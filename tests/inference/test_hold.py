"""Bookkeeping of syncs that are given up half-way, and of steps that fail; a stand-in steps for vLLM."""

import asyncio
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from rl_agents.inference import vllm_engine
from rl_agents.inference.base import EngineError, EngineSettings, Sampling
from rl_agents.inference.vllm_engine import SteppedLLM, VLLMEngine


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    vllm = SimpleNamespace(
        has_unfinished_requests=lambda: False, engine_core=SimpleNamespace(shutdown=lambda: None),
        reset_prefix_cache=lambda reset_running_requests: None, set_weight_version=lambda version: None,
    )  # fmt: skip
    monkeypatch.setattr(vllm_engine, "_start", lambda settings: SteppedLLM(vllm))
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


def test_a_step_that_fails_answers_everybody_now_and_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("out of memory")

    running = list[str]()
    vllm = SimpleNamespace(
        add_request=lambda request_id, *_: running.append(request_id), has_unfinished_requests=lambda: bool(running),
        step=fail,
    )  # fmt: skip
    monkeypatch.setattr(vllm_engine, "_start", lambda settings: SteppedLLM(vllm))
    monkeypatch.setattr(vllm_engine, "sampling_params", lambda sampling, stream: None)
    engine = VLLMEngine(EngineSettings("", kind="vllm"))

    async def scenario() -> list[Any]:
        asked = (engine.generate([1, 2], Sampling(max_tokens=2)) for _ in range(2))
        return await asyncio.gather(*asked, return_exceptions=True)

    for answer in (*asyncio.run(scenario()), *asyncio.run(scenario())):
        assert isinstance(answer, EngineError) and "step failed: RuntimeError('out of memory')" in str(answer)
    assert engine.dead is not None


def test_the_stepping_thread_computes_with_the_threads_of_the_process() -> None:
    """vLLM's attention plans with OpenMP's number of threads of the stepping thread, and fails if torch has another."""
    code = """
import ctypes, threading, torch
from types import SimpleNamespace
from rl_agents.inference.vllm_engine import SteppedLLM
torch.set_num_threads(1)
omp = ctypes.CDLL(next(line.split()[-1] for line in open("/proc/self/maps") if "libgomp" in line))
seen, asked = [], threading.Event()
def unfinished():
    seen.append(omp.omp_get_max_threads())
    asked.set()
core = SimpleNamespace(shutdown=lambda: None)
llm = SteppedLLM(SimpleNamespace(has_unfinished_requests=unfinished, engine_core=core))
asked.wait(60)
llm.shutdown()
print(seen[0])
"""
    env = {**os.environ, "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "1"
