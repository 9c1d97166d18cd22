"""Shared by all tests: one Ray session, and a tiny model with tied embeddings and its tokenizer."""

from __future__ import annotations

import os

# Before torch or Ray are imported: spinning threads on a busy small machine are 2-6 times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

from collections.abc import Iterator
from pathlib import Path

import pytest

#: Words of the tiny tokenizer, and so the tiny model's vocabulary.
VOCABULARY = 200


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ray: starts Ray, engines or servers; the rest are unit tests")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "ray_session" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.ray)


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """One local Ray for the whole test run, with four logical CPUs."""
    import ray

    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, configure_logging=True, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of about 0.1 M parameters whose distributions are far from flat."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    folder = tmp_path_factory.mktemp("tiny-qwen2")
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,  # heads of 32: vLLM's CPU attention knows no smaller ones
        num_key_value_heads=2,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        initializer_range=0.1,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    _save_tokenizer(folder)
    return folder


def _save_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"<pad>": 0, "<eos>": 1, "<unk>": 2} | {f"w{i}": i for i in range(3, VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    fast.save_pretrained(folder)


@pytest.fixture(scope="session")
def beginner_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A guess_numbers starter that was taught for a few seconds: most of its actions can be parsed."""
    from rl_agents.core.algorithm import AgentAlgorithm
    from rl_agents.core.starter import build_starter

    folder, keys = tmp_path_factory.mktemp("models") / "beginner", {"iterations": 12}
    return build_starter(AgentAlgorithm.from_settings, "guess_numbers", folder, set=keys)
