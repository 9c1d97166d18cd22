"""Networks from a model's folder, and their scores and gradients with flat and with packed rows."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_agents.algorithms import Settings
from rl_agents.envs.gymnasium_adapter import TEXT_SPACE
from rl_agents.learner.prefix_attention import pack_rows
from rl_agents.learner.prefix_sharing import WIDE
from rl_agents.learner.rl_modules import CausalLMModule, Network, ValueModule, module_specs

OUTPUT = {CausalLMModule: "logprobs", ValueModule: "values"}


needs_peft = pytest.mark.skipif(find_spec("peft") is None, reason="peft is not installed")


def specs(model_dir: Path | str, **keys: Any) -> dict[str, dict[str, Any]]:
    """What each network is built from."""
    settings = Settings.from_dict({"algo": "grpo", "kl_coef": 0.0, **keys})
    return {n: dict(s.model_config) for n, s in module_specs(settings, str(model_dir)).rl_module_specs.items()}


def build(kind: type[Network], **config: Any) -> Any:
    return kind(observation_space=TEXT_SPACE, action_space=TEXT_SPACE, model_config={"dtype": "float32", **config})


def policy(model_dir: Path | str, **keys: Any) -> Any:
    return build(CausalLMModule, **specs(model_dir, **keys)["default_policy"])


def with_adapters(model_dir: Path, **keys: Any) -> Any:
    """A policy whose adapters are not at zero."""
    module, generator = policy(model_dir, lora_rank=2, lora_alpha=6, **keys), torch.Generator().manual_seed(0)
    for name, parameter in module.lm.named_parameters():
        if "lora_" in name:
            parameter.data.normal_(0, 0.2, generator=generator)
    return module


Batch = tuple[torch.Tensor, torch.Tensor]


def saved(folder: Path, model: Any) -> Path:
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder)
    return folder


def trie_batch(seed: int = 0) -> Batch:
    """Rows of two tries with up to four levels, equal rows, rows within others, and a row that scores nothing."""
    rng, rows = np.random.default_rng(seed), list[list[int]]()

    def grow(path: list[int], left: int) -> None:
        if not left:
            rows.append(path)
        for _ in range(left and int(rng.integers(1, 4))):
            grow(path + rng.integers(0, 60, int(rng.integers(3, 12))).tolist(), left - 1)

    for _ in range(2):
        grow(rng.integers(0, 60, 20).tolist(), 3)
    rows += [rows[0], rows[1][:14], rows[2][:25], [7, 8, 9]]
    order = rng.permutation(len(rows))
    ids, mask = (torch.zeros(len(rows), max(map(len, rows)), dtype=kind) for kind in (torch.long, torch.float32))
    for line, number in enumerate(order):
        row = rows[number]
        ids[line, : len(row)] = torch.tensor(row)
        mask[line, 1 : len(row)] = torch.from_numpy(rng.random(len(row) - 1) < 0.4).float()
    mask[2] = 0
    return ids, mask


def outcome(
    module: Any, batch: Batch, packed: bool, share: bool = True
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Scores, and the gradient of a nonlinear function of all of them."""
    ids, mask = batch
    inputs: dict[str, Any] = {"input_ids": ids, "mask": mask, "temperature": 0.7, "entropy_gradient": True}
    if packed:
        inputs["packed"] = pack_rows(ids, mask, WIDE, share=share)
    module.train()
    module.zero_grad()
    scores = module.forward_train(inputs)
    weights = torch.linspace(-1, 1, ids.numel(), dtype=torch.float64).view(ids.shape)
    sum(((0.5 * score).exp() * weights * mask).sum() for score in scores.values()).backward()  # type: ignore[union-attr]
    gradients = [p.grad.flatten().double() for p in module.parameters() if p.grad is not None]
    return scores, torch.cat(gradients)


def check_equal(module: Any, batch: Batch, tolerance: float, share: bool = True) -> None:
    expected, found = outcome(module, batch, packed=False), outcome(module, batch, packed=True, share=share)
    assert (expected[1] - found[1]).norm() < tolerance * expected[1].norm()
    for name, score in expected[0].items():
        assert found[0][name].dtype == score.dtype and score.abs().sum() > 0
        assert (found[0][name] - score).abs().max() <= tolerance * score.abs().max(), name
