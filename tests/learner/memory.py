"""Memory that a learner takes beside its own state: for the engines' weights, and for the norm of gradients.

Counted are the bytes of new tensors that are alive at the same time, on the worst learner of a group.
"""

import sys
from typing import Any

import torch
from ray import cloudpickle
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rl_agents.inference import weights
from rl_agents.learner import learner as learner_module
from rl_agents.learner.learner_group import AgentLearnerGroup

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # learner actors cannot import tests

#: Of a bucket; the model has 380 kB, and its largest tensor 51 kB.
BUCKET = 60_000
WHOLE, LARGEST = 380_000, 52_000


class Alive(TorchDispatchMode):
    """Counts bytes of tensors that are made inside; DTensors by their local part."""

    def __init__(self, known: list[torch.Tensor]) -> None:
        super().__init__()
        self.known = {storage_of(tensor)._cdata for tensor in known}
        self.seen: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self.note(storage_of(tensor))
        return result

    def note(self, storage: Any) -> None:
        self.seen = {key: (ref, size) for key, (ref, size) in self.seen.items() if not ref.expired()}
        if storage._cdata not in self.known:
            self.seen[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.peak = max(self.peak, sum(size for _, size in self.seen.values()))


def storage_of(tensor: Any) -> Any:
    return getattr(tensor, "_local_tensor", tensor).untyped_storage()


def own(learner: Any) -> list[torch.Tensor]:
    parameters = [*learner.policy.parameters(), *learner.optimizers.parameters()]
    return parameters + [p.grad for p in parameters if p.grad is not None]


def exporting(learner: Any) -> int:
    weights.BUCKET_BYTES = BUCKET
    with Alive(own(learner)) as alive:
        for _ in learner.export_weights():
            pass
    return alive.peak


def stepping(learner: Any) -> int:
    """Two optimizer steps, of which the first one makes the moments."""
    networks = list(learner.optimizers.optimizers)
    for _ in range(2):
        learner.optimizers.zero_grad()
        learner._dummy_pass(networks)
        with Alive([*own(learner), *moments(learner)]) as alive:
            if not learner.sharded:
                learner_module._sum_gradients(learner.optimizers.parameters())
            learner.optimizers.step(networks)
    return alive.peak


def moments(learner: Any) -> list[torch.Tensor]:
    optimizers = [optimizer for own in learner.optimizers.optimizers.values() for optimizer in own]
    return [tensor for optimizer in optimizers for state in optimizer.state.values() for tensor in state.values()]


def peak(group: AgentLearnerGroup, what: Any) -> int:
    found = [answer.get() for answer in group.foreach_learner(what)]
    print(what.__name__, found)
    return max(found)
