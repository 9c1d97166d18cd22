"""Every model family on PyTorch: the same numbers everywhere, or one line that says why not."""

import asyncio
from pathlib import Path

import pytest
import torch
from transformers.utils import logging

from benchmarks.model_families import page
from benchmarks.model_families.checks import (
    CHECKS,
    TEMPERATURE,
    Case,
    Finding,
    batch,
    engine_gap,
    gap,
    moved_module,
    names_in,
)
from benchmarks.model_families.families import FAMILIES, WINDOW, Family, save_model
from benchmarks.model_families.templates import STYLES, dialogue, tokenizer
from rl_agents.errors import InputError
from rl_agents.inference.base import EngineError
from rl_agents.inference.model_shape import model_shape, read_config, rope_limit
from rl_agents.inference.torch_engine import TorchEngine
from rl_agents.inference.torch_model import check_folder
from rl_agents.inference.vllm_checks import check_architecture
from rl_agents.learner.model_check import check_model

BY_NAME = {family.name: family for family in FAMILIES}
IMAGES = {"gemma3_vlm", "qwen2_5_vl"}
#: What is tried with every family, and what with one of each kind only.
ALL = ("loads", "learner", "torch_engine", "shared_rows", "in_pieces")
SLOW = ("lora", "recomputed", "round_trip", "sharded", "critic")
KINDS = {"qwen2", "qwen3_moe", "mixtral", "gemma2", "deepseek_v3", "gpt_oss", "qwen3_next"}
REFUSED = {
    ("gemma2", "shared_rows"): "computes attention in its own way",
    ("gpt_oss", "shared_rows"): "computes attention in its own way",
    ("qwen3_next", "shared_rows"): "layers with a state",
    ("qwen3_next", "torch_engine"): "the torch engine needs full attention",
}


@pytest.fixture(autouse=True)
def quiet() -> None:
    logging.disable_progress_bar()


def made(name: str, folder: Path, **changes: object) -> Case:
    family = BY_NAME[name]
    return Case(family, save_model(family, folder, tokenizer(family.template), **changes))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", [f for f in FAMILIES if f.name not in IMAGES], ids=lambda f: f.name)
def test_the_same_numbers_everywhere(family: Family, tmp_path: Path) -> None:
    case = made(family.name, tmp_path)
    for check in (*ALL, *(SLOW if family.name in KINDS else ())):
        if words := REFUSED.get((family.name, check)):
            with pytest.raises(InputError, match=words):
                CHECKS[check](case)
            continue
        found: Finding = CHECKS[check](case)
        assert found.value is not None, (check, found.said)
        if check not in ("loads", "critic"):
            assert found.value <= page.AGREES and not found.said.startswith("no gradient"), (check, found)
    assert case.scores.min() < -3, "distributions that are not uniform"


@pytest.mark.parametrize("name", sorted(IMAGES))
def test_models_of_images_are_refused_in_one_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="models read images or sound in addition to text") as refusal:
        check_model(made(name, tmp_path).folder)
    assert "\n" not in str(refusal.value)


def test_the_text_part_of_gemma_3_can_be_taken_out(tmp_path: Path) -> None:
    """The recipe of docs/reference/models.md."""
    from transformers import AutoModelForImageTextToText, Gemma3ForCausalLM

    folder = made("gemma3_vlm", tmp_path / "whole").folder
    whole = AutoModelForImageTextToText.from_pretrained(folder)
    text = Gemma3ForCausalLM(whole.config.get_text_config())
    text.model.load_state_dict(whole.model.language_model.state_dict())
    text.tie_weights()
    text.save_pretrained(tmp_path / "text")
    tokenizer("gemma").save_pretrained(tmp_path / "text")
    case = Case(BY_NAME["gemma3"], check_model(tmp_path / "text"))
    ids = batch()["input_ids"]
    scores = torch.log_softmax(whole.eval()(input_ids=ids).logits[:, :-1] / TEMPERATURE, -1)
    expected = scores.gather(-1, ids[:, 1:, None])[..., 0] * batch()["mask"][:, 1:]
    assert gap(expected, case.scores[:, 1:]) < page.AGREES


def test_experts_leave_under_their_files_names_and_a_part_that_does_not_fit_is_named(tmp_path: Path) -> None:
    case = made("qwen3_moe", tmp_path)
    moved = moved_module(case)
    weights = dict(moved.merged_weights())
    assert set(weights) == names_in(case.folder) and "model.layers.1.mlp.experts.3.up_proj.weight" in weights
    shape = model_shape(read_config(case.folder))
    assert shape is not None and shape.feed_forward == 4 * 32
    engine = TorchEngine(case.folder, max_model_len=60)
    for name, tensor in (("gone", None), ("cut", weights["model.layers.1.mlp.experts.3.up_proj.weight"][:-1])):
        broken = {key: value for key, value in weights.items() if key != "model.layers.1.mlp.experts.3.up_proj.weight"}
        if tensor is not None:
            broken["model.layers.1.mlp.experts.3.up_proj.weight"] = tensor
        with pytest.raises(EngineError, match=r"experts\.3\.up_proj.* has shape|lacks 1 weights.*experts.gate_up_proj"):
            asyncio.run(engine.load_weights(broken, 1))
        assert engine_gap(engine, case.module, batch(30)["input_ids"].tolist()) < page.AGREES, name
    asyncio.run(engine.load_weights(dict(moved.lm.state_dict()), 2))  # by the model's own names
    assert engine_gap(engine, moved, batch(30)["input_ids"].tolist()) < page.AGREES


def test_missing_experts_are_found_in_the_files(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    case = made("qwen3_moe", tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.layers.0.mlp.experts.2.down_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"1 tensors are missing.*layers\.0\.mlp\.experts\.2\.down_proj\.weight"):
        check_model(case.folder)


def test_windows_and_scaled_positions_have_limits(tmp_path: Path) -> None:
    window = made("mistral", tmp_path / "window").folder
    check_folder(window, WINDOW)
    with pytest.raises(InputError, match=f"with window {WINDOW} and max_model_len is {WINDOW + 1}"):
        check_folder(window, WINDOW + 1)
    long = read_config(made("phi3_long", tmp_path / "long").folder)
    assert rope_limit(long) == 128 and rope_limit(read_config(window)) is None
    assert rope_limit({"rope_scaling": {"type": "dynamic", "factor": 2.0}, "max_position_embeddings": 64}) == 64


def test_quantized_weights_are_refused(tmp_path: Path) -> None:
    import json

    folder = made("qwen3", tmp_path).folder
    config = read_config(folder) | {"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="its weights are quantized, and gradients need"):
        check_model(folder)


@pytest.mark.parametrize(
    ("config", "cpu", "words"),
    [
        ({"model_type": "gpt_oss"}, False, "keeps the experts' first weights"),
        ({"model_type": "deepseek_v3", "kv_lora_rank": 512}, True, "multi-head latent attention"),
        ({"model_type": "qwen3_next", "layer_types": ["linear_attention"]}, True, "needs chunked prefill"),
    ],
)
def test_what_vllm_samples_from_otherwise_is_refused(config: dict[str, object], cpu: bool, words: str) -> None:
    with pytest.raises(InputError, match=f"model=M with engine=vllm: .*{words}.*docs/reference/models.md"):
        check_architecture(config, "M", cpu)
    check_architecture({"model_type": "qwen3", "layer_types": ["full_attention"]}, "M", cpu)
    if cpu:
        check_architecture(config, "M", False)


@pytest.mark.parametrize("style", list(STYLES))
def test_a_dialogue_grows_exactly_with_every_familys_template(style: str) -> None:
    said = dialogue(style)
    assert said.startswith("grows exactly, system")
    assert ("no tools" in said) == (style in ("chatml", "gemma", "phi", "deepseek"))
