"""Which bytes travel together, and which rank every engine has in a group. Plain arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Bytes of one broadcast at most, unless one tensor is larger: the receiver's extra memory.
BUCKET_BYTES = 256 << 20

#: One tensor on the wire: name, torch dtype name, shape, offset in bytes. Plain, so that it can cross any process.
PlainEntry = tuple[str, str, list[int], int]


@dataclass(frozen=True, slots=True)
class Bucket:
    """Tensors that travel together: ``nbytes`` from ``offset`` of the packed weights; ``entries`` count from there."""

    offset: int
    nbytes: int
    entries: tuple[PlainEntry, ...]


def cut(entries: Sequence[PlainEntry], total: int, bucket_bytes: int = BUCKET_BYTES) -> list[Bucket]:
    """Cut packed weights into buckets, in order, at borders of tensors.

    A tensor larger than ``bucket_bytes`` is a bucket of its own. No bucket is empty, unless all weights are.

    Args:
        entries: of the packed weights, with growing offsets.
        total: bytes of the packed weights.
        bucket_bytes: of one bucket, at most.

    Raises:
        ValueError: ``bucket_bytes`` is below 1.
    """
    if bucket_bytes < 1:
        raise ValueError(f"bucket_bytes {bucket_bytes} must be >= 1")
    ends = [entry[3] for entry in entries[1:]] + [total] * bool(entries)
    buckets: list[Bucket] = []
    mine: list[PlainEntry] = []
    begin = last = 0
    for entry, end in zip(entries, ends, strict=True):
        if last > begin and end - begin > bucket_bytes and end > last:
            buckets.append(_bucket(begin, last, mine))
            mine, begin = [], last
        mine.append(entry)
        last = end
    if mine:
        buckets.append(_bucket(begin, last, mine))
    return buckets


def _bucket(begin: int, end: int, entries: Sequence[PlainEntry]) -> Bucket:
    return Bucket(begin, end - begin, tuple((name, dtype, shape, at - begin) for name, dtype, shape, at in entries))


def rank_offset(place: int, tensor_parallel: int) -> int:
    """Return the first rank of the engine at ``place`` among a group's members; the sender has rank 0.

    vLLM's own trainer sends offset 1 to every engine, so that two of them collide.
    """
    return 1 + place * tensor_parallel


def world_size(members: int, tensor_parallel: int) -> int:
    """Return the number of ranks: the sender, and every worker of every engine."""
    return 1 + members * tensor_parallel
