"""The torch engine's forward passes: their inputs and outputs as tensors, and a recorded form without Python.

At 0.1 million parameters Python and Hugging Face's modules cost more than a pass's arithmetic. After `RECORD_AFTER`
passes the model's forward is therefore recorded once (``torch.jit.trace``: no compiler, 0.2 s) and replayed by torch's
interpreter: the same operations in the same order, hence the same bits. Models that read values of tensors (experts
chosen by a router, rotary tables that grow) are never recorded, and nothing is on a GPU. A recording that differs from
the model in one bit on new shapes is not used.

Keys and values are kept in slots. Every row has its own length, and a slot keeps its tokens after its request is done.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache

from rl_agents.errors import InputError
from rl_agents.inference.base import CACHE_BYTES
from rl_agents.inference.torch_model import group_heads


class PassLayer(CacheLayerMixin):
    """One attention layer's keys and values during one forward pass; Hugging Face's protocol over a `SlotCache`.

    Only the shapes of tensors decide what is computed, so that the pass can be recorded.
    """

    is_initialized = True

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, where: torch.Tensor, span: torch.Tensor) -> None:
        """Begin a pass.

        Args:
            keys, values: (slots, capacity, heads, dim), from the first row's slot on.
            where: (rows x tokens,) indices of the new keys in ``slots x capacity``.
            span: (length,), where length is the number of keys that the longest row reads.
        """
        self.keys, self.values, self.where, self.span = keys, values, where, span

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Do nothing: the memory exists already."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new keys and values; return all that the rows may read."""
        rows, length = key_states.shape[0], self.span.shape[0]
        for memory, states in ((self.keys, key_states), (self.values, value_states)):
            memory.flatten(0, 1).index_copy_(0, self.where, states.transpose(1, 2).flatten(0, 1))
        return self.keys[:rows, :length].transpose(1, 2), self.values[:rows, :length].transpose(1, 2)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.span.shape[0], 0

    def get_seq_length(self) -> int:
        return self.span.shape[0]

    def get_max_length(self) -> int:
        return self.keys.shape[1]


class SlotCache:
    """Keys and values of ``slots`` rows. They grow from 64 positions to ``max_len`` and one spare column.

    Attributes:
        slots: rows, fewer than requested if rows of ``max_len`` would need more than `CACHE_BYTES`.
        memory: keys, then values, of layer after layer: (slots, capacity, heads, dim) each; empty before `reserve`.
    """

    @torch.inference_mode()
    def __init__(self, model: Any, slots: int, max_len: int) -> None:
        """Bound the memory, and read the shapes of keys and values from a pass over one token.

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
        #: One block for all keys and values of the same shape, so that they move and grow in one operation.
        self._blocks: dict[tuple[int, ...], torch.Tensor] = {}

    @property
    def spare(self) -> int:
        """The column for the keys of padding, which no row reads."""
        return self.capacity - 1

    def reserve(self, length: int) -> None:
        if self.capacity and length <= self.spare:
            return
        before, self.capacity = self.capacity, min(max(2 * self.capacity, length + 1, 64), self.max_len + 1)
        if before:
            extra = (0, 0, 0, 0, 0, self.capacity - before)
            self._blocks = {s: torch.nn.functional.pad(block, extra) for s, block in self._blocks.items()}
        else:
            # Zeros instead of empty, because padded queries read column 0, and NaN there would spread.
            self._blocks = {
                shape: self._empty.new_zeros(self._shapes.count(shape), self.slots, self.capacity, *shape)
                for shape in dict.fromkeys(self._shapes)
            }
        parts = {shape: iter(block.unbind(0)) for shape, block in self._blocks.items()}
        self.memory = [next(parts[shape]) for shape in self._shapes]

    def copy(self, targets: list[int], sources: list[int], length: int) -> None:
        """Set the first ``length`` positions of slot ``targets[i]`` to those that ``sources[i]`` had before."""
        for block in self._blocks.values():
            # Slot by slot: for the usual few slots torch's batched operations take two to three times as long.
            held = {slot: block[:, slot, :length].clone() for slot in dict.fromkeys(sources)}
            for target, source in zip(targets, sources, strict=True):
                block[:, target, :length] = held[source]

    def gather(self, slots: Sequence[int], low: int, length: int) -> list[tuple[int, int]]:
        """Move ``slots`` (all >= ``low``) to the range that starts at ``low``; none holds more than ``length`` tokens.

        Returns:
            The pairs of exchanged slots; the caller exchanges its own records likewise.
        """
        wanted, room = set(slots), range(low, low + len(slots))
        holes = [slot for slot in room if slot not in wanted]
        movers = sorted(slot for slot in wanted if slot not in room)
        if holes:
            self.copy(holes + movers, movers + holes, length)
        return list(zip(holes, movers, strict=True))


#: Recording costs about as much as 300 passes save, so short runs do without it.
RECORD_AFTER = 150
#: Maximum size of an attention mask, rows x tokens x keys x query heads that share keys (5 bytes each); longer prompts
#: are computed in pieces.
MASK_CELLS = 1 << 25
#: (rows, tokens, keys) of the passes that are recorded, and of those that a recording is compared on.
RECORDED, COMPARED = (2, 3, 5), ((1, 1, 1), (3, 1, 9), (2, 4, 12))


class DecodingStep(torch.nn.Module):
    """The model as a function of tensors."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, ids: torch.Tensor, position: torch.Tensor, where: torch.Tensor, span: torch.Tensor,
        memory: list[torch.Tensor],
    ) -> torch.Tensor:  # fmt: skip
        """Write keys and values into ``memory``; return the logits after each row's last token.

        Args:
            ids, position: (rows, tokens).
            where, span: see `PassLayer`; ``span`` counts from 0.
            memory: see `SlotCache`, from the first row's slot on.
        """
        dtype = memory[0].dtype
        hidden = span > position[:, None, :, None]
        mask = torch.zeros_like(hidden, dtype=dtype).masked_fill_(hidden, torch.finfo(dtype).min)
        pairs = zip(memory[::2], memory[1::2], strict=True)
        cache = Cache(layers=[PassLayer(keys, values, where, span) for keys, values in pairs])
        output = self.model(
            input_ids=ids, attention_mask=mask, position_ids=position, past_key_values=cache, use_cache=True,
            logits_to_keep=1,
        )  # fmt: skip
        return output.logits[:, -1]  # type: ignore[no-any-return]


class Passes:
    """Forward passes over neighboring slots of a cache.

    Attributes:
        recorded: whether passes are replayed.
    """

    def __init__(self, model: Any, slots: int, max_len: int) -> None:
        self.cache = SlotCache(model, slots, max_len)
        self._mask_cells = MASK_CELLS // group_heads(model)
        self.device = model.device
        self.recorded = False
        self._step: Any = DecodingStep(model)
        self._plain = self._step
        self._count = 0
        self._span = torch.arange(max_len + 1, device=self.device)
        self._rows = torch.arange(slots, device=self.device)[:, None]
        self._position = self._span[:0, None]
        self._length = 0

    def over(self, tokens: Sequence[list[int]], starts: Sequence[int], low: int) -> tuple[torch.Tensor, int]:
        """Compute tokens ``[start:]`` of each row, padded on the left; the first row is in slot ``low``.

        Returns:
            The logits after each row's last token, and how many tokens went through the model.
        """
        ends = list(map(len, tokens))
        longest = max(ends)
        self.cache.reserve(longest)
        width = longest if not any(starts) else max(end - start for start, end in zip(starts, ends, strict=True))
        new = [row[start:] for row, start in zip(tokens, starts, strict=True)]
        ids = torch.tensor([[0] * (width - len(row)) + row for row in new])
        position, columns = aligned(starts, ends, width, self.cache.spare, self.device)
        step = max(1, self._mask_cells // (len(tokens) * longest))
        for left in range(0, width, step):
            part = slice(left, left + step)
            self._position = position[:, part][:, -1:]
            self._length = longest - max(0, width - left - step)
            logits = self._run(ids[:, part].to(self.device), position[:, part], columns[:, part], low)
        return logits, position.numel()

    def onward(self, ids: torch.Tensor) -> tuple[torch.Tensor, int]:
        """Compute one more token, ``ids`` (rows, 1), for the rows of the last pass, which began at slot 0."""
        self._length += 1
        self.cache.reserve(self._length)
        self._position = self._position + 1
        return self._run(ids, self._position, self._position, 0), len(ids)

    def _run(self, ids: torch.Tensor, position: torch.Tensor, columns: torch.Tensor, low: int) -> torch.Tensor:
        where = (self._rows[: len(ids)] * self.cache.capacity + columns).reshape(-1)
        memory = [part[low:] for part in self.cache.memory] if low else self.cache.memory
        self._count += 1
        if self._count == RECORD_AFTER and self.device.type == "cpu":
            found = recording(self._plain, self.cache.memory)
            self._step, self.recorded = found or self._plain, found is not None
        span = self._span[: self._length]
        if self.recorded:
            try:
                return self._step(ids, position, where, span, memory)  # type: ignore[no-any-return]
            except RuntimeError:  # if the model caused it, it appears again below
                self._step, self.recorded = self._plain, False
        return self._plain(ids, position, where, span, memory)  # type: ignore[no-any-return]


def recording(step: DecodingStep, memory: Sequence[torch.Tensor]) -> Any:
    """Return a replay of ``step`` by torch's interpreter, or None if that would not be the same function.

    Args:
        memory: of a `SlotCache`; only its shapes are read.
    """
    state = {name: value.to("meta") for name, value in [*step.named_parameters(), *step.named_buffers()]}
    try:
        # Tensors without values: code that reads a value fails, and cannot be recorded.
        torch.func.functional_call(step, state, tuple(_example(memory, *RECORDED, device="meta")))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about branches on shapes, which are compared below, and deprecation
            for module in step.modules():
                # The trace reads every property, and transformers' `loss_function` warns where a class has no loss.
                if getattr(module, "loss_type", "") is None:
                    module.loss_type = "ForCausalLM"  # type: ignore[assignment]
            found = torch.jit.trace(step, tuple(_example(memory, *RECORDED)), check_trace=False, strict=False)
        # Twice, because the interpreter rewrites code that it has seen once.
        same = all(_same(step, found, memory, shape) for shape in (*COMPARED, *COMPARED))
    except Exception:
        return None
    return found if same else None


def _same(step: DecodingStep, found: Any, memory: Sequence[torch.Tensor], shape: tuple[int, int, int]) -> bool:
    """Whether both give the same logits, keys and values, bit by bit."""
    ours, theirs = _example(memory, *shape), _example(memory, *shape)
    return torch.equal(step(*ours), found(*theirs)) and all(map(torch.equal, ours[-1], theirs[-1]))


def _example(memory: Sequence[torch.Tensor], rows: int, tokens: int, keys: int, device: str = "cpu") -> list[Any]:
    capacity = keys + 2
    position = torch.arange(keys - tokens, keys).expand(rows, tokens)
    where = (torch.arange(rows)[:, None] * capacity + position).reshape(-1)
    ids = torch.arange(rows * tokens).view(rows, tokens) % 7
    scratch = [part.new_full((rows + 1, capacity, *part.shape[2:]), 0.01, device=device) for part in memory]
    return [*(t.to(device) for t in (ids, position, where, torch.arange(keys))), scratch]


def aligned(
    starts: Sequence[int], ends: Sequence[int], width: int, spare: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Lay out one pass over tokens ``[start, end)`` of each row, padded on the left to ``width``.

    Args:
        spare: the column for the keys of padding.

    Returns:
        Positions (rows, width) and columns of the new keys (rows, width).
    """
    position = torch.tensor(ends, device=device)[:, None] + torch.arange(-width, 0, device=device)
    if width == 1:
        return position, position
    padding = position < torch.tensor(starts, device=device)[:, None]
    return torch.where(padding, 0, position), torch.where(padding, spare, position)
