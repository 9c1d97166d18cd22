"""Rows one behind another in place of padding, and selective recompute: equal to flat rows; the kernel by contract."""

from __future__ import annotations

import inspect
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_learner_group import random_rows
from test_networks import build, needs_peft, policy, with_adapters
from test_prefix_attention import check_equal, outcome, plain_dir, trie_batch
from torch.nn.attention import varlen as kernels

from rl_agents.learner import varlen_attention
from rl_agents.learner.batching import packed_batches
from rl_agents.learner.prefix_attention import _paths, pack_rows
from rl_agents.learner.prefix_sharing import WIDE, Walk, walk
from rl_agents.learner.rl_modules import CausalLMModule, ValueModule

__all__ = ["plain_dir"]
SIGNATURE = inspect.signature(kernels.varlen_attn)
EXACT = [(torch.float64, 1e-10), (torch.float32, 2e-6)]


@pytest.mark.parametrize("adapters", [False, pytest.param(True, marks=needs_peft)])
@pytest.mark.parametrize("recompute", ["full", "selective"])
def test_recompute_with_adapters_and_in_pieces(tiny_model_dir: Path, adapters: bool, recompute: str) -> None:
    """Against a plain module, and packed against flat rows of the same one."""
    keys = {"sequence_packing": True, "activation_checkpointing": recompute}
    make = with_adapters if adapters else policy
    plain, module = make(tiny_model_dir), make(tiny_model_dir, **keys)
    assert module.lm.is_gradient_checkpointing and not plain.lm.is_gradient_checkpointing
    module.piece = 9
    check_equal(module, trie_batch(), 5e-6, share=False)
    expected, found = (outcome(each, trie_batch(), packed=False)[1] for each in (plain, module))
    assert (expected - found).norm() < 5e-6 * expected.norm()


@pytest.mark.parametrize(("dtype", "tolerance"), EXACT)
@pytest.mark.parametrize("kind", [CausalLMModule, ValueModule])
def test_selective_recompute_is_exact(plain_dir: Path, kind: Any, dtype: torch.dtype, tolerance: float) -> None:
    results = []
    for recompute in (None, "selective"):
        module = build(kind, model_dir=plain_dir, shared_rows=512, recompute=recompute).to(dtype)
        if kind is ValueModule:
            torch.nn.init.ones_(module.head.weight)
        results.append(outcome(module, trie_batch(), packed=True, share=False)[1])
    assert (results[0] - results[1]).norm() < tolerance * results[0].norm() and results[0].any()


class Products(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts matrix products and calls of attention."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().partition(".")[0]
        self.count += name in ("aten::mm", "aten::addmm") or ("attention" in name and "backward" not in name)
        return func(*args, **(kwargs or {}))


def test_selective_recompute_repeats_narrowing_products_only(tiny_model_dir: Path) -> None:
    """2 layers of 7 products and an attention: `full` repeats all but the last product, `selective` narrow ones."""
    counts = {}
    for recompute in (None, "full", "selective"):
        keys = {"activation_checkpointing": recompute} if recompute else {}
        module, counted = policy(tiny_model_dir, **keys), Products()
        with counted:
            outcome(module, trie_batch(), packed=False)
        counts[recompute] = counted.count
    config = module.lm.config
    narrow = 2 if config.num_key_value_heads < config.num_attention_heads else 0
    assert counts["full"] - counts[None] == 2 * 7
    assert counts["selective"] - counts[None] == 2 * narrow


def test_passes_are_full_and_hold_every_row_once() -> None:
    rows = random_rows(40, 60)
    for limit in (1, 50, 200, 10_000):
        parts = list(packed_batches(rows, limit))
        assert sorted(i for part in parts for i in part) == list(range(40))
        sizes = [sum(len(rows[i]) for i in part) for part in parts]
        assert all(size <= limit or len(part) == 1 for size, part in zip(sizes, parts, strict=True))
        assert limit != 200 or len(parts) == -(-sum(map(len, rows)) // 200), "short rows fill what long ones leave"
    assert list(packed_batches([], 100)) == []


# --- the kernel for GPUs, by contract ------------------------------------------------------------------------------


def stand_in(query: Any, key: Any, value: Any, *given: Any, **keys: Any) -> torch.Tensor:
    """What PyTorch documents of `varlen_attn`, calculated by hand: causal at the lower right, grouped heads."""
    call = SIGNATURE.bind(query, key, value, *given, **keys).arguments
    assert call["window_size"] == (-1, 0) and call["cu_seq_q"].dtype == call["cu_seq_k"].dtype == torch.int32
    ends = list(zip(pairwise(call["cu_seq_q"].tolist()), pairwise(call["cu_seq_k"].tolist()), strict=True))
    assert call["max_q"] == max(b - a for (a, b), _ in ends) and call["max_k"] == max(d - c for _, (c, d) in ends)
    assert ends[-1] == ((ends[-1][0][0], len(query)), (ends[-1][1][0], len(key)))
    heads, outputs = query.shape[1] // key.shape[1], []
    assert call["enable_gqa"] == (heads > 1)
    for (a, b), (c, d) in ends:
        k, v = (tensor[c:d].repeat_interleave(heads, 1) for tensor in (key, value))
        scores = torch.einsum("qhd,khd->hqk", query[a:b], k) * (call["scale"] or query.shape[-1] ** -0.5)
        hidden = torch.arange(d - c) > torch.arange(d - c - (b - a), d - c)[:, None]
        outputs.append(torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v))
    return torch.cat(outputs)


@pytest.mark.parametrize("share", [False, True])
def test_segments_describe_the_same_attention(plain_dir: Path, share: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Own tokens, paths and ends reach the kernel as its interface wants them, for rows and for branches of tries."""
    ids, mask = trie_batch()
    calls = list[int]()

    def attend(*given: Any, **keys: Any) -> torch.Tensor:
        calls.append(1)
        return stand_in(*given, **keys)

    module = build(CausalLMModule, model_dir=plain_dir, shared_rows=512).double()
    expected = outcome(module, (ids, mask), packed=False)
    packed = pack_rows(ids, mask, WIDE, share=share)
    scored = mask.numpy() > 0
    rows = [line[: max(np.flatnonzero(s), default=0)] for line, s in zip(ids.numpy(), scored, strict=True)]
    rows[0] = rows[0] if len(rows[0]) else ids.numpy()[0][:1]
    trie = walk(rows, WIDE) if share else Walk(list(range(len(rows))), [0] * len(rows), [len(row) for row in rows])
    packed.segments = varlen_attention.segments_of(trie, _paths(trie), "cpu")
    assert (packed.segments.keys is None) == (not share)
    monkeypatch.setattr(kernels, "varlen_attn", attend)
    monkeypatch.setattr("rl_agents.learner.prefix_attention.kernel_type", lambda query: query.dtype)
    monkeypatch.setattr("test_prefix_attention.pack_rows", lambda *_, **__: packed)
    found = outcome(module, (ids, mask), packed=True)
    assert len(calls) == module.lm.config.num_hidden_layers
    assert (expected[1] - found[1]).norm() < 1e-10 * expected[1].norm()
    for name, score in expected[0].items():
        assert (found[0][name] - score).abs().max() <= 1e-10 * score.abs().max(), name


def test_the_probe_sees_a_kernel_that_errs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "varlen_attn", stand_in)
    assert varlen_attention.probe("cpu", torch.float32) < 1e-5
    monkeypatch.setattr(kernels, "varlen_attn", lambda *given, **keys: 1.1 * stand_in(*given, **keys))
    assert varlen_attention.probe("cpu", torch.float32) > varlen_attention.PROBE_ERROR


def test_no_kernel_without_a_gpu_or_in_whole_precision() -> None:
    assert varlen_attention.kernel_type(torch.zeros(1, 2, 3, 64)) is None
    assert varlen_attention.kernel_type(torch.zeros(1, 2, 3, 512, dtype=torch.bfloat16)) is None
    assert varlen_attention.kernel_type(torch.zeros(1, 2, 3, 64, dtype=torch.bfloat16)) == torch.bfloat16
    assert not varlen_attention.works(torch.device("cpu")) and pack_rows(*trie_batch(), WIDE).segments is None


def test_the_probe_is_over_before_a_forward_pass(plain_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Selective recompute takes attention from its own record in the order of the forward pass."""
    asked = list[str]()
    monkeypatch.setattr("rl_agents.learner.prefix_attention.works", lambda device: bool(asked.append("works")))
    module = build(CausalLMModule, model_dir=plain_dir, shared_rows=512, recompute="selective")
    module.lm.register_forward_pre_hook(lambda *_: asked.append("forward"))
    outcome(module, trie_batch(), packed=True)
    assert asked == ["works", "forward"]
