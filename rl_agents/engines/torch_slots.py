"""What the torch engine works on: requests, the slots of its cache, and which request gets which slot (no tensors)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from rl_agents.engines.base import Completion, OnTokens, Sampling, stamp

#: Most prompt tokens (padding included) in one forward pass: bounds the memory of a prefill.
PREFILL_TOKENS = 16384


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


def choose_slots(slots: list[Slot], running: int, requests: list[Request]) -> list[int]:
    """Return a free slot for each request: the one with the longest prefix of its tokens, else the oldest.

    A slot taken for its age is emptied; any other chosen one keeps ``length`` tokens for reuse.
    """
    idle = {slots[index].tokens: index for index in range(running, len(slots)) if slots[index].tokens}
    lengths = sorted({len(tokens) for tokens in idle}, reverse=True)
    chosen: list[int | None] = []
    for request in requests:
        usable = (n for n in lengths if n < len(request.tokens))
        hit = next((index for n in usable if (index := idle.pop(tuple(request.tokens[:n]), None)) is not None), None)
        chosen.append(hit)
    taken = {index for index in chosen if index is not None}
    spare = sorted((i for i in range(running, len(slots)) if i not in taken), key=lambda i: slots[i].last_used)
    oldest = iter(spare)
    return [index if index is not None else _emptied(slots, next(oldest)) for index in chosen]


def _emptied(slots: list[Slot], index: int) -> int:
    slots[index].tokens, slots[index].length = (), 0
    return index


def within_budget(chosen: list[int], requests: list[Request], slots: list[Slot]) -> list[int]:
    """Cut the list where one pass over all of it would exceed `PREFILL_TOKENS`; keep at least one."""
    width = 0
    for count, (index, request) in enumerate(zip(chosen, requests, strict=False)):
        width = max(width, len(request.tokens) - slots[index].length)
        if count and width * (count + 1) > PREFILL_TOKENS:
            return chosen[:count]
    return chosen
