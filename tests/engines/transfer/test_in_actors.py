"""Weights over gloo into engine actors, as a run has them: a death, the restore, and a new group."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import ray
import torch

pytest.importorskip("vllm", reason="vLLM is not installed")

from rl_agents.engines.base import Completion, EngineError, EngineSettings, Sampling
from rl_agents.engines.client import RemoteEngine
from rl_agents.engines.group import InferenceGroup
from rl_agents.engines.transfer.checksums import differing
from rl_agents.engines.weights import PackedWeights, pack, unpack

PROMPT = [5, 6, 7, 8]


@torch.no_grad()
def changed(reference: Any, seed: int) -> PackedWeights:
    generator = torch.Generator().manual_seed(seed)
    for parameter in reference.parameters():
        parameter += 0.02 * torch.randn(parameter.shape, generator=generator)
    return pack(reference.state_dict())


@torch.no_grad()
def assert_current(group: InferenceGroup, reference: Any, version: int) -> None:
    for handle in group.handles():
        (found,) = ray.get(handle.weight_checksums.remote())
        assert differing(unpack(pack(reference.state_dict())), "float32", found) == ([], 8)
        engine = RemoteEngine([handle])
        completion: Completion = asyncio.run(engine.generate(PROMPT, Sampling(max_tokens=8, seed=0)))
        tokens = torch.tensor(completion.token_ids)
        logits = reference(torch.tensor([PROMPT + completion.token_ids])).logits[0, len(PROMPT) - 1 : -1]
        expected = torch.log_softmax(logits, -1).gather(1, tokens[:, None])[:, 0]
        assert (expected - torch.tensor(completion.logprobs)).abs().max() < 1e-4
        assert completion.policy_version == version


def test_two_actors_over_gloo_one_dies_and_comes_back(ray_session: None, tiny_model_dir: Path) -> None:
    from transformers import AutoModelForCausalLM

    reference = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32).eval()
    settings = EngineSettings(
        str(tiny_model_dir), kind="vllm", max_model_len=128, max_batch=8, kv_cache_gb=0.0625, weight_transfer="gloo"
    )
    group = InferenceGroup(settings, num_engines=2, num_cpus=0.5)
    try:
        for version in (1, 2):
            group.sync(changed(reference, version), version)
            assert_current(group, reference, version)
        group.handles()[1].apply.remote(lambda actor: os.kill(os.getpid(), signal.SIGKILL))
        started = time.monotonic()
        with pytest.raises(EngineError, match="engine 1 failed in sync to version 3"):
            group.sync(changed(reference, 3), 3)
        assert time.monotonic() - started < 60
        assert group.restore() == [1]
        assert_current(group, reference, 3)
        group.sync(ray.put(changed(reference, 4)), 4)  # as a learner actor exports them
        assert_current(group, reference, 4)
    finally:
        group.stop()
