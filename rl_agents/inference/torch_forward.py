"""The torch engine's forward passes: what a pass reads and writes as tensors, and a recorded form without Python.

At 0.1 million parameters Python and Hugging Face's modules cost more than a pass's arithmetic. After `RECORD_AFTER`
passes the model's forward is therefore recorded once (``torch.jit.trace``: no compiler, 0.2 s) and replayed by torch's
interpreter: the same operations in the same order, hence the same bits. Models that read values of tensors on their way
(experts chosen by a router, rotary tables that grow) are never recorded, nor is anything on a GPU; nor is a recording
used that differs from the model in one bit on shapes that it has not seen.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from rl_agents.inference.torch_kv_cache import SlotCache, pass_cache
from rl_agents.inference.torch_scheduler import last_tokens

#: Recording costs as much as about 300 passes save: shorter runs are spared it.
RECORD_AFTER = 150
#: Most numbers in a pass's attention mask, rows x tokens x keys: longer prompts are computed in pieces (5 bytes each).
MASK_CELLS = 1 << 25
#: (rows, tokens, keys) of the passes that a recording is made of, and compared on.
RECORDED, COMPARED = (2, 3, 5), ((1, 1, 1), (3, 1, 9), (2, 4, 12))


class Step(torch.nn.Module):
    """The model as a function of tensors alone."""

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
        output = self.model(
            input_ids=ids, attention_mask=mask, position_ids=position, past_key_values=pass_cache(memory, where, span),
            use_cache=True, logits_to_keep=1,
        )  # fmt: skip
        return output.logits[:, -1]  # type: ignore[no-any-return]


class Passes:
    """Forward passes over neighboring slots of a cache.

    Attributes:
        cache: the keys and values.
        recorded: whether passes are replayed by now.
    """

    def __init__(self, model: Any, slots: int, max_len: int) -> None:
        self.cache = SlotCache(model, slots, max_len)
        self.device = model.device
        self.recorded = False
        self._step: Any = Step(model)
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
        ids = torch.tensor([last_tokens(row, start, width) for row, start in zip(tokens, starts, strict=True)])
        position, columns = aligned(starts, ends, width, self.cache.spare, self.device)
        step = max(1, MASK_CELLS // (len(tokens) * longest))
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
            self._record()
        span = self._span[: self._length]
        if self.recorded:
            try:
                return self._step(ids, position, where, span, memory)  # type: ignore[no-any-return]
            except RuntimeError:  # what fails here fails plainly too, and says so better; else it was the recording
                self._step, self.recorded = self._plain, False
        return self._plain(ids, position, where, span, memory)  # type: ignore[no-any-return]

    def _record(self) -> None:
        found = recording(self._plain, self.cache.memory)
        self._step, self.recorded = found or self._plain, found is not None


def recording(step: Step, memory: Sequence[torch.Tensor]) -> Any:
    """Return ``step`` as torch's interpreter replays it, or None where that would not be the same function.

    Args:
        memory: of a `SlotCache`; only its shapes are read.
    """
    state = {name: value.to("meta") for name, value in [*step.named_parameters(), *step.named_buffers()]}
    try:
        # Tensors without values: whoever asks for one fails. What depends on values cannot be recorded.
        torch.func.functional_call(step, state, tuple(_example(memory, *RECORDED, device="meta")))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about branches on shapes, which are compared below, and of trace's age
            for module in step.modules():
                # The trace reads every property, and transformers' `loss_function` warns where a class has no loss.
                if getattr(module, "loss_type", "") is None:
                    module.loss_type = "ForCausalLM"  # type: ignore[assignment]
            found = torch.jit.trace(step, tuple(_example(memory, *RECORDED)), check_trace=False, strict=False)
        # Twice: the interpreter rewrites what it has seen once.
        same = all(_same(step, found, memory, shape) for shape in (*COMPARED, *COMPARED))
    except Exception:
        return None
    return found if same else None


def _same(step: Step, found: Any, memory: Sequence[torch.Tensor], shape: tuple[int, int, int]) -> bool:
    """Whether both give the same logits, keys and values, bit by bit."""
    ours, theirs = _example(memory, *shape), _example(memory, *shape)
    return torch.equal(step(*ours), found(*theirs)) and all(map(torch.equal, ours[-1], theirs[-1]))


def _example(memory: Sequence[torch.Tensor], rows: int, tokens: int, keys: int, device: str = "cpu") -> list[Any]:
    """Return arguments of `Step.forward` for the last ``tokens`` of rows of ``keys``."""
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
        spare: the column that takes the keys of padding.

    Returns:
        Positions (rows, width) and columns of the new keys (rows, width).
    """
    position = torch.tensor(ends, device=device)[:, None] + torch.arange(-width, 0, device=device)
    if width == 1:
        return position, position
    padding = position < torch.tensor(starts, device=device)[:, None]
    return torch.where(padding, 0, position), torch.where(padding, spare, position)
