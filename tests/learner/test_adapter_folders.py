"""Adapters as peft's folders: what peft makes of base and folder is the model that was trained."""

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from learner.learners import build_group, random_rows

from rl_agents.learner.learner import save_adapter
from rl_agents.learner.training_data import AgentTrainingData

pytestmark = pytest.mark.skipif(find_spec("peft") is None, reason="peft is an optional extra")
#: Largest difference of a float32 logit between the merged matrix and base and adapter one after the other.
TOLERANCE = 1e-4


@torch.no_grad()
def test_base_and_adapter_are_the_merged_model(tiny_model_dir: Path, tmp_path: Path) -> None:
    from peft import PeftModel
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    group, settings = build_group(str(tiny_model_dir), lora_rank=4, lr=1e-2)
    with torch.enable_grad():
        group.learn(AgentTrainingData.build(random_rows(8, 60), settings, np.random.default_rng(0)))
    group.save_hf(tmp_path / "hf")
    ids = torch.randint(3, 60, (2, 20), generator=torch.Generator().manual_seed(0))
    base, merged = (AutoModelForCausalLM.from_pretrained(f).eval() for f in (tiny_model_dir, tmp_path / "hf"))
    before, expected = base(ids).logits, merged(ids).logits
    found = PeftModel.from_pretrained(base, tmp_path / "adapter").eval()(ids).logits
    assert torch.allclose(found, expected, atol=TOLERANCE) and (found - before).abs().max() > 0.1
    assert {tensor.dtype for tensor in load_file(tmp_path / "adapter" / "adapter_model.safetensors").values()} == {
        torch.float32
    }
    group.save_hf(tmp_path / "again" / "hf")
    for path in (tmp_path / "adapter").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / "adapter" / path.name).read_bytes(), path.name
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["inference_mode"]) == (4, 16.0, True)
    assert config["base_model_name_or_path"] == str(tiny_model_dir.resolve()) and config["revision"] is None


def test_a_run_without_adapters_writes_none_and_a_public_base_is_named(tiny_model_dir: Path, tmp_path: Path) -> None:
    plain, _ = build_group(str(tiny_model_dir))
    plain.save_hf(tmp_path / "plain" / "hf")
    assert not (tmp_path / "plain" / "adapter").exists()
    group, _ = build_group(str(tiny_model_dir), lora_rank=2)
    save_adapter(tmp_path / "named", group._learner.policy.lm, "Qwen/Qwen3-4B@0123abcd", str(tiny_model_dir))
    config = json.loads((tmp_path / "named" / "adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["revision"]) == ("Qwen/Qwen3-4B", "0123abcd")
