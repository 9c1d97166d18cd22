"""Weights as one flat buffer: it travels through Ray's object store or a shared file without being copied."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
import torch

from rl_agents.inference.base import Weights

#: Every tensor starts on this boundary (bytes), so that any dtype can be viewed in place.
ALIGN = 64


@dataclass(frozen=True, slots=True)
class Entry:
    """Where one tensor lies: name, torch dtype name, shape, and offset in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * getattr(torch, self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class PackedWeights:
    """All weights in one ``uint8`` buffer and the index that cuts it up again."""

    buffer: np.ndarray
    index: tuple[Entry, ...]

    @property
    def nbytes(self) -> int:
        return int(self.buffer.nbytes)


def untied(weights: Weights, tied: bool = False) -> dict[str, torch.Tensor]:
    """Return ``weights`` without a head that repeats the embedding.

    A head is dropped when it shares its storage with another tensor of the mapping, or, with ``tied``
    (the model's ``tie_word_embeddings``), whenever it is called ``lm_head.weight``: copies made on the way
    here have lost the shared storage.
    """
    kept: dict[str, torch.Tensor] = {}
    storages: set[tuple[int, torch.Size]] = set()
    for name in sorted(weights, key=_is_head):  # stable: the head last, so that the embedding's name wins
        tensor = weights[name].detach()
        key = (tensor.data_ptr(), tensor.shape)
        if _is_head(name) and (tied or (tensor.numel() > 0 and key in storages)):
            continue
        storages.add(key)
        kept[name] = tensor
    return kept


def layout(weights: Mapping[str, torch.Tensor]) -> tuple[tuple[Entry, ...], int]:
    """Return the index for ``weights`` and the size of the buffer in bytes."""
    entries, offset = [], 0
    for name, tensor in weights.items():
        entry = Entry(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), offset)
        entries.append(entry)
        offset += -(-entry.nbytes // ALIGN) * ALIGN
    return tuple(entries), offset


def pack(weights: Weights, tied: bool = False) -> PackedWeights:
    """Copy ``weights`` (any dtype, any device) into one new buffer; see `untied` for ``tied``."""
    tensors = untied(weights, tied)
    index, nbytes = layout(tensors)
    buffer = np.empty(nbytes, dtype=np.uint8)
    write(tensors, index, buffer)
    return PackedWeights(buffer, index)


def write(weights: Mapping[str, torch.Tensor], index: tuple[Entry, ...], buffer: np.ndarray) -> None:
    """Copy ``weights`` into ``buffer`` where ``index`` says."""
    for name, view in views(buffer, index).items():
        view.copy_(weights[name])


def unpack(packed: PackedWeights) -> dict[str, torch.Tensor]:
    """Return the tensors as views of the buffer. Nothing is copied: treat them as read-only."""
    return views(packed.buffer, packed.index)


def views(buffer: np.ndarray, index: tuple[Entry, ...]) -> dict[str, torch.Tensor]:
    """Return one tensor view of ``buffer`` for each entry of ``index``."""
    with warnings.catch_warnings():
        # An array from Ray's object store is read-only; torch has no such notion and warns.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        flat = torch.from_numpy(buffer)
    return {
        entry.name: flat[entry.offset : entry.offset + entry.nbytes].view(getattr(torch, entry.dtype)).view(entry.shape)
        for entry in index
    }


def _is_head(name: str) -> bool:
    return name.endswith("lm_head.weight")
