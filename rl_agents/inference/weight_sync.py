"""How weights get from the learners into the engines: Ray's object store, or between GPUs vLLM's own trainer.

`push` gives each engine a reference to one copy in the object store. `GpuTransfer` lives in the learner: vLLM's trainer
for NCCL or CUDA IPC drives init, start, update and finish of all engines through a client of these four methods.
No wait for an engine exceeds a deadline. What does not arrive is reported by engine; `InferenceGroup.restore` sends it
again, always through the object store. Of `GpuTransfer` the calls were tested, with stand-ins for engines: it has
never run on GPUs.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
import torch
from ray.exceptions import ObjectLostError, RayActorError

from rl_agents.inference.client import brief
from rl_agents.inference.weight_port import Call

#: Seconds that the others have to answer once an engine of a group is lost; they may hang in a broadcast with it.
GRACE_S = 5.0


@dataclass(frozen=True)
class Outcome:
    """The outcome of one engine's call, and why.

    ``ok``; ``failed``: it lives; ``gone``: it lives, and what it was to load does not; ``dead``; ``late``.
    """

    kind: str
    text: str = ""

    @property
    def lost(self) -> bool:
        return self.kind in ("dead", "late")


def outcome_of(reference: Any) -> Outcome:
    try:
        ray.get(reference)
    except RayActorError as error:
        return Outcome("dead", brief(error))
    except ObjectLostError as error:  # of the call's argument: its cause is that error itself
        return Outcome("gone", brief(getattr(error, "cause", error)))
    except Exception as error:
        return Outcome("failed", brief(error))
    return Outcome("ok")


def await_all(calls: Mapping[int, Any], timeout_s: float, together: bool = False) -> dict[int, Outcome]:
    """Wait for calls of several engines; return what went wrong, by engine.

    Args:
        together: they wait for each other: once one has failed, the others have `GRACE_S`.
    """
    problems = dict[int, Outcome]()
    pending = {reference: engine for engine, reference in calls.items()}
    deadline = time.monotonic() + timeout_s
    while pending and (left := deadline - time.monotonic()) > 0:
        done, _ = ray.wait(list(pending), num_returns=1, timeout=left, fetch_local=False)
        found = {pending.pop(reference): outcome_of(reference) for reference in done}
        problems |= {engine: outcome for engine, outcome in found.items() if outcome.kind != "ok"}
        if together and problems:
            deadline = min(deadline, time.monotonic() + GRACE_S)
    return problems | dict.fromkeys(pending.values(), Outcome("late", f"no answer within {timeout_s:g} s"))


def push(engines: Mapping[int, Any], packed: Any, version: int, timeout_s: float) -> dict[int, Outcome]:
    """Give engines weights through the object store; return the outcomes of those that do not have them.

    Args:
        engines: actors (`EngineActor`) by number.
        packed: a reference to `PackedWeights`.
    """
    return await_all({i: actor.sync_packed.remote(packed, version) for i, actor in engines.items()}, timeout_s)


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
        return [Parameter(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in self._weights()]

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in self._weights():
            yield name, tensor.detach()


class EngineClient:
    """vLLM's client protocol, for all engines of a transfer at once, with a deadline (vLLM's own waits for ever).

    Attributes:
        problems: what went wrong since `begin`, by engine.
    """

    def __init__(self, engines: Sequence[Any], tensor_parallel: int) -> None:
        self.engines, self._tensor_parallel = list(engines), tensor_parallel
        self.problems: dict[int, Outcome] = {}
        self._version, self._deadline = 0, 0.0

    def begin(self, version: int, timeout_s: float) -> None:
        """An update to ``version`` begins, which has ``timeout_s`` for all its calls together."""
        self._version, self._deadline, self.problems = version, time.monotonic() + timeout_s, {}

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Have all engines join, each with the ranks after its predecessor's; the sender has rank 0.

        vLLM's trainer gives every engine the offset 1, so that two of them collide.
        """
        infos = [dict(init_info) for _ in self.engines]
        for place, info in enumerate(infos):
            if "rank_offset" in info:
                info["rank_offset"] = 1 + place * self._tensor_parallel
        self._all([("init", info) for info in infos])

    def start_weight_update(self) -> None:
        self._all([("start", {})] * len(self.engines))

    def update_weights(self, update_info: dict[str, Any] | list[dict[str, Any]]) -> None:
        if isinstance(update_info, list):
            raise TypeError("updates by rank are not supported: every engine gets the same")
        self._all([("update", update_info)] * len(self.engines))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._all([("finish", {})] * len(self.engines))

    def _all(self, calls: Sequence[Call]) -> None:
        made = {i: self.engines[i].transfer.remote(call, self._version) for i, call in enumerate(calls)}
        self.problems |= await_all(made, self._deadline - time.monotonic(), together=True)
        if self.problems:
            raise RuntimeError(f"{calls[0][0]}: {len(self.problems)} engines failed")


class GpuTransfer:
    """Sends weights from the process that holds them, the first learner's, to all engines.

    Args:
        way: ``nccl`` or ``ipc``.
        trainer: makes a trainer (init info, client=, source=); None: vLLM's.
    """

    def __init__(
        self, way: str, source: PolicySource, tensor_parallel: int = 1, trainer: Callable[..., Any] | None = None
    ) -> None:
        self._way, self._source, self._tensor_parallel = way, source, tensor_parallel
        self._make = trainer or _vllm_trainer
        self._client = EngineClient((), tensor_parallel)
        self._trainer: Any = None

    def update(self, engines: Sequence[Any], version: int, timeout_s: float) -> dict[int, Outcome]:
        """Send the weights; return the outcomes of all engines if one of them may lack the weights.

        vLLM's trainer runs on a daemon thread: when it hangs, it is left behind, and the next update makes a new one.
        """
        if self._client.engines != list(engines):
            self.close()
            self._client = EngineClient(engines, self._tensor_parallel)
        client, failure = self._client, list[BaseException]()
        client.begin(version, timeout_s)

        def send() -> None:
            try:
                trainer = self._trainer
                if trainer is None:
                    info = init_info(self._way, 1 + len(client.engines) * self._tensor_parallel)
                    trainer = self._make(info, client=client, source=self._source)
                    if self._client is not client:  # given up in the meantime: a newer update has a trainer of its own
                        trainer.shutdown()
                        return
                    self._trainer = trainer
                trainer.send_weights()
            except BaseException as error:
                failure.append(error)

        thread = threading.Thread(target=send, name="weights", daemon=True)
        thread.start()
        thread.join(timeout_s + GRACE_S)
        if not thread.is_alive() and not failure:
            return {}
        self.close()
        late = Outcome("late", f"no answer within {timeout_s:g} s")
        rest = Outcome("failed", brief(Exception(str(failure[0])))) if failure else late
        return {i: client.problems.get(i, rest) for i in range(len(client.engines))}

    def close(self) -> None:
        """Drop the group, on a thread: a communicator that hangs also hangs when it is closed."""
        trainer, self._trainer = self._trainer, None
        self._client = EngineClient((), self._tensor_parallel)
        if trainer is not None:
            threading.Thread(target=trainer.shutdown, name="weights-close", daemon=True).start()


def init_info(way: str, ranks: int) -> Any:
    if way == "ipc":
        from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo

        return IPCTrainerInitInfo(rank=0, packed=True)
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

    address = str(ray.util.get_node_ip_address())
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.bind((address, 0))
        port = int(probe.getsockname()[1])
    return NCCLTrainerInitInfo(rank=0, master_address=address, master_port=port, world_size=ranks)


def _vllm_trainer(info: Any, *, client: EngineClient, source: PolicySource) -> Any:
    from vllm.distributed.weight_transfer import WeightTransferTrainerFactory

    return WeightTransferTrainerFactory.trainer_init(info, client=client, source=source)
