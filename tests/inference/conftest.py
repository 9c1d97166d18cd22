"""Every engine in turn, one for all modules: each takes a quarter of a minute to start."""

import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from inference.rig import KINDS, VOCABULARY, Rig, settings

from rl_agents.inference.client import RemoteEngine
from rl_agents.inference.engine_group import InferenceGroup
from rl_agents.inference.torch_model import load_causal_lm


@pytest.fixture(scope="session")
def padded_dir(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 24 more ids than its tokenizer; without masks most of what it samples would have no text.

    Its head is untied; of those that are tied: tests/integration/test_real_model_vllm.py, and the torch engine's tests.
    """
    from transformers import AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("padded")
    torch.manual_seed(0)  # of the new head
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32, tie_word_embeddings=False)
    model.resize_token_embeddings(VOCABULARY + 24, mean_resizing=False)
    with torch.no_grad():
        model.get_output_embeddings().weight[VOCABULARY:] = 6 * model.get_output_embeddings().weight[:24]
    model.save_pretrained(folder)
    for path in tiny_model_dir.glob("tokenizer*"):
        shutil.copy(path, folder)
    return folder


@pytest.fixture(scope="session", params=KINDS)
def rig(request: pytest.FixtureRequest, ray_session: None, padded_dir: Path) -> Iterator[Rig]:
    if request.param != "torch" and find_spec("vllm") is None:
        pytest.skip("vLLM is an optional extra")
    group = InferenceGroup(settings(request.param, padded_dir))
    reference = load_causal_lm(padded_dir, "float32").eval()
    yield Rig(group, RemoteEngine(group.handles(), timeout_s=60), request.param, reference)
    group.stop()
