"""The worker's end of a weight transfer: engine classes that vLLM builds from its registry.

vLLM's workers import this module by the name of `TransferWorker`, which makes them known in whatever process it is.

All take weights from the object store or a shared file, too, whatever else they were made for: that is how one engine
that came back gets the last weights without a group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from vllm.distributed.weight_transfer import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.ipc_engine import IPCWeightTransferEngine
from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferEngine
from vllm.model_executor.model_loader.mtp_validation import disable_mtp_completeness_check
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info
from vllm.platforms import current_platform

from rl_agents.inference.model_shape import padding_begins
from rl_agents.inference.vllm_common import RECEIVER
from rl_agents.inference.weight_port import ABANDON, TransferError
from rl_agents.inference.weights import Entry, views

if TYPE_CHECKING:
    from collections.abc import Iterable

    Mixed: TypeAlias = WeightTransferEngine[Any, Any]
else:
    Mixed = object

#: Payloads of ``update_weights`` that every receiver knows, besides its backend's own and `ABANDON`.
TENSORS, FILE = "rl_tensors", "rl_file"


class FromStore(Mixed):
    """Loads what comes from the object store, and mends what vLLM's layerwise reload leaves behind.

    Attributes:
        unpacked: see `unpack_experts`.
    """

    unpacked: Sequence[tuple[Any, Any]] = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        """Take vLLM's arguments; ids that the tokenizer does not have are never sampled (`padding_begins`)."""
        super().__init__(*args, **options)
        if (size := padding_begins(self.model_config.model)) is not None:
            self.model.compute_logits = _without_padding(self.model.compute_logits, size)

    def start_weight_update(self) -> None:
        """Begin a reload. What an update that failed half-way had collected is thrown away.

        vLLM counts the elements that a layer has got, and those of an abandoned update would count for the next one:
        seen with vLLM 0.32, every later update fails ("no attribute 'weight_loader'").
        """
        for layer in self.model.modules():
            info = get_layerwise_info(layer)
            if info.can_load():
                info.loaded_weights.clear()
                info.load_numel = 0
        self.unpacked = (*self.unpacked, *unpack_experts(self.model))  # an abandoned update's are still to be restored
        initialize_layerwise_reload(self.model)

    def finish_weight_update(self) -> None:
        """End the reload, and rebuild a tied head.

        Raises:
            TransferError: the model's loader passed layers by, which sample with the weights that they had.
        """
        passed_by = untouched(self.model)
        super().finish_weight_update()
        repack_tied_head(self.model)
        round_biases(self.model, self.model_config.dtype)
        for method, kernel in self.unpacked:
            method.moe_kernel = method.moe_kernel or kernel
        self.unpacked = ()
        if passed_by:
            raise TransferError(
                f"vLLM's {type(self.model).__name__} takes no new weights of {len(passed_by)} layers, such as "
                f"{passed_by[0]}: it would sample with old ones"
            )

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Load tensors, those in a shared file, or what the backend itself brings.

        Raises:
            TransferError: the update is abandoned; vLLM then lets a new one start.
        """
        if ABANDON in update_info:
            raise TransferError("the update is abandoned")
        if TENSORS in update_info:
            self.load(update_info[TENSORS].items())
        elif FILE in update_info:
            index = tuple(Entry(name, dtype, tuple(shape), at) for name, dtype, shape, at in update_info["index"])
            # Copy-on-write: the file stays as it is, and torch does not warn of a read-only array.
            self.load(views(np.memmap(update_info[FILE], dtype=np.uint8, mode="c"), index).items())
        else:
            super().update_weights(update_info)

    def load(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        with disable_mtp_completeness_check():
            self.model.load_weights(tensors)


@dataclass
class Nothing(WeightTransferInitInfo, WeightTransferUpdateInfo):
    """Nothing has to be joined, and `FromStore.update_weights` takes all that comes."""


class LayerwiseReload(WeightTransferEngine[Any, Any]):
    """vLLM's layerwise reload without a backend: no group, no init."""

    init_info_cls = update_info_cls = Nothing

    def init_transfer_engine(self, init_info: Nothing) -> None:
        """Nothing to do."""

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Refuse what the object store does not bring.

        Raises:
            TransferError: always.
        """
        raise TransferError("an update of the object store brings tensors or a file")

    receive_weights = update_weights

    def finish_weight_update(self) -> None:
        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        """Nothing to do."""


class StoreReceiver(FromStore, LayerwiseReload):
    """The object store only."""


class NcclReceiver(FromStore, NCCLWeightTransferEngine):
    """vLLM's own receiver of NCCL broadcasts; joining again leaves the older group first."""

    def init_transfer_engine(self, init_info: Any) -> None:
        self.shutdown()
        super().init_transfer_engine(init_info)


class IpcReceiver(FromStore, IPCWeightTransferEngine):
    """vLLM's own receiver of CUDA IPC handles: learner and engine on one GPU."""


def _without_padding(compute: Callable[..., Any], size: int) -> Callable[..., Any]:
    def compute_logits(*args: Any, **options: Any) -> Any:
        logits = compute(*args, **options)
        if logits is not None:  # only one worker of a group has them
            logits[..., size:] = float("-inf")
        return logits

    return compute_logits


def untouched(model: torch.nn.Module) -> list[str]:
    """Return the experts' layers that a reload has brought nothing, though they have weights.

    Some loaders (gpt-oss, vLLM 0.32) copy into parameters themselves, which is lost while those have no memory.
    """
    found = []
    for name, layer in model.named_modules():
        info = get_layerwise_info(layer)
        if hasattr(getattr(layer, "quant_method", None), "moe_kernel") and info.can_load() and info.load_numel <= 0:
            found.append(name)
    return found


def unpack_experts(model: torch.nn.Module) -> list[tuple[Any, Any]]:
    """Have vLLM pack experts' matrices when they are loaded again; return what it computed with so far.

    vLLM 0.32 on CPU packs them when it loads them first, and computes with later ones as if they were packed, without
    any error.
    """
    if not current_platform.is_cpu():
        return []
    kernels = []
    for layer in model.modules():
        method: Any = getattr(layer, "quant_method", None)
        if (kernel := getattr(method, "moe_kernel", None)) is not None:
            kernels.append((method, kernel))
            method.moe_kernel = None
    return kernels


def repack_tied_head(model: torch.nn.Module) -> None:
    """Rebuild the packed head of a model that ties it to the embedding.

    vLLM 0.32 on CPU: a tied head keeps its packed matrix over a reload, and samples from the old embedding
    without any error.
    """
    head = getattr(model, "lm_head", None)
    if head is not None and hasattr(head, "cpu_linear"):
        head.quant_method.process_weights_after_loading(head)


def round_biases(model: torch.nn.Module, dtype: torch.dtype) -> None:
    """Give biases the values that they would have if the engine had started with these weights.

    vLLM 0.32 on a CPU with AMX keeps the biases of small bfloat16 layers in float32: values of bfloat16 after a start,
    and whatever was sent after a reload.
    """
    for layer in model.modules():
        bias = getattr(layer, "bias", None)
        if hasattr(layer, "cpu_linear") and bias is not None and bias.dtype != dtype:
            bias.data = bias.to(dtype).to(bias.dtype)


#: How weights travel -> class; vLLM's own names for its backends stay vLLM's.
for _way, _receiver in (("object_store", StoreReceiver), ("nccl", NcclReceiver), ("ipc", IpcReceiver)):
    if RECEIVER[_way] not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(RECEIVER[_way], _receiver)


class TransferWorker:
    """Added to vLLM's worker class (``worker_extension_cls``): importing it imports the receivers."""
