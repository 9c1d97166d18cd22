"""What cannot run without GPUs, by contract: calls, ranks and deadlines of NCCL and IPC, sleep and wake.

vLLM's own trainer classes drive the client; the engines, actors, and the communicator are stand-ins that write down
what is asked of them. Nothing here shows that NCCL or CUDA IPC work.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import ray
import torch

from rl_agents.inference import weight_sync
from rl_agents.inference.base import EngineError
from rl_agents.inference.weight_port import Call, Port, State, TransferError, file_in_memory
from rl_agents.inference.weight_sync import EngineClient, GpuTransfer, PolicySource

WEIGHTS = {"a": torch.ones(2, 3), "b": torch.zeros(4, dtype=torch.bfloat16)}


class Engine:
    """An actor in an engine's place; it dies or hangs in the call that it is told."""

    def __init__(self, bad_call: str = "", hangs: bool = False) -> None:
        self.bad_call, self.hangs, self.asked = bad_call, hangs, list[Call]()

    def transfer(self, call: Call, version: int) -> None:
        self.asked.append(call)
        if call[0] == self.bad_call:
            time.sleep(3600) if self.hangs else os._exit(1)

    def calls(self) -> list[Call]:
        return self.asked


class Communicator:
    """In the place of vLLM's `PyNcclCommunicator`."""

    def __init__(self, hangs: bool = False) -> None:
        self.sent: list[torch.Tensor] = []
        self.hangs, self.destroyed = hangs, threading.Event()

    def broadcast(self, tensor: torch.Tensor, src: int, **_: Any) -> None:
        assert src == 0
        self.sent.append(tensor.clone())
        if self.hangs:
            self.destroyed.wait(30)

    def destroy(self) -> None:
        self.destroyed.set()


@pytest.fixture
def start(ray_session: None) -> Iterator[Callable[..., Any]]:
    """Starts engines."""
    started: list[Any] = []

    def started_engine(*arguments: Any) -> Any:
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # actors do not have the tests on their path
        started.append(ray.remote(num_cpus=0)(Engine).remote(*arguments))
        assert ray.get(started[-1].calls.remote()) == []  # it has started
        return started[-1]

    yield started_engine
    for engine in started:
        ray.kill(engine)


def nccl(monkeypatch: pytest.MonkeyPatch, communicator: Communicator, tensor_parallel: int = 1) -> GpuTransfer:
    """A transfer by vLLM's own NCCL trainer, tensors one by one, with a stand-in for the communicator."""
    engine = pytest.importorskip("vllm.distributed.weight_transfer.nccl_engine")
    monkeypatch.setattr(engine, "open_trainer_endpoint", lambda info: communicator)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    monkeypatch.setattr(weight_sync, "GRACE_S", 0.2)

    def trainer(info: Any, **keywords: Any) -> Any:
        info.packed = False
        return engine.NCCLTrainerWeightTransferEngine.trainer_init(info, **keywords)

    return GpuTransfer("nccl", PolicySource(lambda: iter(WEIGHTS.items())), tensor_parallel, trainer)


@pytest.mark.ray
def test_nccl_calls_come_in_order_and_every_engine_has_its_own_ranks(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    engines, communicator = [start() for _ in range(3)], Communicator()
    transfer = nccl(monkeypatch, communicator, tensor_parallel=2)
    assert transfer.update(engines, 1, 30) == {} == transfer.update(engines, 2, 30)
    asked = ray.get([engine.calls.remote() for engine in engines])
    for calls in asked:
        assert [name for name, _ in calls] == ["init", "start", "update", "finish", "start", "update", "finish"]
    inits = [calls[0][1] for calls in asked]
    assert [info["rank_offset"] for info in inits] == [1, 3, 5]
    assert {info["world_size"] for info in inits} == {7}
    assert asked[0][2][1] == {"names": ["a", "b"], "dtype_names": ["float32", "bfloat16"], "shapes": [[2, 3], [4]]}
    assert [t.shape for t in communicator.sent] == [t.shape for t in WEIGHTS.values()] * 2


@pytest.mark.ray
@pytest.mark.parametrize(
    ("kind", "call"), [("dead", "init"), ("dead", "start"), ("dead", "update"), ("dead", "finish"), ("late", "update")]
)
def test_an_engine_lost_in_any_call_is_named_and_the_next_update_makes_a_new_group(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, kind: str, call: str
) -> None:
    engines = [start(), start(call, kind == "late")]
    transfer = nccl(monkeypatch, Communicator())
    problems = transfer.update(engines, 1, 60.0 if kind == "dead" else 3.0)
    assert {engine: outcome.kind for engine, outcome in problems.items()} == {0: "failed", 1: kind}
    assert transfer.update(engines[:1], 2, 30) == {}
    name, info = ray.get(engines[0].calls.remote())[-4]
    assert (name, info["rank_offset"], info["world_size"]) == ("init", 1, 2)


@pytest.mark.ray
def test_a_broadcast_that_hangs_is_left_behind_at_the_deadline(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    transfer = nccl(monkeypatch, Communicator(hangs=True))
    assert transfer.update([start("update", True)], 1, 0.5)[0].kind == "late"


def test_the_client_is_vllms_protocol() -> None:
    base = pytest.importorskip("vllm.distributed.weight_transfer")
    assert isinstance(EngineClient([], 1), base.VLLMWeightSyncClient)


def test_our_receivers_are_vllms_and_take_the_object_store_too() -> None:
    pytest.importorskip("vllm")
    from rl_agents.inference import weight_receivers as receivers

    registry = receivers.WeightTransferEngineFactory._registry
    for way, base in (("nccl", receivers.NCCLWeightTransferEngine), ("ipc", receivers.IPCWeightTransferEngine)):
        cls = registry[f"rl_{way}"]()
        assert issubclass(cls, base)
        assert cls.update_weights is receivers.FromStore.update_weights
        assert cls.finish_weight_update is receivers.FromStore.finish_weight_update


def test_a_file_in_memory_is_read_by_other_processes() -> None:
    weights = np.arange(200_000, dtype=np.uint8)
    with file_in_memory() as path:
        np.memmap(path, dtype=np.uint8, mode="w+", shape=weights.shape)[:] = weights
        read = "import numpy, sys; print(numpy.memmap(sys.argv[1], dtype=numpy.uint8, mode='c').sum(dtype=int))"
        found = subprocess.run([sys.executable, "-c", read, path], capture_output=True, text=True, check=True)
    assert int(found.stdout) == weights.sum(dtype=int)


class Recorder:
    """A host of a port that writes down what it is asked."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.fails = ""

    async def hold(self, version: int) -> None:
        self.done.append("hold")

    async def release(self, version: int) -> None:
        self.done.append(f"release {version}")

    async def give_up(self, reason: str) -> None:
        self.done.append("give up")

    async def worker(self, method: str, **kwargs: Any) -> list[Any]:
        self.done.append(method)
        if method == self.fails:
            raise RuntimeError("out of memory")
        return []

    async def sleep(self, level: int) -> None:
        self.done.append(f"sleep {level}")

    async def wake_up(self, tags: list[str]) -> None:
        self.done.append(f"wake {' '.join(tags)}")


UPDATE: list[Call] = [("start", {}), ("update", {}), ("finish", {})]


@pytest.mark.parametrize("level", [1, 2])
def test_weights_wake_before_an_update_and_the_cache_after(level: int) -> None:
    async def scenario() -> None:
        host = Recorder()
        port = Port(host, shared_file=False)
        await port.sleep(level)
        await port.run(*UPDATE, version=7)
        assert host.done == [
            "hold", f"sleep {level}", "wake weights", "start_weight_update", "update_weights", "finish_weight_update",
            "wake kv_cache", "release 7",
        ]  # fmt: skip
        assert port.state is State.READY

    asyncio.run(scenario())


def test_an_update_that_fails_after_sleep_wakes_nothing_until_one_succeeds() -> None:
    async def scenario() -> None:
        host = Recorder()
        port = Port(host, shared_file=False)
        await port.sleep(1)
        host.fails = "update_weights"
        with pytest.raises(EngineError, match=r"update of version 3 failed.*out of memory"):
            await port.run(*UPDATE, version=3)
        assert port.state is State.BROKEN and host.done[-1] == "give up"
        with pytest.raises(TransferError, match="sleep while the weight transfer is broken"):
            await port.sleep(1)
        host.fails, host.done = "", []
        await port.run(*UPDATE, version=4)
        assert host.done[-2:] == ["wake kv_cache", "release 4"] and host.done[0] == "hold"

    asyncio.run(scenario())


def test_a_survivor_that_was_left_half_way_joins_the_next_group() -> None:
    """The trainer makes its calls one by one: another engine's death may leave this one anywhere between two."""

    async def scenario(left_after: int) -> None:
        host = Recorder()
        port = Port(host, shared_file=False)
        await port.run(("init", {}), *UPDATE[:left_after], version=3)
        await port.run(("init", {}), version=4)
        assert (host.done.count("hold"), host.done.count("give up")) == (1, 1)
        await port.run(*UPDATE, version=4)
        assert port.state is State.READY and host.done[-1] == "release 4"

    for left_after in (1, 2):
        asyncio.run(scenario(left_after))


def test_weights_that_come_while_others_arrive_wait_for_them() -> None:
    async def scenario() -> None:
        host = Recorder()
        port, go_on = Port(host, shared_file=False), asyncio.Event()
        worker = host.worker

        async def slow(method: str, **kwargs: Any) -> list[Any]:
            if method == "update_weights":
                await go_on.wait()
            return await worker(method, **kwargs)

        host.worker = slow  # type: ignore[method-assign]
        first = asyncio.create_task(port.run(*UPDATE, version=1))
        while port.state is not State.STARTED:
            await asyncio.sleep(0)
        second = asyncio.create_task(port.load(WEIGHTS, 2))
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(first, second)
        assert [text for text in host.done if " " in text] == ["release 1", "release 2"]

    asyncio.run(scenario())


def test_an_engine_that_does_not_fall_asleep_holds_nobody() -> None:
    async def scenario() -> None:
        host = Recorder()
        port = Port(host, shared_file=False)

        async def sleep(level: int) -> None:
            raise RuntimeError("sleep mode is not enabled")

        host.sleep = sleep  # type: ignore[method-assign]
        with pytest.raises(RuntimeError, match="sleep mode"):
            await port.sleep(1)
        assert host.done == ["hold", "give up"] and port.state is State.BROKEN
        await port.run(*UPDATE, version=2)
        assert port.state is State.READY

    asyncio.run(scenario())
