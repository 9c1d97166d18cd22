"""What every inference engine offers (tokens in, tokens out, new weights in place), and how one is described."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

#: Weights by Hugging Face parameter name; a tied head appears once, under the embedding's name.
Weights = Mapping[str, "torch.Tensor"]
#: See `least_room`.
LEAST_ROOM = 16
#: How weights may travel.
WAYS = ("object_store", "nccl", "ipc")
#: Called on the event loop with token ids and log-probabilities as they are sampled, in order, each once; where
#: `Extras.top_logprobs` asks for them, also with the likeliest tokens of each place.
OnTokens = Callable[..., None]
#: The likeliest tokens of one place and their log-probabilities, the likeliest first.
Likeliest = tuple[tuple[int, float], ...]
#: (version of the weights, tokens sampled by them), in order.
VersionSpans = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Extras:
    """What only a server asks for and only vLLM does. Training never does: its log-probabilities are the policy's own.

    Attributes:
        structure: a structural tag (xgrammar's JSON) that the response must fit; empty: any text. Log-probabilities
            are those among the tokens that fit.
        top_logprobs: how many of the likeliest tokens are returned for each place, 20 at most.
        top_k: sample among so many of the likeliest tokens; 0: all.
        min_p: sample among the tokens with at least this share of the likeliest one's probability.
        presence_penalty, frequency_penalty, repetition_penalty: as in OpenAI's API and in vLLM.
        logit_bias: (token id, what is added to its logit).
        adapter: name of a LoRA adapter of `EngineSettings.adapters`; empty: the base alone.
    """

    structure: str = ""
    top_logprobs: int = 0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    adapter: str = ""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample one response.

    Attributes:
        max_tokens: response budget in tokens.
        temperature: logits are divided by it; 0 is greedy.
        top_p: nucleus mass; log-probabilities are renormalized over the nucleus when below 1.
        stop_token_ids: sampling one of these ends the response; the token is part of the response.
        seed: stream of this request; the same seed, prompt and weights give the same tokens.
        extras: see `Extras`; None: nothing.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    stop_token_ids: tuple[int, ...] = ()
    seed: int | None = None
    extras: Extras | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel between actors as a plain tuple: a dataclass's own way takes five times as long."""
        plain = (self.max_tokens, self.temperature, self.top_p, self.stop_token_ids, self.seed)
        return Sampling, plain if self.extras is None else (*plain, self.extras)


def least_room(max_response_tokens: int) -> int:
    """Return the tokens below which the rest of a context is too little to begin a response in.

    A response of two or three tokens is no action: it would be judged as the policy's mistake, and trained on.
    """
    return max(1, min(LEAST_ROOM, max_response_tokens // 4))


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled response.

    Attributes:
        token_ids: sampled ids, the stop token included when one was sampled.
        logprobs: log-probability of each id under the distribution it was drawn from
            (after temperature and top-p), the same length as ``token_ids``.
        policy_version: of the weights that sampled the first token (0 before any ``sync``), noted at that moment.
        call: its name in the pool, given by the recorder; 0: it is not recorded.
        version_spans: which weights sampled how many tokens, where weights changed in between (``weight_switch=keep``);
            empty: one version sampled all.
        likeliest: of each place, where `Extras.top_logprobs` asked for them.
    """

    token_ids: list[int]
    logprobs: list[float]
    policy_version: int
    finish_reason: str
    call: int = 0
    version_spans: VersionSpans = ()
    likeliest: Sequence[Likeliest] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """See `Sampling.__reduce__`; engines name no calls, and rarely switch weights inside of one."""
        plain = (self.token_ids, self.logprobs, self.policy_version, self.finish_reason)
        rare = (0, self.version_spans, self.likeliest) if self.version_spans or self.likeliest else ()
        return Completion, (*plain, *rare)


def stamp(spans: Iterable[tuple[int, int]]) -> tuple[int, VersionSpans]:
    """Return `Completion.policy_version` and `Completion.version_spans` of tokens that came in these spans."""
    joined: list[tuple[int, int]] = []
    for version, count in spans:
        if joined and joined[-1][0] == version:
            joined[-1] = (version, joined[-1][1] + count)
        elif count:
            joined.append((version, count))
    return joined[0][0], tuple(joined) if len(joined) > 1 else ()


class EngineError(RuntimeError):
    """An engine died or did not answer in time; the message names it and what it was doing."""


class RequestRefused(EngineError):
    """An engine cannot do what a request asks for, however often it is asked."""


def check_completion(completion: Completion, budget: int) -> None:
    """Refuse what would corrupt training: importance ratios are built on these numbers.

    Raises:
        EngineError: what is wrong with it.
    """
    tokens, logprobs = len(completion.token_ids), completion.logprobs
    if not 0 < tokens <= budget or len(logprobs) != tokens:
        raise EngineError(f"engine returned {tokens} tokens and {len(logprobs)} logprobs for max_tokens={budget}")
    if not all(math.isfinite(value) and value <= 1e-3 for value in logprobs):
        raise EngineError("engine returned a log-probability that is not a finite number <= 0")
    spans = completion.version_spans
    if spans and (sum(count for _, count in spans) != tokens or spans[0][0] != completion.policy_version):
        raise EngineError(
            f"engine returned {tokens} tokens of version {completion.policy_version} with version spans {spans}"
        )


class Engine(Protocol):
    """The one interface. Many coroutines may await `generate` at the same time; the engine batches."""

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """Sample a response to ``prompt_ids``."""

    async def sync(self, weights: Weights, version: int) -> None:
        """Replace the weights in place; later samples carry ``version`` and read no key of old weights.

        `EngineSettings.weight_switch` says what happens to calls that run.

        Raises:
            EngineError: the weights cannot be loaded (torch: the old ones stay; vLLM: it may hold a part of them, and
                answers no call until a whole sync succeeds); or (``wait``) running calls do not end in time, and
                sampling continues with the old weights.
        """

    def close(self) -> None:
        """Free memory and processes."""


class StreamingEngine(Engine, Protocol):
    """An engine in this process, which passes tokens on while it samples."""

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, on_tokens: OnTokens | None = None
    ) -> Completion:
        """Sample a response to ``prompt_ids``; ``on_tokens`` gets its tokens before the whole is returned."""


@dataclass(frozen=True)
class NoEngine:
    """Stands in for an engine that cannot be built; every call raises the reason."""

    reason: str

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        raise EngineError(self.reason)

    async def sync(self, weights: Weights, version: int) -> None:
        raise EngineError(self.reason)

    def close(self) -> None:
        """There is nothing to free."""


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter over an engine's base (`rl_agents.inference.adapters`).

    Attributes:
        name: under which requests ask for it.
        folder: of adapter_config.json and adapter_model.safetensors.
        label: how answers name it.
    """

    name: str
    folder: str
    rank: int
    label: str = ""


@dataclass(frozen=True)
class EngineSettings:
    """How to build one engine.

    Attributes:
        model_dir: folder with a Hugging Face checkpoint (config.json and weights); no tokenizer is needed.
        kind: ``torch`` or ``vllm`` (see `rl_agents.inference.select.resolve_engine` for ``auto``).
        mode: for vLLM: ``inprocess`` (one process, light: CPU), ``inline`` (as that, without a thread of its own: for
            an env runner's process) or ``async`` (a core process and ``tensor_parallel`` workers: GPU).
        max_model_len: longest prompt plus response, in tokens.
        max_batch: most requests decoded together; more wait.
        kv_cache_gb: memory for vLLM's KV cache in GiB; None: 0.5 on CPU, or what one context of ``max_model_len``
            needs, and on a GPU vLLM's own share of the memory. The torch engine's cache grows up to 2 GiB.
        tensor_parallel: GPUs for one engine (``async`` only).
        seed: seeds the requests that bring none of their own.
        weight_switch: what a sync does to calls that run. ``wait`` lets them end and holds new ones back meanwhile:
            each call has one version. ``keep`` loads at once; they continue, their keys are computed again, and
            `Completion.version_spans` says which weights sampled what (vLLM: from 0.32; none before).
        switch_timeout_s: seconds that ``wait`` waits for running calls before the sync fails and names them.
        weight_transfer: how new weights reach a vLLM engine: ``object_store``, ``nccl`` or ``ipc``.
        adapters: LoRA adapters that requests may ask for (vLLM). The weights of such an engine are not replaced.
        vllm_args: further fields of vLLM's ``EngineArgs``; they win over ours.
    """

    model_dir: str
    kind: str = "torch"
    mode: str = "inprocess"
    dtype: str = "float32"
    max_model_len: int = 1024
    max_batch: int = 128
    kv_cache_gb: float | None = None
    tensor_parallel: int = 1
    seed: int = 0
    threads: int = 1
    weight_switch: str = "wait"
    switch_timeout_s: float = 120.0
    weight_transfer: str = "object_store"
    adapters: tuple[Adapter, ...] = ()
    vllm_args: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in ("torch", "vllm") or self.mode not in ("inprocess", "inline", "async"):
            raise ValueError(f"no engine of kind {self.kind!r} and mode {self.mode!r}")
        if self.weight_switch not in ("wait", "keep"):
            raise ValueError(f"weight_switch={self.weight_switch!r}: valid: wait, keep")
        if self.tensor_parallel > 1 and (self.kind, self.mode) != ("vllm", "async"):
            raise ValueError("tensor_parallel > 1 needs kind='vllm' and mode='async'")
        if self.weight_transfer not in WAYS or (self.kind == "torch" and self.weight_transfer != "object_store"):
            raise ValueError(f"no engine of kind {self.kind!r} takes weights by {self.weight_transfer!r}")
        if self.adapters and self.kind != "vllm":
            raise ValueError(f"no engine of kind {self.kind!r} holds adapters")
        if self.max_model_len < 2 or self.max_batch < 1:
            raise ValueError(f"max_model_len {self.max_model_len} must be >= 2 and max_batch {self.max_batch} >= 1")
