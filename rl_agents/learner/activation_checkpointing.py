"""Which activations a learner keeps for the backward pass and which it calculates again, layer by layer.

`full` keeps the input of each layer. `selective` keeps the outputs of matrix products and of attention, too, whose work
is nearly all of a layer's, and calculates again only what lies between them: norms, rotations, the activation function,
products of gates, casts. Products that make their input narrower are not kept: keys and values of grouped attention
cost little, and the last product of a layer is never needed again. Korthikanti et al., 2205.05198, by PyTorch's
`create_selective_checkpoint_contexts` in transformers' own switch.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor


def enable_recompute(model: Any, granularity: str) -> None:
    """Have a model's layers forget activations.

    Args:
        model: of transformers.
        granularity: `full` or `selective`.
    """
    options: dict[str, Any] = {"use_reentrant": False}
    if granularity == "selective":
        from torch.utils.checkpoint import create_selective_checkpoint_contexts

        options["context_fn"] = partial(create_selective_checkpoint_contexts, _policy)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)


def _policy(context: Any, operator: Any, *arguments: Any, **keywords: Any) -> Any:
    from torch.utils.checkpoint import CheckpointPolicy

    name = operator.name().partition(".")[0]
    if name in ("aten::mm", "aten::addmm"):
        left, right = (argument for argument in arguments[-2:] if isinstance(argument, Tensor))
        keep = left.shape[1] <= right.shape[1]
    else:
        keep = "attention" in name or name == "torch_attn::_varlen_attn"
    return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE
