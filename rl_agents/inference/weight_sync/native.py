"""Between GPUs: vLLM's own trainers for NCCL and CUDA IPC, with a client that can lose engines.

In the learner's process, vLLM's trainer drives init, start, update and finish through a client of four methods. Ours
fans them out to all engines, gives each its own ranks (vLLM sends offset 1 to every one), and waits no longer than a
deadline. Tested by contract only: nothing here has run on a GPU.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rl_agents.inference.weight_sync.buckets import rank_offset, world_size
from rl_agents.inference.weight_sync.session import (
    LOOK_S,
    Collective,
    NoLink,
    Outcome,
    Peers,
    Session,
    Step,
    TransferFailed,
)
from rl_agents.inference.weight_sync.states import Call


@dataclass(frozen=True)
class Parameter:
    """What vLLM's trainer has to know of a parameter: its `ParamMeta`."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


class PolicySource:
    """vLLM's `WeightSource` over a function that yields the policy's tensors by Hugging Face name."""

    def __init__(self, weights: Callable[[], Iterator[tuple[str, torch.Tensor]]]) -> None:
        self._weights = weights

    def metadata(self) -> list[Parameter]:
        """Return name, dtype and shape of all that iteration yields, in its order."""
        return [Parameter(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in self._weights()]

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the tensors."""
        for name, tensor in self._weights():
            yield name, tensor.detach()


class FanOut:
    """vLLM's client protocol, for all engines of a transfer at once."""

    def __init__(self, peers: Peers, members: Sequence[int], tensor_parallel: int) -> None:
        self._peers, self._members, self._tensor_parallel = peers, list(members), tensor_parallel
        self.version = 0
        self.deadline = float("inf")
        #: Of the calls made last; those that have not been answered are absent.
        self.outcomes: dict[int, Outcome] = {}

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Have all engines join, each with ranks of its own."""
        calls: dict[int, Sequence[Call]] = {}
        for place, member in enumerate(self._members):
            own = {"rank_offset": rank_offset(place, self._tensor_parallel)} if "rank_offset" in init_info else {}
            calls[member] = [("init", init_info | own)]
        self._all(calls)

    def start_weight_update(self) -> None:
        """Begin an update everywhere."""
        self._all(dict.fromkeys(self._members, (("start", {}),)))

    def update_weights(self, update_info: dict[str, Any] | list[dict[str, Any]]) -> None:
        """Receive, while the trainer sends."""
        if isinstance(update_info, list):
            raise TypeError("updates by rank are not supported: every engine gets the same")
        self._all(dict.fromkeys(self._members, (("update", update_info),)))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """End the update everywhere; the engines stamp the version of this session."""
        self._all(dict.fromkeys(self._members, (("finish", {}),)))

    def _all(self, calls: Mapping[int, Sequence[Call]]) -> None:
        """Make all calls at once.

        Raises:
            TransferFailed: an engine failed, or did not answer in time.
        """
        self.outcomes = {}
        pending = {i: self._peers.send(i, list(mine), self.version, None) for i, mine in calls.items()}
        while pending and (left := self.deadline - time.monotonic()) > 0:
            self.outcomes |= self._peers.wait(pending, min(left, LOOK_S))
            pending = {i: call for i, call in pending.items() if i not in self.outcomes}
            if any(outcome.kind != "ok" for outcome in self.outcomes.values()):
                break  # the others may wait for it in a collective for ever
        if time.monotonic() >= self.deadline:
            self.outcomes |= {engine: Outcome("late", "no answer in time") for engine in pending}
        if pending or any(outcome.kind != "ok" for outcome in self.outcomes.values()):
            raise TransferFailed(dict(self.outcomes))


class NativeSession(Session):
    """A `Session` whose collectives are vLLM's trainer's. It lives where the weights are: in the first learner."""

    def __init__(
        self,
        peers: Peers,
        way: str,
        source: PolicySource,
        tensor_parallel: int = 1,
        trainer: Callable[..., Any] | None = None,
    ) -> None:
        """Drive ``peers``.

        Args:
            peers: the engines.
            way: ``nccl`` or ``ipc``.
            source: of the weights.
            tensor_parallel: workers of every engine.
            trainer: makes a trainer (init info, client=, source=); None: vLLM's.
        """
        super().__init__(peers, NoLink())
        self._way, self._source, self._tensor_parallel = way, source, tensor_parallel
        self._make = trainer or _vllm_trainer
        self._trainer: Any = None
        self._client: FanOut | None = None

    def close(self) -> None:
        """Drop the group, on a thread: a communicator that hangs does not let go of itself either."""
        super().close()
        trainer, self._trainer, self._client = self._trainer, None, None
        if trainer is not None:
            threading.Thread(target=trainer.shutdown, name="weights-close", daemon=True).start()

    def _open(self, members: Sequence[int], version: int, timeout_s: float) -> None:
        if tuple(members) == self.members and self._trainer is not None:
            return
        self.close()
        client = self._client = FanOut(self._peers, members, self._tensor_parallel)

        def init() -> None:
            info = init_info(self._way, world_size(len(members), self._tensor_parallel))
            trainer = self._make(info, client=client, source=self._source)
            if self._client is client:
                self._trainer = trainer
            else:  # given up meanwhile
                trainer.shutdown()

        self._native("init", init, version, timeout_s)
        self._machine.done("init")
        self.members = tuple(members)

    def _send(self, members: Sequence[int], weights: Any, version: int, timeout_s: float) -> None:
        trainer = self._trainer
        self._machine.done("start")
        self._native("update", trainer.send_weights, version, timeout_s)
        self._machine.done("update")
        self._machine.done("finish")

    def _native(self, phase: str, function: Callable[[], None], version: int, timeout_s: float) -> None:
        """Call the trainer on a daemon thread; leave it there when an engine is lost or the deadline has passed.

        Raises:
            TransferFailed: it did not succeed.
        """
        started, client = time.monotonic(), self._client
        assert client is not None
        client.version, client.deadline, client.outcomes = version, started + timeout_s, {}
        self._on_phase(phase)
        collective = Collective(function)
        while not collective.over and time.monotonic() < client.deadline:
            collective.join(LOOK_S)
            if any(outcome.kind != "ok" for outcome in client.outcomes.values()):
                break
        outcomes = dict(client.outcomes)
        if not collective.done:
            known = [i for i, outcome in outcomes.items() if outcome.kind != "ok"]
            if not collective.over and not known:  # the engines are silent, or this end hangs
                late = Outcome("late", f"no answer within {timeout_s:g} s")
                outcomes |= {i: late for i in client._members if i not in outcomes}
            elif collective.error is not None and not known:
                outcomes |= {i: Outcome("failed", repr(collective.error)) for i in client._members}
        self.steps.append(Step(phase, time.monotonic() - started, outcomes))
        if not collective.done:
            raise TransferFailed(outcomes)


def init_info(way: str, ranks: int) -> Any:
    """Return vLLM's init info for a trainer of this machine."""
    if way == "ipc":
        from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo

        return IPCTrainerInitInfo(rank=0, packed=True)
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

    address, port = free_endpoint()
    return NCCLTrainerInitInfo(rank=0, master_address=address, master_port=port, world_size=ranks)


def free_endpoint() -> tuple[str, int]:
    """Return an address of this machine that engines reach, and a port that is free now."""
    import ray

    address = str(ray.util.get_node_ip_address()) if ray.is_initialized() else "127.0.0.1"
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.bind((address, 0))
        return address, int(probe.getsockname()[1])


def _vllm_trainer(info: Any, *, client: FanOut, source: PolicySource) -> Any:
    from vllm.distributed.weight_transfer import WeightTransferTrainerFactory

    return WeightTransferTrainerFactory.trainer_init(info, client=client, source=source)
