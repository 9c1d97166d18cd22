"""The networks as they are built from a model's folder: precision, what trains, dropout, adapters, export."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from learner.networks import OUTPUT, build, needs_peft, policy, specs, with_adapters
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, Qwen2Config, Qwen2ForCausalLM

from rl_agents.inference.torch_engine import TorchEngine
from rl_agents.learner.rl_modules import CausalLMModule, Network, ValueModule

IDS = torch.tensor([[5, 6, 7, 8, 9, 10]])
MASK = torch.tensor([[0.0, 0.0, 1.0, 1.0, 0.0, 0.0]])
BATCH = {"input_ids": IDS, "mask": MASK, "temperature": 1.0}


def dtypes(module: torch.nn.Module) -> set[torch.dtype]:
    return {parameter.dtype for parameter in module.parameters()}


@pytest.mark.parametrize(
    ("keys", "networks"),
    [
        ({}, {"default_policy"}),
        ({"kl_coef": 0.1}, {"default_policy", "reference"}),
        ({"algo": "reinforce++", "kl_in_reward_coef": 0.1}, {"default_policy", "reference"}),
        ({"algo": "ppo"}, {"default_policy", "critic"}),
    ],
)
def test_only_the_networks_that_a_run_needs_are_held(keys: dict[str, Any], networks: set[str]) -> None:
    assert set(specs("model", **keys)) == networks


def test_the_reference_never_moves_and_is_kept_in_the_precision_of_activations(tiny_model_dir: Path) -> None:
    config = specs(tiny_model_dir, kl_coef=0.1, dtype="bfloat16")
    reference, trained = (build(CausalLMModule, **config[n]) for n in ("reference", "default_policy"))
    assert not any(parameter.requires_grad for parameter in reference.parameters())
    assert all(parameter.requires_grad for parameter in trained.parameters())
    assert (dtypes(reference), dtypes(trained)) == ({torch.bfloat16}, {torch.float32})


@pytest.mark.filterwarnings("ignore:CUDA is not available")
@pytest.mark.parametrize("kind", [CausalLMModule, ValueModule])
def test_bfloat16_is_the_precision_of_activations(kind: type[Network], tiny_model_dir: Path) -> None:
    exact, cast = build(kind, model_dir=tiny_model_dir), build(kind, model_dir=tiny_model_dir, dtype="bfloat16")
    for module in (exact, cast):
        if kind is ValueModule:  # its head starts at zero
            torch.nn.init.constant_(module.head.weight, 0.3)
    expected, found = (module.forward_train(BATCH)[OUTPUT[kind]] for module in (exact, cast))
    error = (expected - found)[MASK > 0].abs()
    assert 1e-5 < error.max() < 0.2 and found.dtype == torch.float32
    assert cast.precision(torch.device("cuda")).fast_dtype == torch.bfloat16, "torch's own default is float16 there"
    cast.autocast = False  # FSDP2 gathers weights in bfloat16 already
    assert torch.equal(cast.forward_train(BATCH)[OUTPUT[kind]], expected)


def saved(folder: Path, model: Any) -> Path:
    torch.manual_seed(0)
    model.save_pretrained(folder)
    return folder


def test_no_network_drops_out(tmp_path: Path) -> None:
    layers = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    attention = Qwen2ForCausalLM(Qwen2Config(vocab_size=40, num_key_value_heads=2, attention_dropout=0.5, **layers))
    modules = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_embd=32, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=1))
    for name, model in (("attention", attention), ("modules", modules)):
        folder = saved(tmp_path / name, model)
        plain = AutoModelForCausalLM.from_pretrained(folder).eval()
        table = torch.log_softmax(plain(IDS).logits[0], -1).detach()
        module = policy(folder).train()
        found = module.forward_train(BATCH)["logprobs"][0]
        assert found[2:4].tolist() == pytest.approx([float(table[1, 7]), float(table[2, 8])], abs=1e-5)
        critic = build(ValueModule, model_dir=folder).train()
        torch.nn.init.constant_(critic.head.weight, 0.3)
        values = [critic.forward_train(BATCH)["values"] for _ in range(2)]
        assert torch.equal(*values) and values[0][MASK > 0].all()


def test_the_critic_reads_nothing_behind_the_last_scored_token(tiny_model_dir: Path) -> None:
    critic, seen = build(ValueModule, model_dir=tiny_model_dir), []
    critic.backbone.register_forward_pre_hook(
        lambda _, args, kw: seen.append(kw["input_ids"].tolist()), with_kwargs=True
    )
    critic.forward_train(BATCH)
    assert seen == [[[5, 6, 7]]], "the token before the last scored one is where that one's value is read"
    nothing = critic.forward_train({**BATCH, "mask": MASK * 0})["values"]
    assert nothing.shape == MASK.shape and not nothing.any()


def test_weights_that_are_lent_reach_an_engine_as_exported_ones_do(tiny_model_dir: Path) -> None:
    """They are the trained tensors themselves; the engine rounds them to its precision, and keeps none of them."""
    module = policy(tiny_model_dir, dtype="bfloat16")
    lent = dict(module.merged_weights(cast=False))
    assert {tensor.data_ptr() for tensor in lent.values()} <= {p.data_ptr() for p in module.lm.parameters()}
    with torch.no_grad():
        for parameter in module.lm.parameters():
            parameter.add_(torch.rand_like(parameter) / 7)
    engines = [TorchEngine(tiny_model_dir, "bfloat16") for _ in range(2)]
    for engine, weights in zip(engines, (lent, dict(module.merged_weights())), strict=True):
        asyncio.run(engine.load_weights(weights, 1))
    with torch.no_grad():
        for parameter in module.lm.parameters():
            parameter.zero_()
    ours, theirs = (engine.model.state_dict() for engine in engines)
    assert all(torch.equal(ours[name], theirs[name]) and ours[name].any() for name in ours)


@needs_peft
def test_adapters_that_are_small_beside_a_weight_reach_the_engines_on_average(tiny_model_dir: Path) -> None:
    module = policy(tiny_model_dir, lora_rank=2, lora_alpha=2, dtype="bfloat16")
    before, again = dict(module.merged_weights()), dict(module.merged_weights())
    plain = {name.removesuffix(".base_layer.weight"): tensor for name, tensor in module.lm.state_dict().items()}
    generator = torch.Generator().manual_seed(0)
    for name, parameter in module.lm.named_parameters():
        if "lora_" in name:
            parameter.data.normal_(0, 0.005, generator=generator)
    after, kept = dict(module.merged_weights()), []
    for name, layer in module.lm.named_modules():
        if hasattr(layer, "get_delta_weight"):
            file = f"{name.removeprefix('base_model.model.')}.weight"
            delta, base = layer.get_delta_weight("default").float(), plain[name].float()
            assert torch.equal(before[file], plain[name]) and torch.equal(again[file], before[file])
            kept.append(((after[file].float() - base) * delta).sum() / delta.square().sum())
            nearest = ((base + delta).bfloat16().float() - base) * delta
            assert nearest.sum() < 0.5 * delta.square().sum(), "the test shows something"
    assert abs(torch.stack(kept).mean() - 1) < 0.1


@needs_peft
def test_adapters_sit_on_every_matrix_but_the_head_and_weigh_alpha_over_rank(tiny_model_dir: Path) -> None:
    module = with_adapters(tiny_model_dir, dtype="bfloat16")
    layers = {name: layer for name, layer in module.lm.named_modules() if hasattr(layer, "get_delta_weight")}
    names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    assert sorted(name.rsplit(".", 1)[1] for name in layers) == sorted(names * 2)
    for layer in layers.values():
        first, second = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        assert first.shape[0] == second.shape[1] == 2
        assert torch.allclose(layer.get_delta_weight("default").float(), 3 * (second @ first).float(), atol=1e-2)
    trained = {n for n, p in module.lm.named_parameters() if p.requires_grad}
    assert trained and all("lora_" in name for name in trained)
    base = {p.dtype for n, p in module.lm.named_parameters() if n not in trained}
    assert base == {torch.bfloat16} and {module.lm.get_parameter(n).dtype for n in trained} == {torch.float32}
