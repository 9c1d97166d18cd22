"""Checks of a small model of a family with PyTorch: each returns a number, or the reason of a refusal."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, distributed

from benchmarks.model_families.families import Family, save_model
from rl_agents.envs.gymnasium_adapter import TEXT_SPACE
from rl_agents.errors import InputError
from rl_agents.inference.base import Sampling
from rl_agents.inference.model_shape import model_shape, read_config
from rl_agents.inference.torch_engine import TorchEngine
from rl_agents.inference.torch_model import load_causal_lm
from rl_agents.learner import chunked_logprobs
from rl_agents.learner.fsdp import full_tensor, learner_mesh, shard_network
from rl_agents.learner.hf import save_hf_folder
from rl_agents.learner.learner import ADAPTER, TENSORS, save_adapter
from rl_agents.learner.model_check import check_model
from rl_agents.learner.prefix_attention import pack_rows
from rl_agents.learner.prefix_sharing import WIDE
from rl_agents.learner.rl_modules import CausalLMModule, Network, ValueModule

#: Tokens of the longest row, longer than any window; range of token ids.
LENGTH, WORDS = 96, (8, 300)
TEMPERATURE = 0.7


@dataclass(frozen=True)
class Finding:
    """The result of a check: a number (mostly a largest difference) and a remark."""

    value: float | None = None
    said: str = ""


@dataclass(frozen=True)
class Case:
    """A family's small model in a folder."""

    family: Family
    folder: Path

    def build(self, kind: type[Network] = CausalLMModule, **config: Any) -> Any:
        keys = {"model_dir": str(self.folder), "dtype": "float32", **config}
        return kind(observation_space=TEXT_SPACE, action_space=TEXT_SPACE, model_config=keys)

    @cached_property
    def module(self) -> Any:
        return self.build()

    @cached_property
    def scores(self) -> Tensor:
        found: Tensor = self.module.forward_train(batch())["logprobs"].detach()
        return found


def batch(length: int = LENGTH) -> dict[str, Any]:
    """Return three rows with a common beginning; most of their tokens are scored."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(*WORDS, (3, length), generator=generator)
    ids[1, : length // 2] = ids[0, : length // 2]
    ids[2, : length // 4] = ids[0, : length // 4]
    mask = torch.ones(ids.shape)
    mask[:, :10] = 0
    mask[1, length - 7 :] = 0
    return {"input_ids": ids, "mask": mask, "temperature": TEMPERATURE}


def gap(one: Tensor, other: Tensor) -> float:
    return float((one - other).detach().abs().max())


def loads(case: Case) -> Finding:
    """Number of parameters; the checks before a run pass."""
    check_model(case.folder)
    shape = model_shape(read_config(case.folder))
    return Finding(float(sum(p.numel() for p in case.module.lm.parameters())), "" if shape else "shape not read")


def learner(case: Case) -> Finding:
    """Difference from transformers' own forward pass; every parameter has a gradient."""
    module, data = case.module, batch()
    module.zero_grad()
    module.train()
    module.forward_train(data)["logprobs"].exp().sum().backward()
    without = [n for n, p in module.lm.named_parameters() if p.grad is None or not bool(torch.isfinite(p.grad).all())]
    plain = type(module.lm).from_pretrained(case.folder, attn_implementation="eager").eval()
    with torch.no_grad():
        table = torch.log_softmax(plain(input_ids=data["input_ids"]).logits[:, :-1] / TEMPERATURE, -1)
    expected = table.gather(-1, data["input_ids"][:, 1:, None])[..., 0] * data["mask"][:, 1:]
    said = f"no gradient: {', '.join(without[:2])}" if without else ""
    return Finding(gap(expected, case.scores[:, 1:]), said)


def torch_engine(case: Case) -> Finding:
    """Difference of the torch engine's logprobs, before and after a weight update by names of files."""
    family, length = case.family, 60 if case.family.window else 120
    engine = TorchEngine(case.folder, max_model_len=length)
    moved = moved_module(case)
    prompts = batch()["input_ids"][:, : length - 30].tolist()
    worst = engine_gap(engine, case.module, prompts)
    asyncio.run(engine.load_weights(dict(moved.merged_weights()), 1))
    worst = max(worst, engine_gap(engine, moved, prompts))
    return Finding(worst, f"within its window of {family.window}" if family.window else "")


def moved_module(case: Case) -> Any:
    moved, generator = deepcopy(case.module), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in moved.lm.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return moved


def engine_gap(engine: Any, module: Any, prompts: list[list[int]]) -> float:
    """Return the largest difference between the logprobs of engine and learner for sampled tokens."""

    async def together() -> list[Any]:
        sampling = [Sampling(max_tokens=12, temperature=TEMPERATURE, seed=i) for i in range(len(prompts))]
        return await asyncio.gather(*(engine.generate(p, s) for p, s in zip(prompts, sampling, strict=True)))

    answers = [(each.token_ids, each.logprobs) for each in asyncio.run(together())]
    return samples_gap(module, prompts, answers)


def samples_gap(module: Any, prompts: list[list[int]], answers: Any) -> float:
    """As `engine_gap`, for answers as (ids, logprobs)."""
    worst = 0.0
    for prompt, (ids, logprobs) in zip(prompts, answers, strict=True):
        row = torch.tensor([[*prompt, *ids]])
        mask = torch.zeros(row.shape)
        mask[:, len(prompt) :] = 1
        with torch.no_grad():
            scores = module.forward_train({"input_ids": row, "mask": mask, "temperature": TEMPERATURE})["logprobs"]
        worst = max(worst, gap(scores[0, len(prompt) :], torch.tensor(logprobs)))
    return worst


def shared_rows(case: Case) -> Finding:
    """Difference between ``prefix_sharing=true`` and flat rows."""
    length = 60 if case.family.window else LENGTH
    module, data = case.build(shared_rows=length), batch(length)
    packed = pack_rows(data["input_ids"], data["mask"], WIDE)
    flat = case.module.forward_train(data)["logprobs"]
    return Finding(gap(module.forward_train({**data, "packed": packed})["logprobs"], flat), window_said(case.family))


def window_said(family: Family) -> str:
    return f"within its window of {family.window}" if family.window else ""


def in_pieces(case: Case) -> Finding:
    """Difference between chunked and whole logits; refused if the logits are not the head's output."""
    module, whole = case.module, chunked_logprobs.LOGITS_AT_ONCE
    vocabulary = module.lm.config.get_text_config().vocab_size
    chunked_logprobs.LOGITS_AT_ONCE = chunked_logprobs.LOGIT_BYTES * vocabulary * 7
    try:
        module.piece = chunked_logprobs.piece_size(module.lm)
    finally:
        chunked_logprobs.LOGITS_AT_ONCE = whole
    if module.piece is None:
        return Finding(said="all at once: the logits are not the head's outputs alone")
    try:
        return Finding(gap(module.forward_train(batch())["logprobs"], case.scores))
    finally:
        module.piece = None


def lora(case: Case) -> Finding:
    """Difference between a policy with adapters and the plain model with merged adapters or with peft's folder.

    The remark lists the matrices with adapters.
    """
    module, generator = case.build(lora_rank=2, lora_alpha=4.0), torch.Generator().manual_seed(1)
    for name, parameter in module.lm.named_parameters():
        if "lora_" in name:
            parameter.data.normal_(0, 0.2, generator=generator)
    adapted = module.forward_train(batch())["logprobs"]
    adapted.sum().backward()
    with tempfile.TemporaryDirectory() as folder:
        save_hf_folder(Path(folder), dict(module.merged_weights()), case.folder)
        merged = replace(case, folder=Path(folder)).build().forward_train(batch())["logprobs"]
        loaded = _with_folder(case, module.lm, Path(folder) / ADAPTER).forward_train(batch())["logprobs"]
    return Finding(max(gap(adapted, merged), gap(adapted, loaded)), ", ".join(sorted(set(_adapted(module.lm)))))


def _with_folder(case: Case, adapted: Any, folder: Path) -> Any:
    from peft import PeftModel

    save_adapter(folder, adapted, str(case.folder), str(case.folder))
    module = case.build()
    module.lm = PeftModel.from_pretrained(module.lm, str(folder))
    module.model_config["lora_rank"] = 2
    return module


def _adapted(model: Any) -> Iterator[str]:
    for name, layer in model.named_modules():
        if hasattr(layer, "get_delta_weight"):
            plain = name.replace(".base_layer", "").rsplit(".", 1)[1]
            yield f"{plain}.{layer.parameter_name}" if hasattr(layer, "parameter_name") else plain


def recomputed(case: Case) -> Finding:
    """Largest difference of gradients with activation checkpointing, relative to the largest gradient."""
    plain, frugal = case.module, case.build(activation_checkpointing="full")
    found = []
    for module in (plain, frugal):
        module.train()
        module.zero_grad()
        module.forward_train(batch())["logprobs"].exp().sum().backward()
        found.append(torch.cat([p.grad.flatten() for p in module.lm.parameters() if p.grad is not None]))
    return Finding(gap(*found) / float(found[0].abs().max()))


def round_trip(case: Case) -> Finding:
    """Difference after saving and loading, with tied and untied heads; also compares names of tensors."""
    worst = 0.0
    for tied in (True, False):
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
            save_model(case.family, Path(first), _NoTokenizer(), tie_word_embeddings=tied)
            module = replace(case, folder=Path(first)).build()
            save_hf_folder(Path(second), dict(module.merged_weights()), first)
            if (one := names_in(Path(first))) != (other := names_in(Path(second))):
                return Finding(said=f"tied={tied}: other names: {sorted(one ^ other)[:2]}")
            again = load_causal_lm(second, "float32")
            state = module.lm.state_dict()
            worst = max(worst, *(gap(tensor, state[name]) for name, tensor in again.state_dict().items()))
    return Finding(worst)


class _NoTokenizer:
    def __len__(self) -> int:
        return 311

    def save_pretrained(self, folder: Path) -> None:
        """Write nothing."""


def names_in(folder: Path) -> set[str]:
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        return set(file.keys())


def sharded(case: Case) -> Finding:
    """Difference of logprobs and of exported weights with FSDP2 (one process, gloo) and adapters."""
    with one_process():
        module, plain = (case.build(lora_rank=2, lora_alpha=4.0) for _ in range(2))
        plain.load_state_dict(module.state_dict())
        shard_network(module, learner_mesh(torch.device("cpu")))
        scores = module.forward_train(batch())["logprobs"]
        scores.sum().backward()
        exported = {name: full_tensor(tensor) for name, tensor in module.merged_weights()} | adapters_of(module)
    pairs = [*plain.merged_weights(), *adapters_of(plain).items()]
    worst = max(gap(tensor, exported[name]) for name, tensor in pairs)
    return Finding(max(gap(scores, plain.forward_train(batch())["logprobs"]), worst))


def adapters_of(module: Any) -> dict[str, Tensor]:
    with tempfile.TemporaryDirectory() as folder:
        save_adapter(Path(folder), module.lm, "", "")
        return load_file(Path(folder) / TENSORS)


@contextmanager
def one_process() -> Iterator[None]:
    """Open a process group with only this process, unless there is one."""
    made = not distributed.is_initialized()
    if made:
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        if made:
            distributed.destroy_process_group()


def critic(case: Case) -> Finding:
    """Largest value of a critic with this backbone and a nonzero head."""
    network = case.build(ValueModule)
    torch.nn.init.constant_(network.head.weight, 0.3)
    return Finding(float(network.forward_train(batch())["values"].detach().abs().max()))


CHECKS: Mapping[str, Callable[[Case], Finding]] = {
    "loads": loads, "learner": learner, "torch_engine": torch_engine, "shared_rows": shared_rows,
    "in_pieces": in_pieces, "lora": lora, "recomputed": recomputed, "round_trip": round_trip, "sharded": sharded,
    "critic": critic,
}  # fmt: skip


def check(case: Case) -> dict[str, Finding]:
    """Run all checks; a refused model is not tested further."""
    found: dict[str, Finding] = {}
    for name, function in CHECKS.items():
        try:
            found[name] = function(case)
        except InputError as error:
            found[name] = Finding(said=f"refused: {str(error).replace(str(case.folder), 'MODEL')}")
            if name == "loads":
                break
    return found
