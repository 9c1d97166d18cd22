"""The workers' end of a weight update: the class that vLLM builds from its registry of weight transfers.

vLLM's workers import this module by the name of `TransferWorker`, which registers `StoreReceiver` in their process. It
takes weights from Ray's object store as tensors, or as a file that all workers of an engine read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from vllm.distributed.weight_transfer import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.mtp_validation import disable_mtp_completeness_check
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info
from vllm.platforms import current_platform

from rl_agents.inference.base import EngineError
from rl_agents.inference.model_shape import padding_begins
from rl_agents.inference.vllm_common import ABANDON, FILE, RECEIVER, TENSORS
from rl_agents.inference.weights import TensorEntry, views


@dataclass
class Nothing(WeightTransferInitInfo, WeightTransferUpdateInfo):
    """vLLM's types of calls that this receiver does not use: there is no group to join."""


class StoreReceiver(WeightTransferEngine[Any, Any]):
    """Loads weights by vLLM's layerwise reload, and corrects what the reload does wrong.

    Attributes:
        unpacked: see `unpack_experts`.
    """

    init_info_cls = update_info_cls = Nothing
    unpacked: Sequence[tuple[Any, Any]] = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        """Take vLLM's arguments; ids that the tokenizer does not have are never sampled (`padding_begins`)."""
        super().__init__(*args, **options)
        if (size := padding_begins(self.model_config.model)) is not None:
            self.model.compute_logits = _without_padding(self.model.compute_logits, size)

    def init_transfer_engine(self, init_info: Nothing) -> None:
        """Nothing to do."""

    def start_weight_update(self) -> None:
        """Begin a reload, and discard what an update that failed midway had collected.

        vLLM counts the elements that a layer has received, and would count those of an abandoned update for the next
        one: with vLLM 0.32 every later update fails ("no attribute 'weight_loader'").
        """
        for layer in self.model.modules():
            info = get_layerwise_info(layer)
            if info.can_load():
                info.loaded_weights.clear()
                info.load_numel = 0
        self.unpacked = (*self.unpacked, *unpack_experts(self.model))  # an abandoned update's are not restored yet
        initialize_layerwise_reload(self.model)

    def finish_weight_update(self) -> None:
        """End the reload, and rebuild a tied head.

        Raises:
            EngineError: the model's loader skipped layers, which would sample with their old weights.
        """
        skipped = untouched(self.model)
        finalize_layerwise_reload(self.model, self.model_config)
        repack_tied_head(self.model)
        round_biases(self.model, self.model_config.dtype)
        for method, kernel in self.unpacked:
            method.moe_kernel = method.moe_kernel or kernel
        self.unpacked = ()
        if skipped:
            raise EngineError(
                f"vLLM's {type(self.model).__name__} takes no new weights of {len(skipped)} layers, such as "
                f"{skipped[0]}: it would sample with old ones"
            )

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Load tensors, or those in a shared file.

        Raises:
            EngineError: the update is abandoned; vLLM then lets a new one start.
        """
        if ABANDON in update_info:
            raise EngineError("the update is abandoned")
        if FILE in update_info:
            index = tuple(TensorEntry(name, dtype, tuple(shape), at) for name, dtype, shape, at in update_info["index"])
            # Copy-on-write: the file stays as it is, and torch does not warn of a read-only array.
            tensors = views(np.memmap(update_info[FILE], dtype=np.uint8, mode="c"), index)
        else:
            tensors = update_info[TENSORS]
        with disable_mtp_completeness_check():
            self.model.load_weights(tensors.items())

    receive_weights = update_weights

    def shutdown(self) -> None:
        """Nothing to do."""


def _without_padding(compute: Callable[..., Any], size: int) -> Callable[..., Any]:
    def compute_logits(*args: Any, **options: Any) -> Any:
        logits = compute(*args, **options)
        if logits is not None:  # only one worker of a group has them
            logits[..., size:] = float("-inf")
        return logits

    return compute_logits


def untouched(model: torch.nn.Module) -> list[str]:
    """Return the names of experts' layers that have weights and received none.

    Some loaders (gpt-oss, vLLM 0.32) copy into parameters themselves, which is lost while those have no memory.
    """
    found = []
    for name, layer in model.named_modules():
        info = get_layerwise_info(layer)
        if hasattr(getattr(layer, "quant_method", None), "moe_kernel") and info.can_load() and info.load_numel <= 0:
            found.append(name)
    return found


def unpack_experts(model: torch.nn.Module) -> list[tuple[Any, Any]]:
    """Make vLLM pack experts' matrices again when they are reloaded; return the kernels that it used so far.

    vLLM 0.32 on CPU packs the first matrices, and computes with later ones as if they were packed, without an error.
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

    vLLM 0.32 on a CPU with AMX keeps the biases of small bfloat16 layers in float32. They hold bfloat16 values after a
    start, and unrounded ones after a reload.
    """
    for layer in model.modules():
        bias = getattr(layer, "bias", None)
        if hasattr(layer, "cpu_linear") and bias is not None and bias.dtype != dtype:
            bias.data = bias.to(dtype).to(bias.dtype)


# vLLM 0.32 uses AMX tiles in bfloat16 attention without asking Linux for them: SIGILL if nothing else has asked.
if torch.cpu._is_amx_tile_supported():
    torch.cpu._init_amx()

if RECEIVER not in WeightTransferEngineFactory._registry:
    WeightTransferEngineFactory.register_engine(RECEIVER, StoreReceiver)


class TransferWorker:
    """Added to vLLM's worker class (``worker_extension_cls``): importing it imports the receivers."""
