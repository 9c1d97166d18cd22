"""The interface of inference engines (tokens in, tokens out, new weights in place), and their settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch

#: Weights by Hugging Face parameter name; a tied head appears once, under the embedding's name.
Weights = Mapping[str, "torch.Tensor"]
#: See `least_room`.
LEAST_ROOM = 16
#: Maximum bytes of keys and values in one torch engine; while the cache grows, half as much more.
CACHE_BYTES = 2 << 30
#: Called on the event loop with token ids and log-probabilities as they are sampled, in order, each once. If
#: `Extras.top_logprobs` is set, also with the likeliest tokens of each position. A true result ends the response.
OnTokens = Callable[..., object]
#: The likeliest tokens of one position and their log-probabilities, the likeliest first.
Likeliest = tuple[tuple[int, float], ...]
#: (version of the weights, tokens sampled by them), in order.
VersionSpans = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Extras:
    """Sampling options of servers, which only vLLM supports. Training never uses them.

    Attributes:
        structure: a structural tag (xgrammar's JSON) that the response must fit; empty: any text. Log-probabilities
            are those among the tokens that fit.
        top_logprobs: number of likeliest tokens to return for each position, at most 20.
        top_k: sample among this many likeliest tokens; 0: all.
        min_p: sample among the tokens with at least this share of the likeliest one's probability.
        presence_penalty, frequency_penalty, repetition_penalty: as in OpenAI's API and in vLLM.
        logit_bias: pairs of a token id and the number added to its logit.
    """

    structure: str = ""
    top_logprobs: int = 0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample one response.

    Attributes:
        max_tokens: response budget in tokens.
        temperature: logits are divided by it; 0 is greedy.
        top_p: nucleus mass; log-probabilities are renormalized over the nucleus when below 1.
        stop_token_ids: sampling one of these ends the response and includes the token.
        seed: of this request; the same seed, prompt and weights give the same tokens.
        extras: see `Extras`; None: none.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    stop_token_ids: tuple[int, ...] = ()
    seed: int | None = None
    extras: Extras | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a plain tuple, which is five times as fast as the dataclass's default."""
        plain = (self.max_tokens, self.temperature, self.top_p, self.stop_token_ids, self.seed)
        return Sampling, plain if self.extras is None else (*plain, self.extras)


def least_room(max_response_tokens: int) -> int:
    """Return the number of tokens that a context must have left for a response to begin.

    A response of two or three tokens is no action. It would count as the policy's mistake in training.
    """
    return max(1, min(LEAST_ROOM, max_response_tokens // 4))


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled response.

    Attributes:
        token_ids: sampled ids, including a sampled stop token.
        logprobs: log-probability of each id under the distribution it was drawn from
            (after temperature and top-p), the same length as ``token_ids``.
        policy_version: of the weights that sampled the first token; 0 before any `load_weights`.
        call: its name in the pool, given by the recorder; 0: it is not recorded.
        version_spans: which weights sampled how many tokens, if they changed in between (``weight_switch=keep``);
            empty: one version sampled all.
        likeliest: of each position, if `Extras.top_logprobs` is set.
    """

    token_ids: list[int]
    logprobs: list[float]
    policy_version: int
    finish_reason: str
    call: int = 0
    version_spans: VersionSpans = ()
    likeliest: Sequence[Likeliest] = ()

    def until(self, count: int) -> Completion:
        """Return the first ``count`` tokens as a response that ends with them."""
        whole = self.version_spans or ((self.policy_version, count),)
        version, spans = stamp([(version, 1) for version, number in whole for _ in range(number)][:count])
        tokens, logprobs, likeliest = self.token_ids[:count], self.logprobs[:count], self.likeliest[:count]
        return Completion(tokens, logprobs, version, "stop", self.call, spans, likeliest)

    def __reduce__(self) -> tuple[Any, ...]:
        """See `Sampling.__reduce__`. Engines set no ``call`` and rarely switch weights during a response."""
        plain = (self.token_ids, self.logprobs, self.policy_version, self.finish_reason)
        rare = (0, self.version_spans, self.likeliest) if self.version_spans or self.likeliest else ()
        return Completion, (*plain, *rare)


def stamp(spans: Iterable[tuple[int, int]]) -> tuple[int, VersionSpans]:
    """Return `Completion.policy_version` and `Completion.version_spans` for (version, tokens) in order."""
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
    """An engine does not support what a request asks for; a retry does not help."""


def check_completion(completion: Completion, budget: int) -> None:
    """Raise `EngineError` for a completion that would corrupt training, whose importance ratios use these numbers."""
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
    """The interface for sampling. Many coroutines may await `generate` at the same time; the engine batches."""

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """Sample a response to ``prompt_ids``."""

    def close(self) -> None:
        """Free memory and processes."""


@runtime_checkable
class StreamingEngine(Engine, Protocol):
    """An engine in this process: it streams tokens, and its weights can be replaced."""

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, on_tokens: OnTokens | None = None
    ) -> Completion:
        """Sample a response to ``prompt_ids``; ``on_tokens`` receives its tokens before the response is complete."""

    async def load_weights(self, weights: Weights, version: int) -> None:
        """Replace the weights in place; later samples carry ``version`` and use no cached key of old weights.

        `EngineSettings.weight_switch` says what happens to running calls.

        Raises:
            EngineError: the weights cannot be loaded (torch keeps the old ones; vLLM may hold a part of the new ones,
                and answers no call until all are loaded); or (``wait``) running calls do not end in time, and
                sampling continues with the old weights.
        """


@dataclass(frozen=True)
class EngineSettings:
    """How to build one engine.

    Attributes:
        model_dir: folder with a Hugging Face checkpoint (config.json and weights); no tokenizer is needed.
        kind: a name of `rl_agents.inference.engines.ENGINES`.
        build: of its row, for processes without the plugin that added it; empty: looked up.
        mode: for vLLM: ``inprocess`` (one process, light, for CPUs) or ``async`` (a core process and
            ``tensor_parallel`` workers, for GPUs).
        max_model_len: maximum tokens of prompt and response.
        max_batch: maximum requests decoded together; more wait.
        kv_cache_gb: memory for vLLM's KV cache in GiB. None: on a CPU 0.5, or more if one context of ``max_model_len``
            needs it; on a GPU vLLM's own share of the memory. The torch engine's cache grows up to 2 GiB.
        gpu_share: the share of a GPU that it has, if below 1.
        tensor_parallel: GPUs for one engine (``async`` only).
        seed: for requests without a seed.
        weight_switch: what a sync does to running calls. ``wait`` lets them end and holds back new ones meanwhile, so
            that each call has one version. ``keep`` loads at once. Running calls continue, their keys are computed
            again, and `Completion.version_spans` says which weights sampled which tokens (vLLM from 0.32).
        switch_timeout_s: seconds that ``wait`` waits for running calls before the sync fails.
        sleeps: it is to free its memory on request (``engine_sleep``).
        guided: it is to support `Extras.structure`.
    """

    model_dir: str
    kind: str = "torch"
    build: str = ""
    mode: str = "inprocess"
    dtype: str = "float32"
    max_model_len: int = 1024
    max_batch: int = 128
    kv_cache_gb: float | None = None
    gpu_share: float = 0.0
    tensor_parallel: int = 1
    seed: int = 0
    threads: int = 1
    weight_switch: str = "wait"
    switch_timeout_s: float = 120.0
    sleeps: bool = False
    guided: bool = False
