"""Log-probabilities through the vocabulary head in pieces, because logits of a large vocabulary need much memory.

S scored tokens and a vocabulary of V need `LOGIT_BYTES`·S·V bytes: 2.2 GB for 1,024 tokens and 152 k words. In pieces
they need at most `LOGITS_AT_ONCE`, and the backward pass computes each piece again.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rl_agents.losses import full_kl, log_distribution, token_entropy

#: Bytes per scored token and word: the logit in bfloat16, and float32 copies for the backward pass.
LOGIT_BYTES = 14
#: Bytes of logits in memory, at most.
LOGITS_AT_ONCE = 2 << 30
#: More scored tokens than a micro-batch has; if as many fit, pieces are never needed.
PLENTY = 1 << 15
#: Token ids on which head and model are compared.
PROBE = ((0, 1),)


def shaped_head(lm: Any) -> Callable[[Tensor], Tensor]:
    """Return hidden states -> logits: the vocabulary head and a model's transformation of its outputs.

    Some models scale them (Cohere: z s, Granite: z / s), some cap them (Gemma 2: c tanh(z / c)).

    Args:
        lm: a causal language model of transformers, without adapters.
    """
    config, head = lm.config.get_text_config(), lm.get_output_embeddings()
    scale = (getattr(config, "logit_scale", None) or 1.0) / (getattr(config, "logits_scaling", None) or 1.0)
    cap = getattr(config, "final_logit_softcapping", None)

    def logits(states: Tensor) -> Tensor:
        plain: Tensor = head(states)
        if scale != 1.0:
            plain = plain * scale
        return cap * torch.tanh(plain / cap) if cap else plain

    return logits


def piece_size(lm: Any) -> int | None:
    """Return the number of tokens of a piece; None: pieces save nothing, or `shaped_head` does not give the logits.

    Args:
        lm: a causal language model of transformers, without adapters.
    """
    size = max(1, LOGITS_AT_ONCE // (LOGIT_BYTES * lm.config.get_text_config().vocab_size))
    return size if size < PLENTY and exact_head(lm) else None


def exact_head(lm: Any) -> bool:
    """Return whether `shaped_head` gives a model's logits of two tokens."""
    if lm.get_output_embeddings() is None:
        return False
    with torch.no_grad():
        ids = torch.tensor(PROBE, device=lm.device)
        whole = lm(input_ids=ids, use_cache=False).logits
        apart = shaped_head(lm)(lm.base_model(input_ids=ids, use_cache=False).last_hidden_state)
    return torch.allclose(whole.float(), apart.float(), rtol=1e-3, atol=1e-3)


def score_in_pieces(
    head: Callable[[Tensor], Tensor],
    hidden: Tensor,
    source: Tensor,
    targets: Tensor,
    temperature: float,
    entropy_gradient: bool,
    size: int,
    teacher: tuple[Callable[[Tensor], Tensor], Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """Compute log-probability and entropy of each scored token, and the divergence from a teacher's distribution.

    Args:
        head: of the model (`shaped_head`).
        hidden: [k, width], states that predict a token.
        source: [m], index of the state that predicts each scored token.
        targets: [m], ids of the scored tokens.
        temperature: T of log softmax(z / T).
        entropy_gradient: the entropy carries a gradient.
        size: number of states that go through the head at once.
        teacher: its head, and its states [m, width] that predict each scored token.

    Returns:
        log p(target) [m], H [m] and, with a teacher, KL(p‖p_T) [m]: float32 at least, equal to those without pieces
        except for rounding.
    """

    def piece(states: Tensor, of: Tensor, words: Tensor, read: Tensor | None) -> tuple[Tensor, ...]:
        log_probs = log_distribution(head(states), temperature)
        with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
            entropy = token_entropy(log_probs)[of]
        if teacher is None or read is None:
            return log_probs[of, words], entropy
        with torch.no_grad():
            theirs = log_distribution(teacher[0](read), temperature)
        return log_probs[of, words], entropy, full_kl(log_probs[of], theirs)

    order = torch.argsort(source, stable=True)
    ordered, words = source[order], targets[order]
    starts = torch.arange(0, len(hidden) + size, size, device=source.device)
    ends = torch.searchsorted(ordered, starts).tolist()
    parts = []
    for first, (low, high) in zip(range(0, len(hidden), size), pairwise(ends), strict=False):
        read = teacher[1][order[low:high]] if teacher else None
        arguments = hidden[first : first + size], ordered[low:high] - first, words[low:high], read
        again = torch.is_grad_enabled()
        options = {"use_reentrant": False, "preserve_rng_state": False}
        parts.append(checkpoint(piece, *arguments, **options) if again else piece(*arguments))
    back = torch.argsort(order)
    return tuple(torch.cat(column)[back] for column in zip(*parts, strict=True))
