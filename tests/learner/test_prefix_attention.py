"""Forwarding shared tokens once is exact: scores and gradients of every loss, and which models it is refused for."""

from pathlib import Path

import numpy as np
import pytest
import torch
from learner.learners import VARIANTS, Learners, build_group, family_rows, largest_difference
from learner.networks import build, check_equal, outcome, policy, saved, trie_batch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from rl_agents.errors import InputError
from rl_agents.learner.model_check import check_sharing
from rl_agents.learner.prefix_attention import NAME, pack_rows
from rl_agents.learner.prefix_sharing import WIDE
from rl_agents.learner.rl_modules import CausalLMModule, ValueModule
from rl_agents.learner.training_data import AgentTrainingData

SMALL = {"vocab_size": 200, "hidden_size": 32, "intermediate_size": 64}
SMALL |= {"num_attention_heads": 4, "num_hidden_layers": 2}
GPT2 = {"vocab_size": 200, "n_embd": 32, "n_layer": 2, "n_head": 2, "bos_token_id": 1, "eos_token_id": 1}


@pytest.mark.parametrize("kind", [CausalLMModule, ValueModule])
@pytest.mark.parametrize(
    ("dtype", "tolerance", "seed", "share"),
    [(torch.float64, 1e-10, 0, True), (torch.float64, 1e-10, 0, False), (torch.float32, 2e-6, 1, True)],
)
def test_scores_and_gradients_are_those_of_flat_rows(plain_dir, kind, dtype, tolerance, seed, share) -> None:
    module = build(kind, model_dir=plain_dir, shared_rows=512)
    if kind is ValueModule:  # its head starts at zero
        torch.nn.init.normal_(module.head.weight)
    batch = trie_batch(seed)
    packed = pack_rows(*batch, WIDE, share=share)
    assert packed.input_ids.numel() < (0.5 if share else 1.0) * batch[0].numel()
    assert share or all(call.mask is None for call in packed.branches)
    check_equal(module.to(dtype), batch, tolerance, share=share)


#: Others: `test_model_families`.
ARCHITECTURES = {
    "gpt2": (GPT2LMHeadModel, GPT2Config(**GPT2)),
    "mistral, short rows": (MistralForCausalLM, MistralConfig(**SMALL, num_key_value_heads=2, sliding_window=512)),
}


@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_any_dense_attention_is_shared(tmp_path: Path, name: str) -> None:
    kind, config = ARCHITECTURES[name]
    check_equal(build(CausalLMModule, model_dir=saved(tmp_path, kind(config)), shared_rows=512), trie_batch(), 1e-5)


def test_half_precision_is_as_exact_as_flat_rows_are(tiny_model_dir: Path) -> None:
    exact, half = (policy(tiny_model_dir, prefix_sharing=True, dtype=dtype) for dtype in ("float32", "bfloat16"))
    truth = outcome(exact, trie_batch(), packed=False)[1]
    errors = [(outcome(half, trie_batch(), packed=packed)[1] - truth).norm() / truth.norm() for packed in (False, True)]
    assert 1e-4 < errors[1] < 1.5 * errors[0] < 0.1


def test_a_batch_without_scored_tokens_scores_nothing(plain_dir: Path) -> None:
    ids = torch.tensor([[5, 6, 7], [5, 6, 8]])
    for kind in (CausalLMModule, ValueModule):
        module = build(kind, model_dir=plain_dir, shared_rows=512)
        inputs = {"input_ids": ids, "mask": torch.zeros(2, 3), "temperature": 1.0}
        scores = module.forward_train({**inputs, "packed": pack_rows(ids, inputs["mask"], WIDE)})
        assert all(score.shape == (2, 3) and not score.any() for score in scores.values())


# --- the learner ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def double(plain_dir: Path) -> Learners:
    """A learner that calculates in float64."""
    learners = Learners(str(plain_dir), 0)
    for name in ("default_policy", "critic", "reference", "teacher"):
        learners.group._learner.module[name].double()  # type: ignore[union-attr]
    return learners


BONUS = {"entropy_coef": 0.02, "tokens_per_microbatch": 200}


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_every_algorithm_makes_the_same_update(double: Learners, variant: str) -> None:
    keys = {"families": True, **(BONUS if "sft" not in variant else {}), **VARIANTS[variant]}
    flat, shared = double.updated(**keys), double.updated(**keys, prefix_sharing=True)
    packed = double.updated(**keys, sequence_packing=True)
    assert 0.2 < shared[1].pop("actor/forwarded_share") < 0.7
    assert 0.7 < packed[1].pop("actor/forwarded_share") <= 1.0
    for found in (shared, packed):
        assert largest_difference(flat[0], found[0]) < 1e-10
        assert set(flat[1]) == set(found[1])
        for name, value in flat[1].items():
            if not name.startswith("timing_s/"):
                assert found[1][name] == pytest.approx(value, rel=1e-5, abs=1e-6), name


def test_flat_rows_are_what_they_are_without_it(tiny_model_dir: Path) -> None:
    """The attention function leaves rows that share nothing as they were, bit for bit."""
    moments = []
    for prefixes in (False, True):
        group, settings = build_group(str(tiny_model_dir), prefix_sharing=prefixes)
        rows = family_rows()[:3]
        group.learn(AgentTrainingData.build(rows, settings, np.random.default_rng(0)))
        moments.append(group.full_state()["optimizer"]["moments"])
    assert all(torch.equal(moments[0][name], moments[1][name]) for name in moments[0])


# --- what it is refused for ----------------------------------------------------------------------------------------


REFUSED = {
    "sees 64 tokens back": MistralForCausalLM(MistralConfig(**SMALL, num_key_value_heads=2, sliding_window=64)),
    "layers with a state": MambaForCausalLM(MambaConfig(vocab_size=200, hidden_size=32, num_hidden_layers=2)),
    "attention in its own way": BloomForCausalLM(BloomConfig(vocab_size=200, hidden_size=32, n_layer=2, n_head=2)),
}


@pytest.mark.parametrize("asked", ["prefix_sharing", "sequence_packing"])
@pytest.mark.parametrize("reason", list(REFUSED))
def test_models_that_mix_tokens_otherwise_are_refused_in_one_line(tmp_path: Path, reason: str, asked: str) -> None:
    folder = saved(tmp_path, REFUSED[reason])
    for refuse in (lambda: check_sharing(folder, 512, asked), lambda: policy(folder, **{asked: True})):
        with pytest.raises(InputError, match=rf"{asked}=true with model=.*set {asked}=false") as error:
            refuse()
        assert reason in str(error.value) and "\n" not in str(error.value)


def test_a_model_that_drops_the_plan_is_noticed(tiny_model_dir: Path) -> None:
    module, batch = policy(tiny_model_dir, prefix_sharing=True), trie_batch()
    assert module.lm.config._attn_implementation == NAME
    layers = module.lm.model.layers
    layers[1].register_forward_pre_hook(
        lambda _, args, kwargs: (args, kwargs | {"shared_rows": None}), with_kwargs=True
    )
    with pytest.raises(RuntimeError, match="1 of 2 layers"):
        outcome(module, batch, packed=True)
