"""Every engine in turn, one for all modules: each takes a quarter of a minute to start."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from inference.rig import KINDS, Rig, settings

from rl_agents.inference.client import RemoteEngine
from rl_agents.inference.engine_group import InferenceGroup


@pytest.fixture(scope="session", params=KINDS)
def rig(request: pytest.FixtureRequest, ray_session: None, tiny_model_dir: Path) -> Iterator[Rig]:
    from transformers import AutoModelForCausalLM

    if request.param != "torch" and find_spec("vllm") is None:
        pytest.skip("vLLM is an optional extra")
    group = InferenceGroup(settings(request.param, tiny_model_dir))
    reference = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32).eval()
    yield Rig(group, RemoteEngine(group.handles(), timeout_s=60), request.param, reference)
    group.stop()
