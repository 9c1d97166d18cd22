"""The starter's model class for vLLM's CPU build, such that TRL can push weights into it.

TRL's colocated mode calls ``load_weights`` on the running model. By then vLLM's CPU build has packed the linear
layers' weights and thrown the parameters away. This class keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from vllm import ModelRegistry
from vllm.config import VllmConfig
from vllm.model_executor.layers.linear import LinearBase
from vllm.model_executor.models.qwen3 import Qwen3ForCausalLM


class LiveQwen3(Qwen3ForCausalLM):  # type: ignore[misc, unused-ignore]  # untyped where vLLM is not installed
    """Qwen3 whose linear layers compute with their parameters instead of packed copies."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        for module in self.modules():
            if isinstance(module, LinearBase):
                # vLLM's own mark for layers that are not to be packed.
                module._cpu_skip_gemm_dispatch = True  # type: ignore[assignment, unused-ignore]

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Load, and let the head forget a packed copy: it would go on with the weights of the beginning."""
        loaded: set[str] = super().load_weights(weights)
        self.lm_head.cpu_linear = torch.nn.functional.linear
        return loaded


def register() -> None:
    """Have vLLM take this class for Qwen3, in this process."""
    ModelRegistry.register_model("Qwen3ForCausalLM", LiveQwen3)
