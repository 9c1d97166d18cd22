"""What carries the tensors: the object store, or broadcasts of a gloo group. `session` drives either."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import torch

from rl_agents.inference.weight_sync.buckets import BUCKET_BYTES, Bucket, cut, rank_offset, world_size
from rl_agents.inference.weight_sync.gloo import LOOPBACK, Group, Meeting
from rl_agents.inference.weight_sync.states import Call
from rl_agents.inference.weights import Entry, PackedWeights, views


@dataclass(frozen=True)
class Plan:
    """What happens at the same time.

    Attributes:
        calls: by engine, to its port.
        packed: weights, or a reference to them, that every engine gets instead of calls; None: none.
        alongside: this end's part of a collective; None: it has none.
    """

    calls: Mapping[int, Sequence[Call]] = field(default_factory=dict)
    packed: Any = None
    alongside: Callable[[], None] | None = None


class Link(Protocol):
    """One way for tensors to reach engines."""

    def open(self, members: Sequence[int], deadline_s: float) -> Plan | None:
        """Say how ``members`` come together; None: they need not."""
        ...

    def update(self, members: Sequence[int], weights: Any, deadline_s: float) -> Plan:
        """Say how ``weights`` get to ``members``."""
        ...

    def close(self) -> None:
        """Drop the group; whoever waits in it fails at once."""
        ...


class StoreLink:
    """One copy in Ray's object store, from which every engine takes it: no group, any engine alone."""

    def open(self, members: Sequence[int], deadline_s: float) -> None:
        """Nothing to do."""

    def update(self, members: Sequence[int], weights: Any, deadline_s: float) -> Plan:
        """Every engine loads ``weights``: `PackedWeights`, or a reference to them."""
        return Plan(dict.fromkeys(members, ()), packed=weights)

    def close(self) -> None:
        """Nothing to do."""


class GlooLink:
    """Broadcasts in buckets over a gloo group in which this process has rank 0."""

    def __init__(
        self,
        tensor_parallel: int = 1,
        address: Callable[[Sequence[int]], str] = lambda members: LOOPBACK,
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        """Say how.

        Args:
            tensor_parallel: workers of every engine.
            address: of this machine, as ``members`` reach it.
            bucket_bytes: of one broadcast, at most; see `cut`.
        """
        self._tensor_parallel, self._address, self._bucket_bytes = tensor_parallel, address, bucket_bytes
        self._meeting: Meeting | None = None
        self._group: Group | None = None
        self._verify = False

    def open(self, members: Sequence[int], deadline_s: float) -> Plan:
        """Have all members meet; each gets the ranks after its predecessor's."""
        self.close()
        size = world_size(len(members), self._tensor_parallel)
        meeting = self._meeting = Meeting(self._address(members), size, deadline_s)
        self._verify = True
        calls: dict[int, list[Call]] = {}
        for place, member in enumerate(members):
            offset = rank_offset(place, self._tensor_parallel)
            info = {"address": meeting.address, "port": meeting.port, "rank_offset": offset, "world_size": size}
            calls[member] = [("init", info | {"deadline_s": deadline_s})]

        def join() -> None:
            group = Group(meeting.address, meeting.port, 0, size, deadline_s)
            if self._meeting is meeting:  # else given up meanwhile
                self._group = group

        return Plan(calls, alongside=join)

    def update(self, members: Sequence[int], weights: Any, deadline_s: float) -> Plan:
        """Send ``weights`` (`PackedWeights`) once; the first time after members met with checksums."""
        packed: PackedWeights = weights
        entries = [(entry.name, entry.dtype, list(entry.shape), entry.offset) for entry in packed.index]
        buckets = cut(entries, packed.nbytes, self._bucket_bytes)
        digests = [_digest(packed, bucket) for bucket in buckets] if self._verify else None
        self._verify = False
        info = {"buckets": [asdict(bucket) for bucket in buckets], "digests": digests, "deadline_s": deadline_s}
        calls: list[Call] = [("start", {}), ("update", info), ("finish", {})]
        group = self._group

        def send() -> None:
            assert group is not None
            group.begin(deadline_s)
            for bucket in buckets:
                group.broadcast(_view(packed, bucket))

        return Plan(dict.fromkeys(members, calls), alongside=send)

    def close(self) -> None:
        """Leave the group and stop listening; members that wait fail at once."""
        if self._group is not None:
            self._group.close()
        if self._meeting is not None:
            self._meeting.close()
        self._group = self._meeting = None


def _view(packed: PackedWeights, bucket: Bucket) -> torch.Tensor:
    """Return the bucket's bytes; nothing is copied."""
    (view,) = views(packed.buffer, (Entry("", "uint8", (bucket.nbytes,), bucket.offset),)).values()
    return view


def _digest(packed: PackedWeights, bucket: Bucket) -> str:
    return hashlib.sha256(packed.buffer[bucket.offset : bucket.offset + bucket.nbytes].data).hexdigest()
