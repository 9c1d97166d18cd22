"""The order of calls and syncs at a gate; no engine, no clock but the event loop's."""

import asyncio
import pickle
from typing import Any

import pytest

from rl_agents.inference.base import Completion, EngineError, check_completion, stamp
from rl_agents.inference.weight_update_gate import Gate, OverlapClock, Running


class Stage:
    """A gate, and a log of who came in when."""

    def __init__(self, room: int = 9, patience_s: float = 60.0, **how: bool) -> None:
        self.gate, self.log, self.doors = Gate(room, patience_s, **how), list[str](), dict[str, asyncio.Event]()

    async def call(self, name: str) -> None:
        self.doors[name] = asyncio.Event()
        async with self.gate.call(Running(7, 50)):
            self.log.append(name)
            await self.doors[name].wait()
        self.log.append(f"-{name}")

    async def sync(self, *versions: int) -> None:
        for version in versions:
            async with self.gate.update(version):
                self.log.append(str(version))

    def start(self, *names: str) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self.call(name)) for name in names]


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


#: How the gate is made; what happens (calls come, ``-`` they may end, numbers are syncs, ``.`` waits for all syncs);
#: and who came in when (``-``: a call ended).
SCENARIOS: list[tuple[str, dict[str, Any], str, str]] = [
    ("a sync waits for running calls and holds new ones back", {}, "ab 1 cd -a -b .", "a b -a -b 1 c d"),
    ("keep waits for nothing", {"keep": True}, "a 1 . b", "a 1 b"),
    ("an impatient sync waits its time only", {"patience_s": 0.05, "patient": False}, "a 1 b . -b -a", "a 1 b -b -a"),
    ("what waits for room does not delay a sync", {"room": 1}, "abc 1 -a . -b -c", "a -a 1 b -b c -c"),
    ("syncs back to back starve no call", {}, "a 123 b -a -b .", "a -a 1 b -b 2 3"),
]


@pytest.mark.parametrize(("how", "acts", "log"), [row[1:] for row in SCENARIOS], ids=[row[0] for row in SCENARIOS])
def test_who_comes_in_when(how: dict[str, Any], acts: str, log: str) -> None:
    async def scenario() -> list[str]:
        stage, syncs, calls = Stage(**how), list[asyncio.Task[None]](), list[asyncio.Task[None]]()
        for act in acts.split():
            if act == ".":
                await asyncio.gather(*syncs)
            elif act.isdigit():
                syncs.append(asyncio.create_task(stage.sync(*map(int, act))))
            elif act.startswith("-"):
                stage.doors[act[1:]].set()
            else:
                calls += stage.start(*act)
            await settle()
        return stage.log

    assert asyncio.run(asyncio.wait_for(scenario(), 60)) == log.split()


def test_calls_that_are_cancelled_leave_nothing_behind() -> None:
    """One runs, one is held, one is cancelled in the very moment of its turn."""

    async def scenario() -> list[str]:
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
        return stage.log

    assert asyncio.run(asyncio.wait_for(scenario(), 60)) == ["a", "1", "2"]


def test_a_sync_that_waits_too_long_names_the_calls_and_lets_others_go() -> None:
    async def scenario() -> list[str]:
        stage = Stage(patience_s=0.05)
        stage.start("a", "b")
        await settle()
        with pytest.raises(EngineError, match=r"version 3 waited 0.05 s for 2 running calls.*7 prompt.*up to 50.*keep"):
            await stage.sync(3)
        stage.start("c")
        await settle()
        return stage.log

    assert asyncio.run(asyncio.wait_for(scenario(), 60)) == ["a", "b", "c"]


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
