"""What cannot run without GPUs, by contract: calls, ranks and deadlines of NCCL and IPC, sleep and wake.

vLLM's own trainer classes drive the client; engines and communicators are stand-ins that write down what is asked of
them. Nothing here shows that NCCL or CUDA IPC work.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch

from rl_agents.inference.base import EngineError
from rl_agents.inference.weight_sync.native import FanOut, NativeSession, PolicySource
from rl_agents.inference.weight_sync.port import Port
from rl_agents.inference.weight_sync.session import Outcome
from rl_agents.inference.weight_sync.states import Call, State, TransferError

WEIGHTS = {"a": torch.ones(2, 3), "b": torch.zeros(4, dtype=torch.bfloat16)}


class Engines:
    """Peers that write down what they are asked; ``answer`` says what comes of it, None is silence."""

    def __init__(self, answer: Callable[[int, str], Outcome | None] = lambda engine, call: Outcome("ok")) -> None:
        self.asked: list[tuple[int, str, Any]] = []
        self.answer = answer

    def send(self, engine: int, calls: Sequence[Call], version: int, packed: Any) -> Any:
        ((name, payload),) = calls
        self.asked.append((engine, name, payload))
        return name

    def wait(self, pending: Mapping[int, Any], timeout_s: float) -> dict[int, Outcome]:
        answers = {engine: self.answer(engine, name) for engine, name in pending.items()}
        if not any(answers.values()):
            time.sleep(timeout_s)
        return {engine: outcome for engine, outcome in answers.items() if outcome is not None}

    def calls(self, engine: int) -> list[str]:
        return [name for asked, name, _ in self.asked if asked == engine]


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


def nccl_session(
    engines: Engines, monkeypatch: pytest.MonkeyPatch, communicator: Communicator, tensor_parallel: int = 1
) -> NativeSession:
    """A session on vLLM's own NCCL trainer, tensors one by one, with a stand-in for the communicator."""
    nccl = pytest.importorskip("vllm.distributed.weight_transfer.nccl_engine")
    monkeypatch.setattr(nccl, "open_trainer_endpoint", lambda info: communicator)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)

    def trainer(info: Any, **keywords: Any) -> Any:
        info.packed = False
        return nccl.NCCLTrainerWeightTransferEngine.trainer_init(info, **keywords)

    source = PolicySource(lambda: iter(WEIGHTS.items()))
    return NativeSession(engines, "nccl", source, tensor_parallel, trainer=trainer)


def test_nccl_calls_come_in_order_and_every_engine_has_its_own_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    engines, communicator = Engines(), Communicator()
    session = nccl_session(engines, monkeypatch, communicator, tensor_parallel=2)
    assert session.update([0, 1, 2], None, 1, 30) == {}
    assert session.update([0, 1, 2], None, 2, 30) == {}
    for engine in (0, 1, 2):
        assert engines.calls(engine) == ["init", "start", "update", "finish", "start", "update", "finish"]
    inits = [payload for _, name, payload in engines.asked if name == "init"]
    assert [payload["rank_offset"] for payload in inits] == [1, 3, 5]
    assert {payload["world_size"] for payload in inits} == {7}
    update = next(payload for _, name, payload in engines.asked if name == "update")
    assert update == {"names": ["a", "b"], "dtype_names": ["float32", "bfloat16"], "shapes": [[2, 3], [4]]}
    assert [t.shape for t in communicator.sent] == [t.shape for t in WEIGHTS.values()] * 2


@pytest.mark.parametrize("call", ["init", "start", "update", "finish"])
@pytest.mark.parametrize("kind", ["dead", "late"])
def test_an_engine_lost_in_any_call_is_left_out(monkeypatch: pytest.MonkeyPatch, call: str, kind: str) -> None:
    def answer(engine: int, asked: str) -> Outcome | None:
        if engine == 1 and asked == call:
            return Outcome("dead", "gone") if kind == "dead" else None
        return Outcome("ok")

    engines, communicator = Engines(answer), Communicator()
    session = nccl_session(engines, monkeypatch, communicator)
    problems = session.update([0, 1], None, 1, 1.0)
    assert {engine: outcome.kind for engine, outcome in problems.items()} == {1: kind}
    assert session.members == (0,)
    assert engines.calls(0)[-3:] == ["start", "update", "finish"]
    again = [payload for engine, name, payload in engines.asked if name == "init"][-1]
    assert (again["rank_offset"], again["world_size"]) == (1, 2)


def test_a_broadcast_that_hangs_is_left_behind_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(engine: int, asked: str) -> Outcome | None:
        return None if asked == "update" else Outcome("ok")

    session = nccl_session(Engines(answer), monkeypatch, Communicator(hangs=True))
    problems = session.update([0], None, 1, 0.5)
    assert problems[0].kind == "late"


def test_the_client_is_vllms_protocol() -> None:
    base = pytest.importorskip("vllm.distributed.weight_transfer")
    assert isinstance(FanOut(Engines(), [0], 1), base.VLLMWeightSyncClient)


def test_our_receivers_are_vllms_and_take_the_object_store_too() -> None:
    pytest.importorskip("vllm")
    from rl_agents.inference.weight_sync import receivers, worker

    registry = worker.WeightTransferEngineFactory._registry
    for way, base in (("nccl", receivers.NCCLWeightTransferEngine), ("ipc", receivers.IPCWeightTransferEngine)):
        cls = registry[f"rl_{way}"]()
        assert issubclass(cls, base)
        assert cls.update_weights is receivers.FromStore.update_weights
        assert cls.finish_weight_update is receivers.FromStore.finish_weight_update


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
        await port.run(UPDATE, 7)
        assert host.done == [
            "hold", f"sleep {level}", "wake weights", "start_weight_update", "update_weights", "finish_weight_update",
            "wake kv_cache", "release 7",
        ]  # fmt: skip
        assert port.state is State.READY

    asyncio.run(scenario())


def test_what_level_2_discarded_does_not_wake_without_an_update() -> None:
    async def scenario() -> None:
        one, other = Recorder(), Recorder()
        light, deep = Port(one, shared_file=False), Port(other, shared_file=False)
        await light.sleep(1)
        await light.wake()
        assert one.done == ["hold", "sleep 1", "wake weights", "wake kv_cache", "release 0"]
        await deep.sleep(2)
        with pytest.raises(TransferError, match="wake while the weight transfer is empty"):
            await deep.wake()
        with pytest.raises(TransferError, match="sleep while the weight transfer is empty"):
            await deep.sleep(1)

    asyncio.run(scenario())


def test_an_update_that_fails_after_sleep_wakes_nothing_until_one_succeeds() -> None:
    async def scenario() -> None:
        host = Recorder()
        port = Port(host, shared_file=False)
        await port.sleep(1)
        host.fails = "update_weights"
        with pytest.raises(EngineError, match=r"update of version 3 failed.*out of memory"):
            await port.run(UPDATE, 3)
        assert port.state is State.BROKEN and host.done[-1] == "give up"
        with pytest.raises(TransferError, match="sleep while the weight transfer is broken"):
            await port.sleep(1)
        host.fails, host.done = "", []
        await port.run(UPDATE, 4)
        assert host.done[-2:] == ["wake kv_cache", "release 4"] and host.done[0] == "hold"

    asyncio.run(scenario())


def test_a_survivor_that_was_left_half_way_joins_the_next_group() -> None:
    """The trainer makes its calls one by one: another engine's death may leave this one anywhere between two."""

    async def scenario(left_after: int) -> None:
        host = Recorder()
        port = Port(host, shared_file=False)
        await port.run([("init", {}), *UPDATE[:left_after]], 3)
        await port.run([("init", {})], 4)
        assert (host.done.count("hold"), host.done.count("give up")) == (1, 1)
        await port.run(UPDATE, 4)
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
        first = asyncio.create_task(port.run(UPDATE, 1))
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
        await port.run(UPDATE, 2)
        assert port.state is State.READY

    asyncio.run(scenario())
