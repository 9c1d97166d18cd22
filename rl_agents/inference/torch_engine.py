"""A KV-cache engine in plain torch over any Hugging Face causal language model with full attention.

Best for models of up to about two million parameters: nothing to install, no second process, and weights
that are copied in place. Requests run on the event loop itself (no threads, no timers), so that the same coroutines
in the same order give the same bits. Each decoding step takes all running requests; waiting ones join between
steps. A slot keeps its keys and values when its request is done. The next turn of an episode, whose prompt begins with
the same tokens, computes only the new ones. A prompt that several joining requests share (members of a group, siblings
of a searched state) is computed once, and each gets a copy. While the batch stays the same, a step's tokens are the
next pass's input without a copy.

The tokens of a request depend only on its own seed, not on other requests in the batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rl_agents.inference.base import (
    Completion,
    EngineError,
    EngineSettings,
    OnTokens,
    RequestRefused,
    Sampling,
    Weights,
    stamp,
)
from rl_agents.inference.torch_forward import Passes
from rl_agents.inference.torch_model import check_attention, fitting_parameters, load_causal_lm
from rl_agents.inference.weight_update_gate import Gate, Running
from rl_agents.inference.weights import FileNames

#: Maximum prompt tokens (including padding) in one forward pass, which bounds the memory of a prefill.
PREFILL_TOKENS = 16384
#: Fixed cost of a forward pass in tokens: 1.8 ms at 7.3 us a token with 0.1 million parameters; with 135 million, 30 ms
#: (the weights are read) at 1.1 ms a token.
PASS_TOKENS, LARGE_PASS_TOKENS = 256, 32
#: Parameters from which on the latter counts, and joining prompts share a common beginning: before, copying its keys
#: costs as much as computing them.
LARGE = 10_000_000


@dataclass(eq=False, slots=True)
class GenerationRequest:
    """A request in progress; ``tokens`` are its prompt and the tokens sampled so far."""

    tokens: list[int]
    prompt_length: int
    sampling: Sampling
    stop: frozenset[int]
    limit: int
    uniforms: list[float]
    future: asyncio.Future[Completion]
    on_tokens: OnTokens | None = None
    logprobs: list[float] = field(default_factory=list)
    #: (version, index of the first token that it sampled); several if weights change during the response.
    starts: list[tuple[int, int]] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Slot:
    """One row of the cache. ``tokens``: those whose keys it holds after a request has ended."""

    request: GenerationRequest | None = None
    tokens: tuple[int, ...] = ()
    length: int = 0
    last_used: int = 0


def completion_of(request: GenerationRequest, reason: str) -> Completion:
    ends = [start for _, start in request.starts[1:]] + [len(request.logprobs)]
    version, spans = stamp((version, end - start) for (version, start), end in zip(request.starts, ends, strict=True))
    sampled = request.tokens[request.prompt_length :]
    return Completion(sampled, request.logprobs, version, reason, version_spans=spans)


def twins(requests: Sequence[GenerationRequest]) -> list[int]:
    """Return for each request the index of the first one with the same tokens, which is computed once."""
    first: dict[tuple[int, ...], int] = {}
    return [first.setdefault(tuple(request.tokens), index) for index, request in enumerate(requests)]


def choose_slots(slots: list[Slot], running: int, requests: list[GenerationRequest], first: list[int]) -> list[int]:
    """Return a free slot for each request: the one with the longest prefix of its tokens, else the oldest.

    A slot chosen for its age is emptied. Any other keeps ``length`` tokens for reuse.

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


def within_budget(
    chosen: list[int], requests: list[GenerationRequest], slots: list[Slot], first: list[int]
) -> list[int]:
    """Cut the list so that one pass over the distinct requests stays within `PREFILL_TOKENS`; keep at least one."""
    width = different = 0
    for count, (index, request) in enumerate(zip(chosen, requests, strict=False)):
        if first[count] != count:
            continue
        width, different = max(width, len(request.tokens) - slots[index].length), different + 1
        if different > 1 and width * different > PREFILL_TOKENS:
            return chosen[:count]
    return chosen


def beginning(prompts: Sequence[list[int]]) -> int:
    """Return the number of leading tokens that all prompts of a large model share, without the last one of any; 0 where
    a pass over them costs more than it saves."""
    shortest = min(map(len, prompts), default=1) - 1
    common = next((n for n in range(shortest) if len({prompt[n] for prompt in prompts}) > 1), shortest)
    return common if common * (len(prompts) - 1) > LARGE_PASS_TOKENS else 0


def by_width(widths: Sequence[int], pass_tokens: int = PASS_TOKENS) -> list[list[int]]:
    """Return indices for each forward pass, widest first, cut where that saves more padding than a pass costs.

    >>> by_width([3, 400, 3, 390])
    [[1, 3], [0, 2]]
    """
    order = sorted(range(len(widths)), key=lambda i: -widths[i])
    return _cut(order, [widths[i] for i in order], pass_tokens)


def _cut(order: list[int], widths: list[int], pass_tokens: int) -> list[list[int]]:
    saved, place = max(((widths[0] - widths[k]) * (len(widths) - k), k) for k in range(len(widths)))
    if saved <= pass_tokens:
        return [order]
    return _cut(order[:place], widths[:place], pass_tokens) + _cut(order[place:], widths[place:], pass_tokens)


def uniforms(seed: int, count: int) -> list[float]:
    """Return ``count`` numbers in [0, 1) that decide a request's tokens, one per position.

    The generator is counter-based (Philox), so the number at position ``i`` does not depend on ``count``.
    """
    return np.random.Generator(np.random.Philox(key=seed % 2**128)).random(count).tolist()


def draw(
    logits: torch.Tensor, temperature: torch.Tensor | None, top_p: torch.Tensor | None, uniform: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sample one token per row by inverting the cumulative distribution.

    Args:
        logits: (rows, vocabulary).
        temperature: (rows,); 0 selects the most likely token, with its log-probability at temperature 1. None: all
            are 1.
        top_p: (rows,) nucleus mass; 1 is everything. None: all are 1.
        uniform: (rows,) float64 numbers in [0, 1).

    Returns:
        Token ids, and their log-probabilities under the distribution that they were drawn from.
    """
    logits = logits.float()
    greedy = None if temperature is None else temperature == 0
    if temperature is not None and greedy is not None:
        logprobs = torch.log_softmax(logits / torch.where(greedy, 1.0, temperature)[:, None], dim=-1)
    else:
        logprobs = torch.log_softmax(logits, dim=-1)
    if top_p is not None:
        logprobs = _nucleus(logprobs, top_p)
    mass = logprobs.double().exp_().cumsum_(-1)
    tokens = torch.searchsorted(mass, uniform[:, None] * mass[:, -1:], right=True)
    tokens = tokens.clamp_(max=logits.shape[-1] - 1)
    if greedy is not None:
        tokens = torch.where(greedy[:, None], logits.argmax(-1, keepdim=True), tokens)
    return tokens.squeeze(1), logprobs.gather(1, tokens).squeeze(1)


def _nucleus(logprobs: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Keep the smallest set of tokens with at least ``top_p`` of the mass, and renormalize."""
    ordered, order = logprobs.sort(dim=-1, descending=True, stable=True)
    mass_before = ordered.exp().cumsum(-1) - ordered.exp()
    dropped = (mass_before >= top_p[:, None]) & (top_p < 1)[:, None]
    dropped[:, 0] = False
    ordered = torch.log_softmax(ordered.masked_fill(dropped, float("-inf")), dim=-1)
    return torch.empty_like(logprobs).scatter_(1, order, ordered)


class TorchEngine:
    """See the module docstring. Slots ``[0, running)`` of the cache hold the running requests.

    Attributes:
        sampled_tokens, prompt_tokens, cached_tokens: totals; cached are prompt tokens whose keys existed already, or
            were computed for another request of the same pass.
        passes, prefill_tokens, decode_tokens: forward passes of the model, and the tokens that it computed, including
            padding, in passes over prompts and in passes over one token per request.
    """

    def __init__(
        self,
        model: str | Path | torch.nn.Module,
        dtype: str | torch.dtype = "float32",
        max_model_len: int = 1024,
        max_batch: int = 128,
        seed: int = 0,
        weight_switch: str = "wait",
        switch_timeout_s: float = 120.0,
    ) -> None:
        """Load or adopt a model.

        Args:
            model: checkpoint folder, loaded on the GPU if there is one; or a loaded Hugging Face model, which stays on
                its device, and into which `load_weights` writes.
            dtype: of the weights, if ``model`` is a folder.
            max_model_len: maximum tokens of prompt and response.
            max_batch: maximum requests decoded together; fewer if `SlotCache` cannot hold so many contexts.
            seed: for requests without a seed.
            weight_switch, switch_timeout_s: see `EngineSettings`.

        Raises:
            InputError: the model has layers that this engine cannot cache, or one context does not fit the cache.
        """
        if isinstance(model, (str, Path)):
            model = load_causal_lm(model, dtype).to("cuda" if torch.cuda.is_available() else "cpu")
        self.model: Any = model
        check_attention(self.model.config, max_model_len)
        self.device, self.max_model_len, self.seed = self.model.device, max_model_len, seed
        self._passes = Passes(self.model, max_batch, max_model_len)
        self.max_batch = self._passes.cache.slots
        self._names = FileNames(self.model)
        self.version = 0
        self._gate = Gate(self.max_batch, switch_timeout_s, weight_switch == "keep")
        self.held = self._gate.held
        self._large = sum(weights.numel() for weights in self.model.parameters()) >= LARGE
        self.sampled_tokens = self.prompt_tokens = self.cached_tokens = 0
        self.passes = self.prefill_tokens = self.decode_tokens = 0
        self._slots = [Slot() for _ in range(self.max_batch)]
        self._running = self._clock = self._requests = 0
        self._waiting: list[GenerationRequest] = []
        self._driver: asyncio.Task[None] | None = None
        #: Of the running batch until it changes: temperature and top-p by row, and the tokens that no pass has read.
        self._rows: tuple[torch.Tensor | None, torch.Tensor | None] | None = None
        self._drawn: torch.Tensor | None = None

    @classmethod
    def from_settings(cls, settings: EngineSettings) -> TorchEngine:
        torch.set_num_threads(settings.threads)
        return cls(
            settings.model_dir, settings.dtype, settings.max_model_len, settings.max_batch, settings.seed,
            weight_switch=settings.weight_switch, switch_timeout_s=settings.switch_timeout_s,
        )  # fmt: skip

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, on_tokens: OnTokens | None = None
    ) -> Completion:
        """Sample a response to ``prompt_ids``.

        Raises:
            RequestRefused: the request has `Extras`, or its prompt is empty or leaves no room for a response.
            EngineError: the model failed.
        """
        if sampling.extras is not None:
            raise RequestRefused("the torch engine supports none of these sampling options; use engine=vllm")
        room = self.max_model_len - len(prompt_ids)
        if not prompt_ids or room < 1 or sampling.max_tokens < 1:
            raise RequestRefused(
                f"torch engine: a prompt of {len(prompt_ids)} tokens and max_tokens={sampling.max_tokens} "
                f"do not fit max_model_len={self.max_model_len}"
            )
        limit, self._requests = min(sampling.max_tokens, room), self._requests + 1
        seed = sampling.seed if sampling.seed is not None else (self.seed << 64) + self._requests
        request = GenerationRequest(
            list(prompt_ids), len(prompt_ids), sampling, frozenset(sampling.stop_token_ids), limit,
            uniforms(seed, limit), asyncio.get_running_loop().create_future(), on_tokens,
        )  # fmt: skip
        async with self._gate.call(Running(len(prompt_ids), limit)):
            self._waiting.append(request)
            if self._driver is None or self._driver.done():
                self._driver = asyncio.create_task(self._drive())
            return await request.future

    async def load_weights(self, weights: Weights, version: int) -> None:
        """Copy ``weights`` into the model when no call runs (``wait``), or at once (``keep``), and drop all keys.

        Raises:
            EngineError: names or shapes do not match the model, or running calls do not end in time; nothing has been
                copied then.
        """
        pairs = fitting_parameters(self.model, self._names, weights)
        async with self._gate.update(version):
            with torch.no_grad():
                for parameter, tensor in pairs:
                    parameter.copy_(tensor)
            self._forget()
            self.version = version

    def close(self) -> None:
        self._forget()
        self._passes = self.model = None  # type: ignore[assignment]

    def _forget(self) -> None:
        """Drop all keys and values; running requests wait again, in their order, ahead of the others."""
        stopped = [slot.request for slot in self._slots if slot.request is not None]
        self._waiting[:0] = stopped
        self._slots = [Slot() for _ in range(self.max_batch)]
        self._running, self._rows, self._drawn = 0, None, None

    async def _drive(self) -> None:
        """Run until no request is left and two passes of the event loop bring no new one."""
        try:
            await self._settle()
            while self._waiting or self._running:
                # A joining request costs its own forward pass, so a few are collected while many run.
                if self._running < self.max_batch and len(self._waiting) * 4 >= max(1, self._running):
                    self._admit()
                else:
                    self._advance()
                await asyncio.sleep(0)
                if not self._running:
                    await self._settle()
        except Exception as error:
            self._forget()
            for request in self._waiting:
                if not request.future.done():
                    request.future.set_exception(EngineError(f"torch engine failed: {error!r}"))
            self._waiting.clear()
        except asyncio.CancelledError:  # the event loop ends, and with it all waiting requests
            self._retire(set(range(self._running)))
            self._waiting.clear()
            raise

    async def _settle(self) -> None:
        """Let all runnable coroutines continue, so that their requests form one batch."""
        seen, quiet = -1, 0
        while quiet < 2:
            quiet = quiet + 1 if len(self._waiting) == seen else 0
            seen = len(self._waiting)
            await asyncio.sleep(0)

    @torch.inference_mode()
    def _admit(self) -> None:
        """Assign slots to waiting requests, compute their prompts and sample one token each."""
        self._waiting = [request for request in self._waiting if not request.future.done()]
        able = self._waiting[: self.max_batch - self._running]
        first = twins(able)
        chosen = within_budget(choose_slots(self._slots, self._running, able, first), able, self._slots, first)
        if not chosen:
            return
        joining = [self._slots[index] for index in chosen]
        for request, slot in zip(able, joining, strict=False):
            slot.request = request
            self.prompt_tokens += len(request.tokens)
        del self._waiting[: len(chosen)]
        low = self._running
        logits = self._prefill(joining, [joining[index] for index in first[: len(chosen)]])
        self._running += len(chosen)
        self._sample(low, self._running, logits)
        self._drawn = None  # the last pass was over other rows

    def _prefill(self, joining: list[Slot], same: list[Slot]) -> torch.Tensor:
        """Move ``joining`` behind the running slots and compute missing keys; return the logits in their new order.

        Args:
            same: for each slot the one with the same prompt that is computed, which may be the slot itself.
        """
        low = start = self._running
        self._drawn = None
        leaders = [slot for slot, other in zip(joining, same, strict=True) if slot is other]
        self._begin([slot for slot in leaders if not slot.length])
        missing = [len(slot.request.tokens) - slot.length for slot in leaders]  # type: ignore[union-attr]
        logits = []
        for part in by_width(missing, LARGE_PASS_TOKENS if self._large else PASS_TOKENS):
            self._bring([leaders[index] for index in part], low)
            self.cached_tokens += sum(leaders[index].length for index in part)
            logits.append(self._forward(low, low + len(part)))
            low += len(part)
        leader_of = {slot: other for slot, other in zip(joining, same, strict=True) if slot is not other}
        if not leader_of:
            return torch.cat(logits)
        self._bring(list(leader_of), low)
        place = {slot: index for index, slot in enumerate(self._slots)}
        sources = [place[leader_of[slot]] for slot in self._slots[low : low + len(leader_of)]]
        for slot, leader in leader_of.items():
            slot.length = leader.length
            self.cached_tokens += slot.length
        self._passes.cache.copy(list(range(low, low + len(sources))), sources, max(slot.length for slot in leader_of))
        return torch.cat(logits)[[*range(low - start), *(source - start for source in sources)]]

    def _begin(self, slots: list[Slot]) -> None:
        """Compute the common beginning of prompts without keys once, for all of their slots."""
        prompts = [slot.request.tokens for slot in slots]  # type: ignore[union-attr]
        length = beginning(prompts) if self._large else 0
        if not length:
            return
        self._bring(slots, self._running)
        _, count = self._passes.over([prompts[0][:length]], [0], self._running)
        first, *others = range(self._running, self._running + len(slots))
        self._passes.cache.copy(others, [first] * len(others), length)
        for slot in slots:
            slot.length = length
        self.passes, self.prefill_tokens = self.passes + 1, self.prefill_tokens + count
        self.cached_tokens -= length  # of one slot: they are not counted again below

    @torch.inference_mode()
    def _advance(self) -> None:
        if self._running:
            self._sample(0, self._running, self._forward(0, self._running))

    def _sample(self, low: int, high: int, logits: torch.Tensor) -> None:
        slots = self._slots[low:high]
        temperature, top_p = self._sampling_rows(low, high)
        chance = [s.request.uniforms[len(s.request.logprobs)] for s in slots]  # type: ignore[union-attr]
        uniform = torch.tensor(chance, dtype=torch.float64, device=self.device)
        tokens, logprobs = draw(logits, temperature, top_p, uniform)
        self._drawn = tokens[:, None] if low == 0 and high == self._running else None
        ended = []
        for row, (slot, token, logprob) in enumerate(zip(slots, tokens.tolist(), logprobs.tolist(), strict=True)):
            if self._append(slot, token, logprob):
                ended.append(low + row)
        if ended:
            self._retire(set(ended))

    def _forward(self, low: int, high: int) -> torch.Tensor:
        """Compute the missing keys of slots ``[low, high)``; return the logits after each slot's last token."""
        slots = self._slots[low:high]
        decoding = low == 0 and high == self._running
        if decoding and self._drawn is not None:
            logits, count = self._passes.onward(self._drawn)
        else:
            tokens = [slot.request.tokens for slot in slots]  # type: ignore[union-attr]
            logits, count = self._passes.over(tokens, [slot.length for slot in slots], low)
        for slot in slots:
            slot.length = len(slot.request.tokens)  # type: ignore[union-attr]
        self.passes += 1
        if decoding:
            self.decode_tokens += count
        else:
            self.prefill_tokens += count
        return logits

    def _sampling_rows(self, low: int, high: int) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Return temperature and top-p per row, each None if all are 1; kept until the batch changes."""
        if low == 0 and self._rows is not None:
            return self._rows
        samplings = [slot.request.sampling for slot in self._slots[low:high]]  # type: ignore[union-attr]
        temperature, top_p = (
            torch.tensor(values, device=self.device) if any(value != 1 for value in values) else None
            for values in ([s.temperature for s in samplings], [s.top_p for s in samplings])
        )
        self._rows = (temperature, top_p) if low == 0 and high == self._running else None
        return temperature, top_p

    def _append(self, slot: Slot, token: int, logprob: float) -> bool:
        request = slot.request
        assert request is not None
        request.tokens.append(token)
        request.logprobs.append(logprob)
        if not request.starts or request.starts[-1][0] != self.version:
            request.starts.append((self.version, len(request.logprobs) - 1))
        self.sampled_tokens += 1
        enough = request.on_tokens is not None and request.on_tokens([token], [logprob])
        stopped = bool(enough) or token in request.stop
        if not (stopped or len(request.logprobs) >= request.limit):
            return request.future.done()  # canceled by its caller
        if not request.future.done():
            request.future.set_result(completion_of(request, "stop" if stopped else "length"))
        return True

    def _retire(self, ended: set[int]) -> None:
        """Free the slots ``ended`` for later turns, and move the others together."""
        self._clock += 1
        for index in ended:
            slot = self._slots[index]
            assert slot.request is not None
            slot.tokens = tuple(slot.request.tokens[: slot.length])
            slot.request, slot.last_used = None, self._clock
        alive = [slot for index, slot in enumerate(self._slots[: self._running]) if index not in ended]
        self._bring(alive, 0)
        self._running, self._rows, self._drawn = len(alive), None, None

    @torch.inference_mode()
    def _bring(self, slots: list[Slot], low: int) -> None:
        place = {slot: index for index, slot in enumerate(self._slots)}
        length = max(slot.length for slot in self._slots)
        for a, b in self._passes.cache.gather([place[slot] for slot in slots], low, length):
            self._slots[a], self._slots[b] = self._slots[b], self._slots[a]
        self._rows = None
