"""Rows packed into one sequence in which every shared token is forwarded once, and attention that separates the rows.

A language model mixes tokens only in its attention. So the tokens of a trie pass all other layers as one sequence, each
once, and attention is computed branch by branch: a branch's own tokens against keys and values of its whole path.
`transformers` registers attention functions by name; a `Packed` batch is a keyword argument of the forward pass. It is
one autograd graph: the gradient of a shared token is the sum over its rows for any loss, and sharding, adapters,
precision and gradient checkpointing work as in any forward pass.

Rows without a common prefix can be packed, too: then a branch is a row, and only attention is padded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_agents.errors import InputError
from rl_agents.learner.prefix_sharing import Walk, walk

#: Name of the attention function, for `transformers`.
NAME = "rl_agents_shared_rows"
#: Maximum ratio of padded to real pairs of query and key in a call, and number of pairs that cost as much as a call.
PADDING, CALL = 1.5, 8192


@dataclass(frozen=True, slots=True)
class Branches:
    """Branches of similar size whose attention is one call: n branches, s own tokens, l tokens of path.

    Attributes:
        queries: [n, s] positions in the packed sequence.
        keys: [n, l] positions, from the first token of the path.
        mask: [n, 1, s, l], true where a query sees a key; None: causal, because the whole path is the branch's own.
    """

    queries: Tensor
    keys: Tensor
    mask: Tensor | None


@dataclass(slots=True)
class Packed:
    """A padded batch [B, L] as one sequence of its n different prefixes.

    Attributes:
        input_ids, position_ids: [1, n].
        restored: [n], position of each token's output in the concatenated outputs of the branches.
        read: [k], positions whose hidden state predicts a scored token.
        source: [m], index in ``read`` for every scored token of the batch, in the order of ``torch.nonzero``.
        layers: number of attention layers that have received this batch.
    """

    input_ids: Tensor
    position_ids: Tensor
    branches: list[Branches]
    restored: Tensor
    read: Tensor
    source: Tensor
    layers: int = 0


def pack_rows(ids: Tensor, mask: Tensor, width: float, *, share: bool = True) -> Packed:
    """Pack a right-padded batch, of each row the tokens before its last scored one.

    Args:
        ids, mask: [B, L]; mask is 1 where a token is scored, never at the first.
        width: width of the network's residual stream, for `walk`.
        share: forward common prefixes once; false: all tokens of all rows.
    """
    tokens, scored = ids.cpu().numpy(), mask.cpu().numpy() > 0
    ends = np.where(scored.any(1), scored.shape[1] - 1 - scored[:, ::-1].argmax(1), 0)
    ends[0] = max(ends[0], 1)  # at least one token is forwarded
    rows = [line[:end] for line, end in zip(tokens, ends, strict=True)]
    trie = walk(rows, width) if share else Walk(list(range(len(rows))), [0] * len(rows), [len(row) for row in rows])
    paths = _paths(trie)
    owned = [rows[row][common:] for row, common in zip(trie.order, trie.shared, strict=True)]
    positions = [np.arange(common, len(rows[row])) for row, common in zip(trie.order, trie.shared, strict=True)]
    branches, restored = _branches(trie, paths)
    predicting = np.concatenate([paths[row][np.flatnonzero(line[1:])] for row, line in enumerate(scored)])
    read, source = np.unique(predicting, return_inverse=True)

    def here(array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array.astype(np.int64)).to(ids.device)

    return Packed(
        input_ids=here(np.concatenate(owned))[None],
        position_ids=here(np.concatenate(positions))[None],
        branches=[_call(group, trie, paths, here) for group in branches],
        restored=here(restored),
        read=here(read),
        source=here(source),
    )


def _paths(trie: Walk) -> list[NDArray[np.int64]]:
    paths, previous, size = [np.zeros(0, np.int64)] * len(trie.order), np.zeros(0, np.int64), 0
    for row, common, length in zip(trie.order, trie.shared, trie.lengths, strict=True):
        previous = np.concatenate([previous[:common], np.arange(size, size + length - common)])
        paths[row], size = previous, size + length - common
    return paths


def _branches(trie: Walk, paths: list[NDArray[np.int64]]) -> tuple[list[list[int]], NDArray[np.int64]]:
    """Group positions of the walk into calls of similar size; return them and `Packed.restored`."""
    size = [length - common for length, common in zip(trie.lengths, trie.shared, strict=True)]
    places = [place for place in range(len(size)) if size[place]]
    places.sort(key=lambda place: (trie.shared[place] > 0, trie.lengths[place], size[place]), reverse=True)
    groups: list[list[int]] = []
    pairs = widest = 0
    for place in places:
        mine, length = size[place] * trie.lengths[place], trie.lengths[groups[-1][0]] if groups else 0
        padded = max(widest, size[place]) * length * (len(groups[-1]) + 1 if groups else 0)
        same = bool(groups) and (trie.shared[groups[-1][0]] > 0) == (trie.shared[place] > 0)
        if not same or padded > PADDING * (pairs + mine) + CALL:
            groups.append([])
            pairs = widest = 0
        groups[-1].append(place)
        pairs, widest = pairs + mine, max(widest, size[place])
    restored, start = np.zeros(sum(size), np.int64), 0
    for group in groups:
        longest = max(size[place] for place in group)
        for line, place in enumerate(group):
            own = paths[trie.order[place]][trie.shared[place] :]
            restored[own] = start + line * longest + np.arange(len(own))
        start += longest * len(group)
    return groups, restored


def _call(group: list[int], trie: Walk, paths: list[NDArray[np.int64]], here: Any) -> Branches:
    common = np.array([trie.shared[place] for place in group])
    longest = max(trie.lengths[place] for place in group)
    widest = max(trie.lengths[place] - trie.shared[place] for place in group)
    queries, keys = np.zeros((len(group), widest), np.int64), np.zeros((len(group), longest), np.int64)
    for line, (place, start) in enumerate(zip(group, common, strict=True)):
        path = paths[trie.order[place]]
        keys[line, : len(path)], queries[line, : len(path) - start] = path, path[start:]
    if not common.any():
        return Branches(here(queries), here(keys), None)
    last = common[:, None] + np.arange(widest)
    seen = here(np.arange(longest))[None, None, None] <= here(last)[:, None, :, None]
    return Branches(here(queries), here(keys), seen)


def shared_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    shared_rows: Packed | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute scaled dot-product attention: of a `Packed` batch branch by branch, of any other batch causal.

    Args:
        query, key, value: [1, heads, n, width of a head]; of ordinary batches [B, heads, L, ...].

    Returns:
        [1, n, heads, width of a head] and no weights, the format of `transformers`.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if shared_rows is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)  # type: ignore[return-value]
    shared_rows.layers += 1
    outputs = []
    for call in shared_rows.branches:
        parts = [_taken(query, call.queries), _taken(key, call.keys), _taken(value, call.keys)]
        output, _ = sdpa_attention_forward(module, *parts, call.mask, **kwargs)
        outputs.append(output.flatten(0, 1))
    return torch.cat(outputs).index_select(0, shared_rows.restored)[None], None


def _taken(tensor: Tensor, places: Tensor) -> Tensor:
    lines = tensor[0].transpose(0, 1)
    return lines.index_select(0, places.flatten()).unflatten(0, places.shape).transpose(1, 2)


def enable(model: Any, name: str, longest: int, asked: str = "prefix_sharing") -> None:
    """Set a model's attention to `shared_attention`, which gives the same results for ordinary batches.

    Args:
        model: of `transformers`, or with adapters around it.
        longest: maximum number of tokens of a row.
        asked: the key that requests it, for the error.

    Raises:
        InputError: its layers are not plain, dense attention.
    """
    if reason := unshareable(model, longest):
        raise InputError(f"{asked}=true with model={name}: {reason}; set {asked}=false")
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, shared_attention)
    model.set_attn_implementation(NAME)


def unshareable(model: Any, longest: int) -> str:
    """Return why a model's rows cannot be packed; empty if they can."""
    config = model.config
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    window = getattr(config, "sliding_window", None)
    other = sorted(kinds - {"full_attention", "sliding_attention"})
    if model._is_stateful or other:
        return f"{config.model_type} has layers with a state ({', '.join(other) or 'recurrent'}), not attention only"
    if window is not None and window < longest:
        return f"{config.model_type} sees {window} tokens back (sliding_window) and rows have up to {longest}"
    if not model._supports_attention_backend or config._attn_implementation not in ("sdpa", NAME):
        return f"{config.model_type} computes attention in its own way, not by PyTorch's"
    return ""


def check_seen(packed: Packed, model: Any) -> None:
    """Check that every layer's attention separated the rows.

    Raises:
        RuntimeError: the model does not pass its keyword arguments to all layers.
    """
    if packed.layers < model.config.num_hidden_layers:
        raise RuntimeError(
            f"{packed.layers} of {model.config.num_hidden_layers} layers of {model.config.model_type} received the "
            "packed rows; set prefix_sharing=false sequence_packing=false"
        )
