"""vLLM stepped by the event loop that asks it: what runs when, and what becomes of errors. A stand-in is stepped."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rl_agents.inference import vllm_engine
from rl_agents.inference.base import EngineError, EngineSettings, Sampling
from rl_agents.inference.vllm_engine import InlineLLM, SteppedLLM, VLLMEngine


class Stand:
    """Answers each request in the second step after it came, and notes who was in which step."""

    def __init__(self) -> None:
        self.running: dict[str, int] = {}
        self.steps: list[list[str]] = []
        self.fails = False
        self.engine_core = SimpleNamespace(shutdown=lambda: None)

    def add_request(self, request_id: str, *_: Any, **__: Any) -> None:
        self.running[request_id] = 2

    def abort_request(self, ids: list[str]) -> None:
        for request_id in ids:
            del self.running[request_id]

    def has_unfinished_requests(self) -> bool:
        return bool(self.running)

    def step(self) -> list[Any]:
        if self.fails:
            raise RuntimeError("out of memory")
        self.steps.append(sorted(self.running))
        self.running = {name: left - 1 for name, left in self.running.items()}
        done = [name for name, left in self.running.items() if not left]
        self.running = {name: left for name, left in self.running.items() if left}
        output = SimpleNamespace(finish_reason="stop")
        return [SimpleNamespace(request_id=name, finished=True, outputs=[output]) for name in done]


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    stand = Stand()
    monkeypatch.setattr(vllm_engine, "_start", lambda settings: InlineLLM(stand))
    monkeypatch.setattr(vllm_engine, "counts_versions", lambda: False)
    monkeypatch.setattr(vllm_engine, "sampling_params", lambda sampling, stream: None)
    monkeypatch.setattr(vllm_engine, "completion", lambda output, version: output.request_id)
    monkeypatch.setattr(VLLMEngine, "_count", lambda self, output: None)
    return stand


@pytest.fixture
def engine(stand: Stand) -> VLLMEngine:
    return VLLMEngine(EngineSettings("", kind="vllm", mode="inline"))


def ask(engine: VLLMEngine) -> Any:
    return engine.generate([1, 2], Sampling(max_tokens=2))


def test_the_next_request_of_who_was_answered_joins_the_next_step(engine: VLLMEngine, stand: Stand) -> None:
    async def episode() -> None:
        for _ in range(3):
            await ask(engine)

    async def both() -> None:
        await asyncio.gather(episode(), episode())

    asyncio.run(both())
    assert stand.steps == [["0", "1"]] * 2 + [["2", "3"]] * 2 + [["4", "5"]] * 2
    asyncio.run(both())  # on another loop, as a new one may come
    assert len(stand.steps) == 12


def test_a_request_that_is_given_up_is_aborted(engine: VLLMEngine, stand: Stand) -> None:
    async def scenario() -> None:
        task = asyncio.create_task(ask(engine))
        while not stand.running:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await ask(engine)

    asyncio.run(scenario())
    assert stand.steps[-2:] == [["1"]] * 2


@pytest.mark.parametrize("kind", [InlineLLM, SteppedLLM])
def test_a_step_that_fails_answers_everybody_now_and_later(stand: Stand, monkeypatch, kind: type[SteppedLLM]) -> None:
    monkeypatch.setattr(vllm_engine, "_start", lambda settings: kind(stand))
    engine = VLLMEngine(EngineSettings("", kind="vllm"))

    async def scenario() -> list[Any]:
        return await asyncio.gather(ask(engine), ask(engine), return_exceptions=True)

    stand.fails = True
    for answer in (*asyncio.run(scenario()), *asyncio.run(scenario())):
        assert isinstance(answer, EngineError) and "step failed: RuntimeError('out of memory')" in str(answer)
    assert engine.dead is not None


def test_who_waits_when_it_is_closed_hears_of_it(engine: VLLMEngine, stand: Stand) -> None:
    async def scenario() -> None:
        task = asyncio.create_task(ask(engine))
        while not stand.running:
            await asyncio.sleep(0)
        engine.close()
        with pytest.raises(EngineError, match="closed"):
            await task

    asyncio.run(scenario())
