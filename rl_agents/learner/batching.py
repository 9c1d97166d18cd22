"""Forward passes: their rows, the layout of the rows, and padded tensors. Needs no Ray."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Literal, get_args

import numpy as np
import torch

from rl_agents.config import Settings
from rl_agents.data.samples import FloatArray, Row
from rl_agents.learner.prefix_sharing import passes

#: Layout of the rows of a forward pass.
Layout = Literal["padded", "packed", "shared"]
PADDED, PACKED, SHARED = get_args(Layout)


def laid_out(rows: Sequence[Row], settings: Settings, width: float) -> Iterator[tuple[list[int], Layout]]:
    """Yield row indices per forward pass and their layout: rows with shared prefixes first, then all others."""
    limit, shared, alone = settings.tokens_per_microbatch, list[list[int]](), list(range(len(rows)))
    if settings.prefix_sharing:
        shared, alone = passes([row.input_ids for row in rows], limit, width)
    yield from ((part, SHARED) for part in shared)
    batches, layout = (packed_batches, PACKED) if settings.sequence_packing else (micro_batches, PADDED)
    yield from (([alone[i] for i in part], layout) for part in batches([rows[i] for i in alone], limit))


def micro_batches(rows: Sequence[Row], max_tokens: int) -> Iterator[list[int]]:
    """Yield row indices per forward pass: at most ``max_tokens`` padded tokens (at least one row), similar lengths.

    Once a batch has a sixteenth of ``max_tokens``, rows shorter than 3/4 of its longest go to the next one: a few more
    passes cost less than padding, which is more than half of all tokens if one episode is long.
    """
    batch: list[int] = []
    for index in sorted(range(len(rows)), key=lambda i: -len(rows[i])):
        longest = len(rows[(batch or [index])[0]])
        padded = longest * len(batch)
        short = 4 * len(rows[index]) < 3 * longest
        if batch and (padded + longest > max_tokens or (short and 16 * padded >= max_tokens)):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def packed_batches(rows: Sequence[Row], max_tokens: int) -> Iterator[list[int]]:
    """Yield row indices per packed pass of at most ``max_tokens`` (at least one row): first fit, longest first."""
    batches, rooms = list[list[int]](), list[int]()
    for index in sorted(range(len(rows)), key=lambda i: -len(rows[i])):
        length = len(rows[index])
        place = next((place for place, room in enumerate(rooms) if room >= length), len(rooms))
        if place == len(rooms):
            batches.append([])
            rooms.append(max_tokens)
        batches[place].append(index)
        rooms[place] -= length
    yield from batches


PER_TOKEN = [f.name for f in dataclasses.fields(Row) if str(f.type).startswith(("FloatArray", "IntArray"))]


def collate(rows: Sequence[Row], device: torch.device | str = "cpu") -> dict[str, torch.Tensor]:
    """Right-pad the per-token arrays that are filled in every row to tensors [rows, longest]."""
    longest = max(len(row) for row in rows)
    batch: dict[str, torch.Tensor] = {}
    for name in (*PER_TOKEN, "scored"):
        if getattr(rows[0], name) is None:
            continue
        padded = np.full((len(rows), longest), -1 if name == "segments" else 0, getattr(rows[0], name).dtype)
        for i, row in enumerate(rows):
            padded[i, : len(row)] = getattr(row, name)
        tensor = torch.from_numpy(padded)
        batch[name] = (tensor.long() if tensor.dtype == torch.int32 else tensor).to(device)
    return batch


def pad_weights(weights: Sequence[FloatArray], device: torch.device | str = "cpu") -> torch.Tensor:
    padded = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(w) for w in weights], batch_first=True)
    return padded.to(device)
