"""Quantized engines hold after an update what a new engine makes of the same weights."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from inference.rig import settings

from rl_agents.algorithms import Settings
from rl_agents.errors import InputError
from rl_agents.inference.base import Completion, Sampling
from rl_agents.inference.client import RemoteEngine
from rl_agents.inference.engine_group import InferenceGroup
from rl_agents.inference.select import QUANTIZATIONS, check_dense, check_quantization, run_engine
from rl_agents.inference.weights import pack

PROMPT = [5, 6, 7, 8, 9, 10]
BASE = {"engine": "vllm", "dtype": "bfloat16", "engine_quantization": "fp8"}


@pytest.fixture(scope="module")
def models(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Two models of different weights, in folders of their names."""
    from transformers import AutoModelForCausalLM

    folder, found = tmp_path_factory.mktemp("quantized"), {}
    for number, name in enumerate(("old", "new")):
        model = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.bfloat16).eval()
        generator = torch.Generator().manual_seed(number)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
        model.save_pretrained(folder / name)
        found[name] = model
    return {**found, "folder": folder}


@pytest.fixture(scope="module")
def engines(ray_session: None, models: dict[str, Any]) -> Iterator[dict[str, InferenceGroup]]:
    if find_spec("vllm") is None:
        pytest.skip("vLLM is an optional extra")
    fields: dict[str, Any] = {"dtype": "bfloat16", "vllm_args": {"quantization": QUANTIZATIONS["fp8"]}}
    kind = settings("vllm-inprocess", models["folder"])
    made = {name: replace(kind, model_dir=str(models["folder"] / name), **fields) for name in ("old", "new")}
    found = {name: InferenceGroup(engine, num_cpus=0.5, wait=False) for name, engine in made.items()}
    for group in found.values():
        group.await_start()
    yield found
    for group in found.values():
        group.stop()


def sampled(group: InferenceGroup) -> Completion:
    return asyncio.run(RemoteEngine(group.handles()).generate(PROMPT, Sampling(max_tokens=12, temperature=0.0)))


def digests(group: InferenceGroup) -> dict[str, str]:
    """Of all tensors that vLLM holds, quantized ones and their scales too."""

    async def look(actor: Any) -> Any:
        return await actor._engine.worker("compute_weight_checksums")

    (found,) = ray.get(group.handles()[0].apply.remote(look))
    return {name.rpartition(":")[2]: digest for name, digest in found.items()}


@pytest.mark.ray
def test_new_weights_are_quantized_again(engines: dict[str, InferenceGroup], models: dict[str, Any]) -> None:
    """Each engine gets the weights that the other one was started with, and then its own again."""

    def state(name: str) -> tuple[dict[str, str], Any]:
        completion = sampled(engines[name])
        return digests(engines[name]), (completion.token_ids, completion.logprobs)

    fresh = {name: state(name) for name in ("old", "new")}
    assert any(name.endswith("weight_scale") for name in fresh["old"][0]), "quantized at all"
    same = {name for name, digest in fresh["old"][0].items() if digest == fresh["new"][0][name]}
    assert not {name for name in same if name.endswith("weight_scale") or name.endswith("proj.weight")}
    for version, (engine, weights) in enumerate((("old", "new"), ("new", "old"), ("old", "old"), ("new", "new")), 1):
        engines[engine].sync(pack(models[weights].state_dict()), version)
        assert state(engine) == fresh[weights], (engine, weights)


@pytest.mark.ray
@torch.no_grad()
def test_a_quantized_engine_is_near_the_learner_and_not_at_it(
    engines: dict[str, InferenceGroup], models: dict[str, Any]
) -> None:
    completion = sampled(engines["old"])
    logits = models["old"].float()(torch.tensor([PROMPT + completion.token_ids])).logits[0, len(PROMPT) - 1 : -1]
    expected = torch.log_softmax(logits, -1).gather(1, torch.tensor(completion.token_ids)[:, None])[:, 0]
    gap = (expected - torch.tensor(completion.logprobs)).abs()
    assert 0.01 < gap.mean() < 0.5


@pytest.mark.parametrize(
    ("keys", "kind", "capability", "why"),
    [
        ({}, "torch", None, "the torch engine computes in dtype; use engine=vllm"),
        ({"dtype": "float32"}, "vllm", None, "vLLM quantizes bfloat16 and float16 models; set dtype=bfloat16"),
        ({}, "vllm", (8, 0), "this GPU does not compute in FP8 .compute capability 8.0, 8.9 is needed"),
        ({"engine_sleep": 2}, "vllm", (9, 0), "dropping quantized weights during sleep is not validated"),
    ],
)
def test_what_cannot_be_quantized_is_one_line(
    keys: dict[str, Any], kind: str, capability: tuple[int, int] | None, why: str
) -> None:
    with pytest.raises(InputError, match=f"^engine_quantization=fp8: {why}"):
        check_quantization(Settings.from_dict({**BASE, **keys}), kind, capability)
    check_quantization(Settings.from_dict({**BASE, **keys, "engine_quantization": "none"}), kind, capability)


def test_experts_are_not_and_dense_models_are() -> None:
    keys = Settings.from_dict(BASE)
    check_quantization(keys, "vllm", (9, 0))
    check_dense(json.loads('{"model_type": "qwen3"}'), keys)
    with pytest.raises(InputError, match=r"not for mixtures of experts \(mixtral\)"):
        check_dense({"model_type": "mixtral", "num_local_experts": 8}, keys)
    assert run_engine(keys, "", "vllm").vllm_args == {"quantization": "fp8_per_channel"}
    assert run_engine(Settings.from_dict({}), "", "vllm").vllm_args == {}
