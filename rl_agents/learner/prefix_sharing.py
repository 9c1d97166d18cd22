"""Common prefixes of rows, and when one forward pass of them saves time: pure functions of token ids.

Rows are sorted so that each shares as much as possible with the previous one: a depth-first walk through the trie of
all rows, longest branches first. A row is then `shared` tokens of its predecessor's path, followed by its own tokens.
This covers siblings of a state, groups of one prompt, steps of a growing dialogue and branches of a tree of calls.
Related: AReaL-DTA (2602.00482), Tree Training (2511.00413).

Costs of a row, in units of one token's pass through the linear layers of a network of width h:

  alone    L·(1 + L/(12·h))                           a token is 24·h² flops, each of its L/2 pairs of attention 4·h
  branch   (L - p)·(1 + L/(6·h)) + COPY·L/h + BRANCH  its attention is masked, so it computes (L - p)·L pairs

`COPY` is the cost of copying keys and values for each branch, and of packing and unpacking tokens: packing rows without
common prefixes made updates 6 % slower at width 64. Where these formulas predict a small gain, one was measured
(benchmarks/shared_rows.py; float32 on a CPU).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rl_agents.config import Settings

#: Cost in tokens of copying one position of a path, times the network's width.
COPY = 4.0
#: Cost in tokens of a branch itself.
BRANCH = 1.0
#: Memory of a copied key and value, relative to a token's activations.
KEPT = 0.1
#: If no width is known, all common prefixes are shared.
WIDE = 1e9


@dataclass(frozen=True, slots=True)
class Walk:
    """Rows in the order of their trie.

    Attributes:
        order: row indices.
        shared, lengths: by position in ``order``: leading tokens shared with the previous row, and all tokens.
    """

    order: list[int]
    shared: list[int]
    lengths: list[int]

    def load(self, place: int, first: bool) -> float:
        """Memory of a row in tokens, as the first of a pass or not."""
        own = self.lengths[place] - (0 if first else self.shared[place])
        return own + KEPT * (0 if first or not self.shared[place] else self.lengths[place])


def packing_key(settings: Settings) -> str:
    """Return the key that requests packed rows; empty: all rows are padded."""
    if settings.prefix_sharing:
        return "prefix_sharing"
    return "sequence_packing" if settings.sequence_packing else ""


def walk(ids: Sequence[NDArray[np.integer]], width: float = WIDE) -> Walk:
    """Sort rows by their trie; a row shares its predecessor's prefix if that costs less.

    Args:
        width: width of the network's residual stream.
    """
    keys = [np.asarray(row).astype(">u4").tobytes() for row in ids]
    order = sorted(range(len(ids)), key=lambda i: keys[i], reverse=True)
    shared = [0] * len(order)
    for place in range(1, len(order)):
        row, previous = ids[order[place]], ids[order[place - 1]]
        common = _common(row, previous)
        if branch_cost(len(row), common, width) < root_cost(len(row), width):
            shared[place] = common
    return Walk(order, shared, [len(ids[i]) for i in order])


def flat_cost(length: int, width: float) -> float:
    """Cost of a row in an unpacked batch without padding, see above."""
    return length * (1 + length / (12 * width))


def root_cost(length: int, width: float) -> float:
    """Cost of a packed row without a shared prefix."""
    return flat_cost(length, width) + COPY * length / width


def branch_cost(length: int, shared: int, width: float) -> float:
    """Cost of a packed row's own tokens; 0 for a row that is a prefix of its predecessor."""
    own = length - shared
    return own * (1 + length / (6 * width)) + COPY * length / width + BRANCH if own else 0.0


def passes(ids: Sequence[NDArray[np.integer]], max_tokens: int, width: float) -> tuple[list[list[int]], list[int]]:
    """Split rows into packed forward passes of at most ``max_tokens`` (at least one row), and unpacked rows.

    Rows with a common prefix are packed if that costs less than separate rows. Passes are cut where the fewest tokens
    are repeated.

    Returns:
        Row indices of every packed pass; indices of the rows that are cheaper unpacked.
    """
    trie = walk(ids, width)
    starts = [place for place, common in enumerate(trie.shared) if not common] + [len(trie.order)]
    packed, alone = list[int](), list[int]()
    for start, end in pairwise(starts):
        (packed if _pays(trie, start, end, width) else alone).extend(range(start, end))
    cuts = _cuts(trie, packed, max_tokens)
    return [[trie.order[place] for place in part] for part in cuts], sorted(trie.order[place] for place in alone)


def _pays(trie: Walk, start: int, end: int, width: float) -> bool:
    flat = sum(flat_cost(length, width) for length in trie.lengths[start:end])
    branches = zip(trie.lengths[start + 1 : end], trie.shared[start + 1 : end], strict=True)
    return root_cost(trie.lengths[start], width) + sum(branch_cost(n, p, width) for n, p in branches) < flat


def _cuts(trie: Walk, places: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Fill passes in the trie's order; cut at the cheapest position of a pass's second half."""
    start = 0
    while start < len(places):
        end, load = start, 0.0
        while end < len(places) and (end == start or load + trie.load(places[end], first=False) <= max_tokens):
            load += trie.load(places[end], first=end == start)
            end += 1
        if end < len(places):
            middle = start + (end - start) // 2 + 1
            end = min(range(end, middle - 1, -1), key=lambda place: trie.shared[places[place]])
        yield list(places[start:end])
        start = end


def split_shared(ids: Sequence[NDArray[np.integer]], num_shards: int) -> list[list[int]]:
    """Return row indices per learner: parts of the trie with about equally many tokens, cut where few are repeated."""
    trie = walk(ids)
    before = np.cumsum([0] + [trie.load(place, first=False) for place in range(len(ids))])
    cuts = [0]
    for shard in range(1, num_shards):
        target = before[-1] * shard / num_shards
        places = range(cuts[-1], len(ids))
        cost = [abs(before[place] - target) + trie.shared[place] for place in places]
        cuts.append(places[int(np.argmin(cost))] if cost else len(ids))
    return [sorted(trie.order[start:end]) for start, end in zip(cuts, [*cuts[1:], len(ids)], strict=True)]


def _common(a: NDArray[np.integer], b: NDArray[np.integer]) -> int:
    length = min(len(a), len(b))
    differ = np.flatnonzero(a[:length] != b[:length])
    return int(differ[0]) if len(differ) else length
