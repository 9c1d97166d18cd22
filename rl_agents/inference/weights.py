"""Weights as flat buffers (buckets), which travel through shared memory or a file without copies; and their names.

A model in memory may use other names than its checkpoint's files. transformers 5 holds the experts of a layer in one
tensor, while files have one tensor for each expert and matrix. The learner exports the files' names, which vLLM reads.
The torch engine, whose model is transformers', joins the tensors again.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch

from rl_agents.errors import InputError
from rl_agents.inference.base import Weights

#: Maximum bytes of a bucket; a larger tensor has its own.
BUCKET_BYTES = 1 << 29
#: Every tensor starts on this boundary (bytes), so that any dtype can be viewed in place.
ALIGN = 64


@dataclass(frozen=True, slots=True)
class TensorEntry:
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * getattr(torch, self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class PackedWeights:
    """A bucket: tensors in one ``uint8`` buffer, and their index."""

    buffer: np.ndarray
    index: tuple[TensorEntry, ...]


def untied(weights: Weights, tied: bool = False) -> dict[str, torch.Tensor]:
    """Return ``weights`` without a head that repeats the embedding.

    A head is dropped if it shares its storage with another tensor of the mapping. With ``tied`` (the model's
    ``tie_word_embeddings``) any ``lm_head.weight`` is dropped, because copies no longer share storage.
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


def layout(weights: Mapping[str, torch.Tensor]) -> tuple[tuple[TensorEntry, ...], int]:
    """Return the index for ``weights`` and the size of the buffer in bytes."""
    entries, offset = [], 0
    for name, tensor in weights.items():
        entry = TensorEntry(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), offset)
        entries.append(entry)
        offset += -(-entry.nbytes // ALIGN) * ALIGN
    return tuple(entries), offset


def pack(weights: Weights) -> list[PackedWeights]:
    """Copy ``weights`` (any dtype, any device) into new buckets."""
    return list(buckets(untied(weights).items()))


def buckets(tensors: Iterable[tuple[str, torch.Tensor]]) -> Iterator[PackedWeights]:
    """Copy tensors into buckets, one at a time, so that each can be freed before the next one is made."""
    parts, size = dict[str, torch.Tensor](), 0
    for name, tensor in tensors:
        if parts and size + tensor.nbytes > BUCKET_BYTES:
            yield _packed(parts)
            parts, size = {}, 0
        parts[name] = tensor.cpu()
        size += tensor.nbytes
        del tensor
    if parts:
        yield _packed(parts)


def _packed(tensors: Mapping[str, torch.Tensor]) -> PackedWeights:
    index, nbytes = layout(tensors)
    buffer = np.empty(nbytes, dtype=np.uint8)
    write(tensors, index, buffer)
    return PackedWeights(buffer, index)


def write(weights: Mapping[str, torch.Tensor], index: tuple[TensorEntry, ...], buffer: np.ndarray) -> None:
    for name, view in views(buffer, index).items():
        view.copy_(weights[name])


def unpack(packed: Iterable[PackedWeights]) -> dict[str, torch.Tensor]:
    """Return the tensors as views of the buckets; treat them as read-only."""
    return {name: view for bucket in packed for name, view in views(bucket.buffer, bucket.index).items()}


def views(buffer: np.ndarray, index: tuple[TensorEntry, ...]) -> dict[str, torch.Tensor]:
    with warnings.catch_warnings():
        # An array from Ray's object store is read-only, which torch does not support and warns about.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        flat = torch.from_numpy(buffer)
    return {
        entry.name: flat[entry.offset : entry.offset + entry.nbytes].view(getattr(torch, entry.dtype)).view(entry.shape)
        for entry in index
    }


def _is_head(name: str) -> bool:
    return name.endswith("lm_head.weight")


def as_in_files(model: Any, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Convert tensors of a transformers model from its names to those of its checkpoint's files."""
    from transformers.core_model_loading import revert_weight_conversion

    converted: dict[str, torch.Tensor] = revert_weight_conversion(model, dict(tensors))
    return converted


class FileNames:
    """The names and parts of one model's tensors in its files.

    Attributes:
        changed: names in memory of tensors whose form in files differs; empty for most models.
    """

    def __init__(self, model: Any) -> None:
        """Compare names; no weights are read.

        Raises:
            InputError: files hold several of its tensors as one, so that they cannot be converted one by one.
        """
        self._model = model
        empty = {name: torch.empty_like(tensor, device="meta") for name, tensor in model.state_dict().items()}
        whole = as_in_files(model, empty)
        self.changed: frozenset[str] = frozenset()
        if whole.keys() == empty.keys():
            return
        parts = {name: as_in_files(model, {name: tensor}) for name, tensor in empty.items()}
        found = {name: tensor.shape for part in parts.values() for name, tensor in part.items()}
        if found != {name: tensor.shape for name, tensor in whole.items()}:
            raise InputError(
                f"{model.config.model_type} models are not supported: their files hold several matrices as one that "
                "transformers splits"
            )
        self.changed = frozenset(name for name, part in parts.items() if list(part) != [name])

    def parts(self, name: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield a tensor's parts in files; the tensor itself if they do not differ."""
        if name in self.changed:
            yield from as_in_files(self._model, {name: tensor}).items()
        else:
            yield name, tensor

    def joined(self, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Convert weights from the files' names to the model's; other names stay unchanged.

        Raises:
            ValueError: a part has another shape than the model's.
        """
        found = dict(weights)
        parameters = dict(self._model.named_parameters())
        for name in self.changed - weights.keys():
            shape = parameters[name].shape
            # The index of each element of a part, through any transposes and chunks.
            places = as_in_files(self._model, {name: torch.arange(shape.numel()).view(shape)})
            if not places.keys() <= found.keys():
                continue
            flat = torch.empty(shape.numel(), dtype=found[next(iter(places))].dtype)
            for part, place in places.items():
                tensor = found.pop(part)
                if tensor.shape != place.shape:
                    raise ValueError(f"{part} has shape {list(tensor.shape)}, expected {list(place.shape)}")
                flat[place.flatten()] = tensor.detach().flatten().to(flat)
            found[name] = flat.view(shape)
        return found
