"""Scoring through the vocabulary head in pieces: equal to all at once, and never with all logits in memory."""

from pathlib import Path
from typing import Any

import pytest
import torch
from learner.networks import build, outcome, policy, saved, trie_batch
from transformers import Gemma2Config, Gemma2ForCausalLM

from rl_agents.learner import chunked_logprobs
from rl_agents.learner.prefix_attention import pack_rows
from rl_agents.learner.prefix_sharing import WIDE
from rl_agents.learner.rl_modules import CausalLMModule

PIECE = 7


def check_equal(module: Any, packed: bool, tolerance: float) -> None:
    assert module.piece is None
    expected = outcome(module, trie_batch(), packed)
    module.piece = PIECE
    found = outcome(module, trie_batch(), packed)
    assert (expected[1] - found[1]).norm() < tolerance * expected[1].norm()
    for name, score in expected[0].items():
        assert found[0][name].dtype == score.dtype and score.abs().sum() > 0
        assert (found[0][name] - score).abs().max() <= tolerance * score.abs().max(), name


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 2e-6)])
@pytest.mark.parametrize("packed", [False, True])
def test_scores_and_gradients(plain_dir: Path, packed: bool, dtype: torch.dtype, tolerance: float) -> None:
    check_equal(build(CausalLMModule, model_dir=plain_dir, shared_rows=512).to(dtype), packed, tolerance)


def test_half_precision(tiny_model_dir: Path) -> None:
    check_equal(policy(tiny_model_dir, prefix_sharing=True, dtype="bfloat16"), False, 2e-2)


@pytest.mark.parametrize("packed", [False, True])
def test_no_tensor_holds_more_logits_than_a_piece_has(plain_dir: Path, packed: bool) -> None:
    module = build(CausalLMModule, model_dir=plain_dir, shared_rows=512)
    ids, mask = trie_batch()
    inputs: dict[str, Any] = {"input_ids": ids, "mask": mask, "temperature": 1.0, "entropy_gradient": True}
    if packed:
        inputs["packed"] = pack_rows(ids, mask, WIDE)

    def most_kept(piece: int | None) -> int:
        kept: list[int] = []

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            kept.append(tensor.numel() if tensor.shape[-1] == module.lm.config.vocab_size else 0)
            return tensor

        module.piece = piece
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            module.forward_train(inputs)
        return max(kept)

    assert most_kept(None) > 10 * PIECE * module.lm.config.vocab_size
    assert most_kept(PIECE) <= PIECE * module.lm.config.vocab_size


def test_which_models_are_scored_in_pieces(plain_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = build(CausalLMModule, model_dir=plain_dir).lm
    assert chunked_logprobs.piece_size(plain) is None, "200 words: all of a micro-batch fits"
    monkeypatch.setattr(chunked_logprobs, "LOGITS_AT_ONCE", chunked_logprobs.LOGIT_BYTES * 200 * 40)
    assert chunked_logprobs.piece_size(plain) == 40


def test_capped_logits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And scaled ones: `test_model_families`."""
    config = Gemma2Config(
        vocab_size=200, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, final_logit_softcapping=0.5,
    )  # fmt: skip
    module = build(CausalLMModule, model_dir=saved(tmp_path, Gemma2ForCausalLM(config)))
    check_equal(module, False, 5e-6)
    module.piece = None
    monkeypatch.setattr(chunked_logprobs, "LOGITS_AT_ONCE", chunked_logprobs.LOGIT_BYTES * 200 * 40)
    assert chunked_logprobs.piece_size(module.lm) == 40
    monkeypatch.setattr(chunked_logprobs, "shaped_head", lambda lm: lm.get_output_embeddings())
    assert chunked_logprobs.piece_size(module.lm) is None, "what a model does to its logits is not left out"
