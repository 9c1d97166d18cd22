"""New weights in a real vLLM engine through its port: values, order of calls, updates that break off, sleep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("vllm", reason="vLLM is not installed")

from inference.transfer.engine_host import HostedEngine, settings, start_fork_server

from rl_agents.inference.base import Completion, Sampling
from rl_agents.inference.weights import PackedWeights, pack, unpack

pytestmark = pytest.mark.ray  # it starts vLLM

PROMPT = [5, 6, 7, 8, 9, 10]


@dataclass
class Rig:
    """An engine, and the learner's model."""

    folder: Path
    reference: Any
    engine: HostedEngine
    version: int = 0

    def changed(self) -> PackedWeights:
        """Move all weights; return the new ones."""
        self.version += 1
        generator = torch.Generator().manual_seed(self.version)
        with torch.no_grad():
            for parameter in self.reference.parameters():
                parameter += 0.02 * torch.randn(parameter.shape, generator=generator)
        return pack(self.reference.state_dict())

    def update(self) -> None:
        """Send new weights, and see that the engine samples with them."""
        self.engine.call("sync", self.changed(), self.version)
        self.assert_current()

    def assert_current(self) -> None:
        """The engine samples with the learner's weights."""
        completion = self.engine.generate(PROMPT)
        assert completion.policy_version == self.version
        assert distance(self.reference, completion) < 1e-4
        assert self.engine.call("state") == "ready"


@torch.no_grad()
def distance(model: Any, completion: Completion) -> float:
    logits = model(torch.tensor([PROMPT + completion.token_ids])).logits[0, len(PROMPT) - 1 : -1].float()
    expected = torch.log_softmax(logits, -1).gather(1, torch.tensor(completion.token_ids)[:, None])[:, 0]
    return (expected - torch.tensor(completion.logprobs)).abs().max().item()


@pytest.fixture(scope="module")
def rig(tiny_model_dir: Path) -> Iterator[Rig]:
    from transformers import AutoModelForCausalLM

    start_fork_server()
    engine = HostedEngine(settings(tiny_model_dir))
    reference = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32).eval()
    engine.call("ping", timeout_s=240)
    yield Rig(tiny_model_dir, reference, engine)
    engine.kill()


def test_every_update_arrives(rig: Rig) -> None:
    for _ in range(3):
        rig.update()


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        (["update"], "update while the weight transfer is ready"),
        (["finish"], "finish while the weight transfer is ready"),
        (["start", "start"], "start while the weight transfer is started"),
        (["start", "finish"], "finish while the weight transfer is started"),
        (["start", "update", "start"], "start while the weight transfer is updated"),
        (["close"], "no call 'close' in a weight transfer"),
    ],
)
def test_calls_out_of_order_are_refused_and_the_next_whole_update_mends(
    rig: Rig, calls: list[str], message: str
) -> None:
    payloads = {"update": {"rl_tensors": dict(rig.reference.state_dict())}}
    with pytest.raises(RuntimeError, match=message):
        rig.engine.call("transfer", [(name, payloads.get(name, {})) for name in calls], rig.version + 1)
    rig.update()


def test_the_rest_of_an_abandoned_update_does_not_get_into_the_next(rig: Rig) -> None:
    """vLLM counts the elements that a layer has got; left alone, the old ones make every later update fail."""
    weights = dict(rig.reference.state_dict())
    half = {name: -tensor for name, tensor in weights.items() if "q_proj" in name or "gate_proj" in name}
    calls = [("start", {}), ("update", {"rl_tensors": half}), ("update", {"no such payload": 1})]
    with pytest.raises(RuntimeError, match="update of version"):
        rig.engine.call("transfer", calls, rig.version + 1)
    assert rig.engine.call("state") == "broken"
    with pytest.raises(RuntimeError, match="cannot load weights"):
        rig.engine.generate(PROMPT)
    rig.update()


def test_an_engine_samples_nothing_between_start_and_finish(rig: Rig) -> None:
    rig.changed()
    engine = rig.engine
    engine.call("transfer", [("start", {})], rig.version)
    asked = engine.begin("generate", PROMPT, Sampling(max_tokens=4, temperature=0.0))
    assert not engine.pipe.poll(0.5)
    weights = {"rl_tensors": dict(rig.reference.state_dict())}
    engine.call("transfer", [("update", weights), ("finish", {})], rig.version)
    while asked not in engine.answers:
        assert engine.pipe.poll(30)
        engine.collect()
    assert distance(rig.reference, engine.answers.pop(asked)) < 1e-4
    rig.assert_current()


@pytest.mark.parametrize("level", [1, 2])
def test_a_sleeping_engine_wakes_with_an_update(rig: Rig, level: int) -> None:
    """vLLM's own sleep and wake by tags; on CPUs its worker frees nothing, so that this shows the calls only."""
    rig.update()
    rig.engine.call("sleep", level)
    assert rig.engine.call("state") == "asleep"
    rig.update()


def test_an_untied_head_and_bfloat16(rig: Rig, tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(rig.folder, tie_word_embeddings=False)
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config).eval()
    model.save_pretrained(tmp_path)
    engine = HostedEngine(settings(tmp_path, dtype="bfloat16"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn(parameter.shape)
    packed = pack(model.state_dict())
    assert "lm_head.weight" in unpack(packed)
    engine.call("sync", packed, 1, timeout_s=240)
    completion = engine.generate(PROMPT)
    assert distance(model.bfloat16(), completion) < 0.1
    half = pack({name: tensor.bfloat16() for name, tensor in unpack(packed).items()})  # half the bytes, equal values
    engine.call("sync", half, 1)
    assert engine.generate(PROMPT) == completion
    engine.kill()
