"""When an engine actor's exchange answers (no Ray, no model: the class and a stand-in for the engine)."""

import asyncio
import time
from typing import Any

import pytest

from rl_agents.inference import actor, engines
from rl_agents.inference.base import Completion, EngineSettings, Sampling


class Sleeper:
    """Answers after as many seconds as the prompt's first number says, divided by 1000."""

    async def generate(self, prompt_ids: list[int], sampling: Sampling) -> Completion:
        await asyncio.sleep(prompt_ids[0] / 1000)
        return Completion([1], [0.0], 0, "stop")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> actor.EngineActor:
    monkeypatch.setattr(engines, "build_engine", lambda settings: Sleeper())
    monkeypatch.setattr(actor, "_was_restarted", lambda: False)
    monkeypatch.setattr(actor, "MAX_WAIT_S", 60.0)  # nothing here is about it
    return actor.EngineActor(EngineSettings(model_dir=""))


def requests(*milliseconds: int) -> list[Any]:
    return [(number, [duration], Sampling(1)) for number, duration in enumerate(milliseconds)]


def answered(engine: actor.EngineActor, *milliseconds: int) -> tuple[list[int], float]:
    async def exchange() -> list[int]:
        replies, _ = await engine.serve_batch("a/1", requests(*milliseconds))
        return [number for number, _ in replies]

    started = time.monotonic()
    return asyncio.run(exchange()), time.monotonic() - started


def test_results_gather_until_they_are_a_quarter(engine: actor.EngineActor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor, "LINGER_S", 20.0)
    numbers, _ = answered(engine, 10, 60, *[20_000] * 6)
    assert numbers == [0, 1]


def test_a_lone_result_waits_a_moment_only(engine: actor.EngineActor) -> None:
    numbers, seconds = answered(engine, 10, *[20_000] * 30)
    assert numbers == [0]
    assert seconds > actor.LINGER_S


def test_a_single_request_is_answered_at_once(engine: actor.EngineActor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor, "LINGER_S", 600.0)
    assert answered(engine, 10)[0] == [0]
