"""FSDP2: every learner has a part of each network, of its gradients and of its optimizer's state.

Parameters become DTensors. Operations that gather them (`full_tensor`, a forward pass) are collectives: all learners
must take part in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

from rl_agents.learner.rl_modules import Network


def learner_mesh(device: torch.device) -> DeviceMesh:
    return init_device_mesh(device.type, (dist.get_world_size(),))


def shard_network(network: Network, mesh: DeviceMesh) -> None:
    """Shard a network over the mesh: each decoder layer is gathered separately, the rest together.

    Weights are gathered in the network's ``dtype``. Gradients are summed over learners in float32, not averaged,
    because token losses are weighted globally. Parameters may be on the CPU; they move to the mesh's device part by
    part.

    Args:
        network: its ``forward_train`` gathers its weights.
    """
    policy = MixedPrecisionPolicy(param_dtype=network.dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
    network.autocast = False
    # The repeated blocks are the longest ModuleList in every decoder of Hugging Face.
    lists = [list(module) for module in network.modules() if isinstance(module, nn.ModuleList)]
    for layer in max(lists, key=len, default=[]):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(network, mesh=mesh, mp_policy=policy)
    register_fsdp_forward_method(network, "forward_train")
    for module in network.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


def release(network: nn.Module) -> None:
    """Free the weights that a forward pass without a backward pass leaves gathered: embeddings and head."""
    if isinstance(network, FSDPModule):
        network.reshard()


def full_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return the full tensor of a sharded one (a collective), and other tensors unchanged."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard_like(tensor: torch.Tensor, model: torch.Tensor) -> torch.Tensor:
    """Return ``tensor`` on the device of ``model`` and, if that is sharded, sharded the same way (a collective)."""
    if isinstance(model, DTensor):
        return distribute_tensor(tensor.to(model.device), model.device_mesh, model.placements)
    return tensor.to(model.device)


def gathered(tensors: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield full tensors one by one (a collective if sharded); nothing on all learners except the first."""
    keep = is_rank_zero()
    for name, tensor in tensors:
        full = full_tensor(tensor.detach())
        if keep:
            yield name, full
        del full  # before the next one is gathered


def full_state_dict(network: nn.Module) -> dict[str, torch.Tensor]:
    """Return the full state dict on the CPU (see `gathered`)."""
    return {name: full.cpu() for name, full in gathered(network.state_dict().items())}


def load_full_state_dict(network: nn.Module, state: Mapping[str, Any]) -> None:
    """Load the result of `full_state_dict`, which every learner needs in full."""
    current = network.state_dict()
    network.load_state_dict({name: shard_like(tensor, current[name]) for name, tensor in state.items()})


def is_rank_zero() -> bool:
    return not dist.is_initialized() or dist.get_rank() == 0


def max_over_learners(count: int, device: torch.device) -> int:
    """Return the largest ``count`` of all learners (a collective)."""
    tensor = torch.tensor([count], device=device)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return int(tensor)
