"""Rows one behind another in place of padding, and selective recompute: equal to flat rows."""

from pathlib import Path
from typing import Any

import pytest
import torch
from learner.learners import random_rows
from learner.networks import build, check_equal, needs_peft, outcome, policy, trie_batch, with_adapters

from rl_agents.learner.batching import packed_batches
from rl_agents.learner.rl_modules import CausalLMModule, ValueModule

EXACT = [(torch.float64, 1e-10), (torch.float32, 2e-6)]


@pytest.mark.parametrize("adapters", [False, pytest.param(True, marks=needs_peft)])
@pytest.mark.parametrize(
    ("recompute", "layout"),
    [("full", "sequence_packing"), ("selective", "sequence_packing"), ("full", "prefix_sharing")],
)
def test_recompute_with_adapters_and_in_pieces(tiny_model_dir: Path, adapters: bool, recompute: str, layout) -> None:
    """Against a plain module, and packed against flat rows of the same one.

    Gradient checkpointing drops key-value caches without a word; there is none with shared rows.
    """
    keys = {layout: True, "activation_checkpointing": recompute}
    make = with_adapters if adapters else policy
    plain, module = make(tiny_model_dir), make(tiny_model_dir, **keys)
    assert module.lm.is_gradient_checkpointing and not plain.lm.is_gradient_checkpointing
    module.piece = 9
    check_equal(module, trie_batch(), 5e-6, share=layout == "prefix_sharing")
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
