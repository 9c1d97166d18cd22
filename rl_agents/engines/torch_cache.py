"""KV memory in slots: every row has its own length, and a slot keeps its tokens after its request is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin


@dataclass(slots=True)
class Window:
    """The part of the slots that one forward pass works on; all layers share it.

    Attributes:
        low, high: the rows, a contiguous range of slots.
        rows: (rows, 1) their slots.
        columns: (rows, tokens) where each new key and value goes.
        length: keys visible to the longest row.
    """

    low: int = 0
    high: int = 0
    rows: torch.Tensor = field(default_factory=lambda: torch.zeros(0, 1, dtype=torch.long))
    columns: torch.Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.long))
    length: int = 0


class SlotLayer(CacheLayerMixin):
    """One attention layer's keys and values, laid out (slot, position, head, dim)."""

    def __init__(self, slots: int, capacity: int, window: Window) -> None:
        super().__init__()
        self.slots, self.capacity, self.window = slots, capacity, window

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate on the first pass, when heads, head size and device are known."""
        # Zeros, not empty: padded queries look at column 0, and NaN there would spread.
        self.keys, self.values = (
            states.new_zeros(self.slots, self.capacity, states.shape[1], states.shape[3])
            for states in (key_states, value_states)
        )
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new keys and values, return all that the window's rows may look at."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        window = self.window
        seen = []
        for memory, states in ((self.keys, key_states), (self.values, value_states)):
            memory[window.rows, window.columns] = states.transpose(1, 2)
            seen.append(memory[window.low : window.high, : window.length].transpose(1, 2))
        return seen[0], seen[1]

    def move(self, targets: list[int], sources: list[int], length: int) -> None:
        """Set slot ``targets[i]`` to what ``sources[i]`` held; both lists name the same slots."""
        if self.is_initialized:
            self.copy(targets, sources, length)

    def copy(self, targets: list[int], sources: list[int], length: int) -> None:
        """Give each slot of ``targets`` the first ``length`` positions of its source."""
        for memory in (self.keys, self.values):
            memory[targets, :length] = memory[sources, :length]

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` positions."""
        if self.is_initialized:
            extra = (0, 0, 0, 0, 0, capacity - self.capacity)
            self.keys, self.values = (torch.nn.functional.pad(m, extra) for m in (self.keys, self.values))
        self.capacity = capacity

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the number of visible keys and their offset (Hugging Face's protocol)."""
        return self.window.length, 0

    def get_seq_length(self) -> int:
        """Return the keys stored before this pass (Hugging Face's protocol; positions are always explicit)."""
        return self.window.length - self.window.columns.shape[1]

    def get_max_length(self) -> int:
        """Return the capacity in positions (Hugging Face's protocol)."""
        return self.capacity


class SlotCache(Cache):
    """A Hugging Face cache of ``slots`` rows that grows from 64 positions to ``max_len`` and one spare column."""

    def __init__(self, num_layers: int, slots: int, max_len: int) -> None:
        self.window = Window()
        self.max_len = max_len
        self.capacity = min(64, max_len + 1)
        super().__init__(layers=[SlotLayer(slots, self.capacity, self.window) for _ in range(num_layers)])

    @property
    def spare(self) -> int:
        """The column that takes the keys of padding; no row ever looks at it."""
        return self.capacity - 1

    def reserve(self, length: int) -> None:
        """Make room for rows of ``length`` tokens."""
        if length > self.spare:
            self.capacity = min(max(2 * self.capacity, length + 1), self.max_len + 1)
            for layer in self.layers:
                layer.grow(self.capacity)

    def aim(self, low: int, high: int, columns: torch.Tensor, length: int) -> None:
        """Choose what the next forward pass writes and sees."""
        self.window.low, self.window.high = low, high
        self.window.rows = torch.arange(low, high, device=columns.device)[:, None]
        self.window.columns, self.window.length = columns, length

    def copy(self, targets: list[int], sources: list[int], length: int) -> None:
        """Give each slot of ``targets`` what its source holds, up to ``length``."""
        for layer in self.layers:
            layer.copy(targets, sources, length)  # type: ignore[attr-defined]

    def gather(self, slots: Sequence[int], low: int, length: int) -> list[tuple[int, int]]:
        """Bring ``slots`` (all >= ``low``) into the range that starts at ``low``; no slot holds more than ``length``.

        Returns:
            The pairs of slots that were exchanged; the caller exchanges its own records in the same way.
        """
        wanted, room = set(slots), range(low, low + len(slots))
        holes = [slot for slot in room if slot not in wanted]
        movers = sorted(slot for slot in wanted if slot not in room)
        if holes:
            for layer in self.layers:
                layer.move(holes + movers, movers + holes, length)
        return list(zip(holes, movers, strict=True))


def aligned(
    starts: list[int], ends: list[int], spare: int, device: torch.device, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Lay out one pass over tokens ``[start, end)`` of each row, padded on the left.

    Args:
        spare: the column that takes the keys of padding.

    Returns:
        Positions (rows, width), columns of the new keys (rows, width), and the additive mask (rows, 1, width, keys).
    """
    width, keys = max(end - start for start, end in zip(starts, ends, strict=True)), max(ends)
    position = torch.tensor(ends, device=device)[:, None] + torch.arange(-width, 0, device=device)
    columns = position
    if width > 1:
        padding = position < torch.tensor(starts, device=device)[:, None]
        columns = torch.where(padding, spare, position)
        position = torch.where(padding, 0, position)
    visible = torch.arange(keys, device=device) <= position[:, :, None]
    mask = torch.zeros(visible.shape, dtype=dtype, device=device).masked_fill_(~visible, torch.finfo(dtype).min)
    return position, columns, mask[:, None]
