"""Log-probabilities and entropies of rows under a causal language model: padded, packed, and with logits in pieces."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from rl_agents.learner.chunked_logprobs import score_in_pieces, shaped_head
from rl_agents.learner.prefix_attention import Packed, check_seen
from rl_agents.losses import log_distribution, token_entropy

Scores = dict[str, Tensor]


def score_rows(
    lm: Any, batch: dict[str, Any], piece: int | None = None, precision: AbstractContextManager[Any] | None = None,
    *, adapters: bool = False,
) -> Scores:  # fmt: skip
    """Score the tokens of a right-padded batch: log p(input_ids[t] | input_ids[<t]), and the distribution's entropy.

    Args:
        lm: a causal language model of transformers.
        batch: ``input_ids`` [B, L] and ``mask`` [B, L], 1 where a token is scored, as from `collate`; ``temperature``
            (default 1); ``packed`` and ``entropy_gradient`` as in `CausalLMModule._forward`.
        piece: number of states that go through the vocabulary head at once; None: all.
        precision: context of the computation; None: as the weights are.
        adapters: ``lm`` is a model with adapters around one.

    Returns:
        ``logprobs`` and ``entropy`` [B, L], 0 where the mask is 0.
    """
    batch, precision = {"temperature": 1.0, **batch}, precision or nullcontext()
    mask, packed = batch["mask"], batch.get("packed")
    # Only positions that some row scores go through the vocabulary head: it dominates small models' cost.
    positions = torch.nonzero(mask[:, 1:].any(0)).squeeze(1)
    distributions = len(packed.read) if packed else len(mask) * len(positions)
    if batch.get("teacher") or (piece is not None and distributions > piece):
        return _in_pieces(lm, batch, piece or distributions, precision, adapters)
    if packed:
        return _packed(lm, batch, packed, precision)
    return _padded(lm, batch, positions, precision)


def _padded(lm: Any, batch: dict[str, Any], positions: Tensor, precision: AbstractContextManager[Any]) -> Scores:
    ids, mask = batch["input_ids"], batch["mask"]
    with precision:
        logits = lm(input_ids=ids[:, :-1], use_cache=False, logits_to_keep=positions).logits
    log_probs = log_distribution(logits, batch["temperature"])
    targets = ids[:, 1:][:, positions].unsqueeze(-1)
    kept = mask[:, 1:][:, positions]
    logprobs = torch.zeros(mask.shape, dtype=log_probs.dtype, device=log_probs.device)
    logprobs[:, positions + 1] = log_probs.gather(-1, targets).squeeze(-1) * kept
    with torch.set_grad_enabled(bool(batch.get("entropy_gradient")) and torch.is_grad_enabled()):
        entropy = torch.zeros_like(logprobs)
        entropy[:, positions + 1] = token_entropy(log_probs) * kept
    return {"logprobs": logprobs, "entropy": entropy}


def _packed(lm: Any, batch: dict[str, Any], packed: Packed, precision: AbstractContextManager[Any]) -> Scores:
    """As `_padded`; a distribution that several rows share is computed once."""
    rows, columns = torch.nonzero(batch["mask"][:, 1:], as_tuple=True)
    with precision:
        logits = lm(
            input_ids=packed.input_ids,
            position_ids=packed.position_ids,
            use_cache=False,
            logits_to_keep=packed.read,
            shared_rows=packed,
        ).logits[0]
    check_seen(packed, lm)
    log_probs = log_distribution(logits, batch["temperature"])
    logprobs = log_probs[packed.source, batch["input_ids"][rows, columns + 1]]
    with torch.set_grad_enabled(bool(batch.get("entropy_gradient")) and torch.is_grad_enabled()):
        entropy = token_entropy(log_probs)[packed.source]
    empty = torch.zeros(batch["mask"].shape, dtype=log_probs.dtype, device=log_probs.device)
    places = (rows, columns + 1)
    return {"logprobs": empty.index_put(places, logprobs), "entropy": empty.index_put(places, entropy)}


def _in_pieces(
    lm: Any, batch: dict[str, Any], piece: int, precision: AbstractContextManager[Any], adapters: bool
) -> Scores:
    """As `_padded` and `_packed`, without all logits in memory."""
    ids, mask = batch["input_ids"], batch["mask"]
    rows, columns = torch.nonzero(mask[:, 1:], as_tuple=True)
    head, hidden, source = scored_states(lm, batch, precision, adapters)
    with precision:
        found = score_in_pieces(
            head, hidden, source, ids[rows, columns + 1], batch["temperature"], bool(batch.get("entropy_gradient")),
            piece, batch.get("teacher"),
        )  # fmt: skip
    empty, places = found[0].new_zeros(mask.shape), (rows, columns + 1)
    return {name: empty.index_put(places, values) for name, values in zip(("logprobs", "entropy", "kl"), found)}  # noqa: B905


def scored_states(
    lm: Any, batch: dict[str, Any], precision: AbstractContextManager[Any], adapters: bool
) -> tuple[Callable[[Tensor], Tensor], Tensor, Tensor]:
    """Return the vocabulary head, hidden states, and the index of the one that predicts each scored token."""
    plain, packed = lm.get_base_model() if adapters else lm, batch.get("packed")
    with precision:
        if packed:
            hidden, source = packed_states(plain.base_model, packed, seen_by=lm)[packed.read], packed.source
        else:
            rows, columns = torch.nonzero(batch["mask"][:, 1:], as_tuple=True)
            states = plain.base_model(input_ids=batch["input_ids"][:, :-1], use_cache=False).last_hidden_state
            hidden, source = states[rows, columns], torch.arange(len(rows), device=rows.device)
    return shaped_head(plain), hidden, source


def packed_states(backbone: nn.Module, packed: Packed, seen_by: nn.Module) -> Tensor:
    """Return the last hidden states of packed rows, [tokens, width]."""
    hidden: Tensor = backbone(
        input_ids=packed.input_ids, position_ids=packed.position_ids, use_cache=False, shared_rows=packed
    ).last_hidden_state[0]
    check_seen(packed, seen_by)
    return hidden
