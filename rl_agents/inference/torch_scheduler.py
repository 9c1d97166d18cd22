"""What the torch engine works on: requests, the slots of its cache, and which request gets which slot (no tensors)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from rl_agents.inference.base import Completion, OnTokens, Sampling, stamp

#: Most prompt tokens (padding included) in one forward pass: bounds the memory of a prefill.
PREFILL_TOKENS = 16384
#: Most bytes of keys and values in one engine; as long as the cache grows, half as much again.
CACHE_BYTES = 2 << 30
#: What a forward pass costs beside its tokens, in tokens: 1.8 ms and 7.3 us a token at 0.1 million parameters.
PASS_TOKENS = 256


@dataclass(eq=False, slots=True)
class Request:
    """A request on its way: ``tokens`` is the prompt and what has been sampled so far."""

    tokens: list[int]
    prompt_length: int
    sampling: Sampling
    stop: frozenset[int]
    limit: int
    uniforms: list[float]
    future: asyncio.Future[Completion]
    on_tokens: OnTokens | None = None
    logprobs: list[float] = field(default_factory=list)
    #: (version, first token that it sampled): more than one where weights change inside the response.
    starts: list[tuple[int, int]] = field(default_factory=list)
    since: float = 0.0


@dataclass(eq=False, slots=True)
class Slot:
    """One row of the cache. ``tokens``: whose keys it holds; while a request runs, all of it but the last token."""

    request: Request | None = None
    tokens: tuple[int, ...] = ()
    length: int = 0
    last_used: int = 0


def completion_of(request: Request, reason: str) -> Completion:
    """Return what was sampled for a request that has ended for ``reason`` (stop or length)."""
    ends = [start for _, start in request.starts[1:]] + [len(request.logprobs)]
    version, spans = stamp((version, end - start) for (version, start), end in zip(request.starts, ends, strict=True))
    sampled = request.tokens[request.prompt_length :]
    return Completion(sampled, request.logprobs, version, reason, version_spans=spans)


def last_tokens(tokens: list[int], start: int, width: int) -> list[int]:
    """Return ``tokens[start:]``, padded on the left with zeros to ``width``."""
    new = tokens[start:]
    return new if len(new) == width else [0] * (width - len(new)) + new


def twins(requests: Sequence[Request]) -> list[int]:
    """Return for each request the first one that has the same tokens: the prompt of siblings is computed once."""
    first: dict[tuple[int, ...], int] = {}
    return [first.setdefault(tuple(request.tokens), index) for index, request in enumerate(requests)]


def choose_slots(slots: list[Slot], running: int, requests: list[Request], first: list[int]) -> list[int]:
    """Return a free slot for each request: the one with the longest prefix of its tokens, else the oldest.

    A slot taken for its age is emptied; any other chosen one keeps ``length`` tokens for reuse.

    Args:
        first: see `twins`; only the first of equal requests needs a prefix.
    """
    idle = {slots[index].tokens: index for index in range(running, len(slots)) if slots[index].tokens}
    lengths = sorted({len(tokens) for tokens in idle}, reverse=True)
    chosen: list[int | None] = []
    for number, request in enumerate(requests):
        usable = (n for n in lengths if n < len(request.tokens) and first[number] == number)
        hit = next((index for n in usable if (index := idle.pop(tuple(request.tokens[:n]), None)) is not None), None)
        chosen.append(hit)
    taken = {index for index in chosen if index is not None}
    spare = sorted((i for i in range(running, len(slots)) if i not in taken), key=lambda i: slots[i].last_used)
    oldest = iter(spare)
    return [index if index is not None else _emptied(slots, next(oldest)) for index in chosen]


def _emptied(slots: list[Slot], index: int) -> int:
    slots[index].tokens, slots[index].length = (), 0
    return index


def within_budget(chosen: list[int], requests: list[Request], slots: list[Slot], first: list[int]) -> list[int]:
    """Cut the list where one pass over all different requests would exceed `PREFILL_TOKENS`; keep at least one."""
    width = different = 0
    for count, (index, request) in enumerate(zip(chosen, requests, strict=False)):
        if first[count] != count:
            continue
        width, different = max(width, len(request.tokens) - slots[index].length), different + 1
        if different > 1 and width * different > PREFILL_TOKENS:
            return chosen[:count]
    return chosen


def by_width(widths: Sequence[int]) -> list[list[int]]:
    """Indices per forward pass, the widest first: cut where that saves more padding than a pass costs.

    >>> by_width([3, 400, 3, 390])
    [[1, 3], [0, 2]]
    """
    order = sorted(range(len(widths)), key=lambda i: -widths[i])
    return _cut(order, [widths[i] for i in order])


def _cut(order: list[int], widths: list[int]) -> list[list[int]]:
    """Split at the place that saves the most, then both parts; ``widths`` descend."""
    saved, place = max(((widths[0] - widths[k]) * (len(widths) - k), k) for k in range(len(widths)))
    if saved <= PASS_TOKENS:
        return [order]
    return _cut(order[:place], widths[:place]) + _cut(order[place:], widths[place:])
