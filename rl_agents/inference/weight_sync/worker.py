"""What vLLM's workers import by name: it makes our receivers known to vLLM in whatever process the worker runs."""

from __future__ import annotations

from typing import Any

from vllm.distributed.weight_transfer import WeightTransferEngineFactory

from rl_agents.inference.vllm_common import RECEIVER

RECEIVERS = "rl_agents.inference.weight_sync.receivers"
#: How weights travel -> class; vLLM's own names for its backends stay vLLM's.
CLASSES = {
    "object_store": "StoreReceiver",
    "gloo": "GlooReceiver",
    "nccl": "NcclReceiver",
    "ipc": "IpcReceiver",
}


def register() -> None:
    """Make our receivers known to vLLM; twice does no harm."""
    for way, cls in CLASSES.items():
        if (name := RECEIVER[way]) not in WeightTransferEngineFactory._registry:
            WeightTransferEngineFactory.register_engine(name, RECEIVERS, cls)


register()


class TransferWorker:
    """Added to vLLM's worker class (``worker_extension_cls``), which imports this module first."""

    weight_transfer_engine: Any
    model_runner: Any

    def rl_weight_names(self) -> list[tuple[str, list[int], str]]:
        """Return name, shape and dtype of the parameters that still hold their values.

        vLLM on CPU packs matrices and frees the originals, so that their checksums say nothing.
        """
        model = self.model_runner.get_model()
        return [(name, list(p.shape), str(p.dtype)) for name, p in model.named_parameters() if p.numel()]
