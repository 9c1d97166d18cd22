"""Ids that the model embeds and its tokenizer does not have: never sampled, and no part of the learner's numbers."""

from __future__ import annotations

import asyncio
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from inference.rig import KINDS, TOLERANCE, prompts, settings
from transformers import AutoModelForCausalLM

from rl_agents.inference.base import Sampling
from rl_agents.inference.client import RemoteEngine
from rl_agents.inference.engine_group import InferenceGroup
from rl_agents.inference.model_shape import padding_begins
from rl_agents.inference.torch_model import load_causal_lm
from rl_agents.inference.weights import pack
from rl_agents.learner.chunked_logprobs import shaped_head

#: Of conftest's tokenizer, and more.
VOCABULARY, PADDING = 200, 24


@pytest.fixture(scope="module")
def padded(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of more ids than its tokenizer; without masks most of what it samples has no text."""
    folder = tmp_path_factory.mktemp("padded")
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    model.resize_token_embeddings(VOCABULARY + PADDING, mean_resizing=False)
    with torch.no_grad():
        model.get_output_embeddings().weight[VOCABULARY:] = 6 * model.get_output_embeddings().weight[:PADDING]
    model.save_pretrained(folder)
    for path in tiny_model_dir.glob("tokenizer*"):
        shutil.copy(path, folder)
    return folder


def test_where_the_padding_begins(padded: Path, tiny_model_dir: Path, tmp_path: Path) -> None:
    assert padding_begins(padded) == VOCABULARY
    assert padding_begins(tiny_model_dir) is None  # no padding
    shutil.copy(padded / "config.json", tmp_path)
    assert padding_begins(tmp_path) is None  # no tokenizer.json


def test_the_learner_sees_the_tokenizers_words_only(padded: Path) -> None:
    lm = load_causal_lm(padded, "float32").eval()
    ids = torch.tensor([[3, 4, 5]])
    with torch.no_grad():
        logits = lm(ids).logits
        states = lm.base_model(ids).last_hidden_state
    assert logits.shape[-1] == VOCABULARY and torch.equal(shaped_head(lm)(states), logits)
    assert lm.get_output_embeddings().weight.shape[0] == VOCABULARY + PADDING  # as it is saved and sent


@pytest.mark.parametrize("kind", KINDS)
def test_padding_is_never_sampled_and_log_probabilities_are_the_learners(
    kind: str, padded: Path, ray_session: None
) -> None:
    if kind != "torch" and find_spec("vllm") is None:
        pytest.skip("vLLM is an optional extra")
    group, lm = InferenceGroup(settings(kind, padded)), load_causal_lm(padded, "float32").eval()
    engine = RemoteEngine(group.handles(), timeout_s=60)

    async def sample() -> None:
        for seed, temperature in enumerate((1.0, 0.0, 0.7)):
            sampling = Sampling(24, temperature, seed=seed)
            for prompt in prompts(3, seed):
                done = await engine.generate(prompt, sampling)
                assert max(done.token_ids) < VOCABULARY
                with torch.no_grad():
                    logits = lm(torch.tensor([prompt + done.token_ids])).logits[0, len(prompt) - 1 : -1]
                said = torch.log_softmax(logits / (temperature or 1.0), -1)
                said = said.gather(1, torch.tensor(done.token_ids)[:, None])[:, 0]
                assert (said - torch.tensor(done.logprobs)).abs().max() <= TOLERANCE

    try:
        asyncio.run(sample())
        group.sync(pack(lm.state_dict()), 1)
        asyncio.run(sample())
    finally:
        group.stop()
