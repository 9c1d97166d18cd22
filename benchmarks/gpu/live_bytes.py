"""Bytes of tensors that are alive, counted operation by operation: what is kept, on a computer without a GPU."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """While this is open, counts storages that operations make, forward and backward, until they are freed.

    Attributes:
        live: bytes now.
        peak: at most.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._known: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation and count what is new in its result."""
        given = {
            tensor.untyped_storage().data_ptr() for tensor in tree_leaves((args, kwargs)) if torch.is_tensor(tensor)
        }
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if torch.is_tensor(tensor):
                self._count(tensor.untyped_storage(), given)
        return result

    def _count(self, storage: torch.UntypedStorage, given: set[int]) -> None:
        if storage in self._known or storage.data_ptr() in given:
            return
        self._known.add(storage)
        size = storage.nbytes()
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._freed, size)

    def _freed(self, size: int) -> None:
        self.live -= size
