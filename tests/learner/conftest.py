"""Learners and a model for several files; remote groups end with a file, since later tests need Ray's CPUs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from learner.learners import Learners
from learner.networks import saved
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM


@pytest.fixture(scope="module")
def local(tiny_model_dir: str) -> Learners:
    return Learners(tiny_model_dir, 0, prefixes=False)


@pytest.fixture(scope="module", params=[(2, "none"), (2, "fsdp")], ids=["two", "sharded"])
def remote(ray_session: None, tiny_model_dir: str, request: pytest.FixtureRequest) -> Iterator[Learners]:
    learners = Learners(tiny_model_dir, *request.param)
    yield learners
    learners.group.shutdown()


@pytest.fixture(scope="session")
def plain_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that calculates in float64 throughout when it is asked to: Qwen's norms are in float32 always."""
    config = GPTNeoXConfig(
        vocab_size=200, hidden_size=32, intermediate_size=64, num_attention_heads=4, num_hidden_layers=2
    )
    return saved(tmp_path_factory.mktemp("neox"), GPTNeoXForCausalLM(config))
