"""KV memory in slots: every row has its own length, and a slot keeps its tokens after its request is done."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache

from rl_agents.errors import InputError
from rl_agents.inference.torch_scheduler import CACHE_BYTES


class PassLayer(CacheLayerMixin):
    """One attention layer's keys and values during one forward pass; Hugging Face's protocol over a `SlotCache`.

    Shapes are read from tensors, and nothing else decides what is computed: `rl_agents.inference.torch_forward` records
    it.
    """

    is_initialized = True

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, where: torch.Tensor, span: torch.Tensor) -> None:
        """Begin a pass.

        Args:
            keys, values: (slots, capacity, heads, dim), from the first row's slot on.
            where: (rows x tokens,) the places of the new keys in ``slots x capacity``.
            span: (length,) as long as the keys that the longest row looks at.
        """
        self.keys, self.values, self.where, self.span = keys, values, where, span

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Do nothing: the memory is there."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new keys and values, return all that the rows may look at."""
        rows, length = key_states.shape[0], self.span.shape[0]
        for memory, states in ((self.keys, key_states), (self.values, value_states)):
            memory.flatten(0, 1).index_copy_(0, self.where, states.transpose(1, 2).flatten(0, 1))
        return self.keys[:rows, :length].transpose(1, 2), self.values[:rows, :length].transpose(1, 2)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the number of visible keys and their offset."""
        return self.span.shape[0], 0

    def get_seq_length(self) -> int:
        """Return the keys stored before this pass; nobody asks, since positions are always explicit."""
        return self.span.shape[0]

    def get_max_length(self) -> int:
        """Return the capacity in positions."""
        return self.keys.shape[1]


class SlotCache:
    """Keys and values of ``slots`` rows, which grow from 64 positions to ``max_len`` and one spare column.

    Attributes:
        slots: rows, fewer than asked for where those of ``max_len`` would take more than `CACHE_BYTES`.
        memory: keys, then values, of layer after layer: (slots, capacity, heads, dim) each; empty before `reserve`.
    """

    @torch.inference_mode()
    def __init__(self, model: Any, slots: int, max_len: int) -> None:
        """Bound the memory; the shapes of keys and values are seen from a pass over one token.

        Raises:
            InputError: a single row of ``max_len`` does not fit.
        """
        seen = DynamicCache()
        token = torch.zeros(1, 1, dtype=torch.long, device=model.device)
        model(input_ids=token, past_key_values=seen, use_cache=True, logits_to_keep=1)
        states = [part for layer in seen.layers for part in (layer.keys, layer.values)]
        self._empty = states[0].new_zeros(0)
        self._shapes = [tuple(part.shape[1::2]) for part in states]
        row = (max_len + 1) * self._empty.itemsize * sum(map(math.prod, self._shapes))
        if (slots := min(slots, CACHE_BYTES // row)) < 1:
            raise InputError(
                f"max_model_len={max_len}: the keys and values of one context take {row / 2**30:.1f} GiB, and the "
                f"torch engine's cache holds {CACHE_BYTES / 2**30:g} GiB: lower max_model_len, or take engine=vllm"
            )
        self.slots, self.max_len, self.capacity = slots, max_len, 0
        self.memory: list[torch.Tensor] = []
        #: One block for all keys and values of the same shape: what moves or grows does so in one operation.
        self._blocks: dict[tuple[int, ...], torch.Tensor] = {}

    def _allocate(self, capacity: int) -> None:
        # Zeros, not empty: padded queries look at column 0, and NaN there would spread.
        self._blocks = {
            shape: self._empty.new_zeros(self._shapes.count(shape), self.slots, capacity, *shape)
            for shape in dict.fromkeys(self._shapes)
        }

    def _views(self) -> list[torch.Tensor]:
        parts = {shape: iter(block.unbind(0)) for shape, block in self._blocks.items()}
        return [next(parts[shape]) for shape in self._shapes]

    @property
    def spare(self) -> int:
        """The column that takes the keys of padding; no row ever looks at it."""
        return self.capacity - 1

    def reserve(self, length: int) -> None:
        """Make room for rows of ``length`` tokens."""
        if self.capacity and length <= self.spare:
            return
        before, self.capacity = self.capacity, min(max(2 * self.capacity, length + 1, 64), self.max_len + 1)
        if before:
            extra = (0, 0, 0, 0, 0, self.capacity - before)
            self._blocks = {s: torch.nn.functional.pad(block, extra) for s, block in self._blocks.items()}
        else:
            self._allocate(self.capacity)
        self.memory = self._views()

    def copy(self, targets: list[int], sources: list[int], length: int) -> None:
        """Set the first ``length`` positions of slot ``targets[i]`` to what ``sources[i]`` held before."""
        for block in self._blocks.values():
            # Slot by slot: torch's operations for many at once take two to three times as long for the usual few.
            held = {slot: block[:, slot, :length].clone() for slot in dict.fromkeys(sources)}
            for target, source in zip(targets, sources, strict=True):
                block[:, target, :length] = held[source]

    def gather(self, slots: Sequence[int], low: int, length: int) -> list[tuple[int, int]]:
        """Bring ``slots`` (all >= ``low``) into the range that starts at ``low``; no slot holds more than ``length``.

        Returns:
            The pairs of slots that were exchanged; the caller exchanges its own records in the same way.
        """
        wanted, room = set(slots), range(low, low + len(slots))
        holes = [slot for slot in room if slot not in wanted]
        movers = sorted(slot for slot in wanted if slot not in room)
        if holes:
            self.copy(holes + movers, movers + holes, length)
        return list(zip(holes, movers, strict=True))


def pass_cache(memory: Sequence[torch.Tensor], where: torch.Tensor, span: torch.Tensor) -> Cache:
    """Return Hugging Face's cache over ``memory`` for one forward pass (see `PassLayer`)."""
    pairs = zip(memory[::2], memory[1::2], strict=True)
    return Cache(layers=[PassLayer(keys, values, where, span) for keys, values in pairs])
