"""Adapters side by side over one base: the request's model chooses, and each answers as merged weights would.

The engine is a real vLLM in an actor; the rest is the service in this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from in_process import Server, problem
from scripted_model import MAX_TOKENS, write_babbler

pytest.importorskip("vllm", reason="vLLM is not installed")
pytest.importorskip("peft")

import peft

from rl_agents.errors import InputError
from rl_agents.inference import Completion, EngineSettings, Sampling, select
from rl_agents.inference.base import Extras
from rl_agents.inference.client import RemoteEngine
from rl_agents.inference.engine_group import InferenceGroup
from rl_agents.learner.learner import save_adapter
from rl_agents.serving.app import engine_settings
from rl_agents.serving.options import ServingOptions
from rl_agents.serving.source import find_adapters, find_checkpoint, served_settings

pytestmark = pytest.mark.ray  # it starts vLLM
NAMES = ("plain", "bold")
RUN = {"max_model_len": MAX_TOKENS, "max_response_tokens": 16, "env.prompt": "compact"}


class Hosted:
    """What `build_engine` returns here: vLLM in another process."""

    dead = None

    def __init__(self, settings: EngineSettings) -> None:
        self.group = InferenceGroup(settings, num_cpus=0.5)
        self._engine = RemoteEngine(self.group.handles())

    async def generate(self, prompt: Sequence[int], sampling: Sampling, on_tokens: Any = None) -> Completion:
        return await self._engine.generate(prompt, sampling)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_babbler(tmp_path_factory.mktemp("models") / "babbler")


@pytest.fixture(scope="module")
def models(base: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The base, and base with each adapter, by name; ``folder`` holds the adapters."""
    from transformers import AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("adapters")
    found: dict[str, Any] = {"babbler": AutoModelForCausalLM.from_pretrained(base).eval(), "folder": folder}
    for number, name in enumerate(NAMES, 1):
        config = peft.LoraConfig(r=4 * number, target_modules="all-linear", task_type="CAUSAL_LM")
        model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base), config).eval()
        generator = torch.Generator().manual_seed(number)
        for parameter_name, parameter in model.named_parameters():
            if "lora_" in parameter_name:
                parameter.data.normal_(0, 0.1, generator=generator)
        save_adapter(folder / name, model, str(base), str(base))
        found[name] = model
    return found


@pytest.fixture(scope="module")
def server(ray_session: None, base: Path, models: dict[str, Any]) -> Iterator[Server]:
    adapters = ",".join(f"{name}={models['folder'] / name}" for name in NAMES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(select, "build_engine", Hosted)
        server = Server(base, engine="vllm", adapters=adapters, kv_cache_gb=0.0625, **RUN)
    yield server
    server.policy._engine.group.stop()
    server.close()


@torch.no_grad()
def distance(model: Any, prompt: list[int], completion: Completion) -> float:
    logits = model(torch.tensor([prompt + completion.token_ids])).logits[0, len(prompt) - 1 : -1]
    expected = torch.log_softmax(logits, -1).gather(1, torch.tensor(completion.token_ids)[:, None])[:, 0]
    return (expected - torch.tensor(completion.logprobs)).abs().max().item()


def test_each_adapter_samples_as_peft_calculates_in_one_batch_with_its_base(
    server: Server, models: dict[str, Any]
) -> None:
    prompt = [5, 6, 7, 8]

    async def together() -> list[Completion]:
        def asked(name: str, seed: int) -> Any:
            extras = Extras(adapter="" if name == "babbler" else name)
            return server.policy._engine.generate(prompt, Sampling(12, seed=seed, extras=extras))

        return await asyncio.gather(*(asked(name, seed) for seed in range(3) for name in order))

    order = ["babbler", *NAMES]
    answers = server.run(together())
    for name, completion in zip(order * 3, answers, strict=True):
        own = distance(models[name], prompt, completion)
        others = [distance(models[other], prompt, completion) for other in order if other != name]
        assert own < 1e-3 and min(others) > 0.05, (name, own, others)


def test_the_model_of_a_request_chooses_and_the_answer_names_it(server: Server) -> None:
    said = {}
    for name in ("babbler", *NAMES):
        answer = server.chat(model=name, seed=5, max_tokens=8, temperature=0).json()
        assert (answer["model"], answer["system_fingerprint"]) == (name, name)
        said[name] = answer["choices"][0]["message"]["content"]
    assert len(set(said.values())) == 3, said
    body = {"model": "bold", "max_tokens": 8, "temperature": 0, "messages": [{"role": "user", "content": "hello"}]}
    answer = server.request("POST", "/v1/messages", body).json()
    assert answer["model"] == "bold" and answer["content"][0]["text"] == said["bold"]


def test_models_are_listed_and_others_are_404_in_each_dialect(server: Server) -> None:
    listed = server.request("GET", "/v1/models").json()
    assert [(model["id"], model.get("parent")) for model in listed["data"]] == [
        ("babbler", None), ("plain", "babbler"), ("bold", "babbler"),
    ]  # fmt: skip
    assert server.request("GET", "/v1/models/bold").json()["root"] == "bold"
    status, code, message = problem(server.chat(model="boldd"))
    assert (status, code) == (404, "model_not_found")
    assert message == "the model 'boldd' does not exist: did you mean 'bold'? (served: babbler, plain, bold)"
    body = {"model": "zzz", "max_tokens": 8, "messages": [{"role": "user", "content": "hello"}]}
    error = server.request("POST", "/v1/messages", body)
    assert error.status_code == 404 and error.json()["error"]["type"] == "not_found_error"
    assert "valid: babbler, bold, plain" in error.json()["error"]["message"]
    status, _, message = problem(server.request("POST", "/admin/checkpoint", {"checkpoint": "x"}))
    assert status == 400 and "adapters belong to the base" in message


def test_adapters_that_cannot_be_served_are_one_line(base: Path, models: dict[str, Any], tmp_path: Path) -> None:
    found = find_checkpoint(base)

    def refused(named: str, words: str, **keys: Any) -> None:
        with pytest.raises(InputError, match=words):
            options = ServingOptions.read({"checkpoint": str(base), "adapters": named, **keys})[0]
            find_adapters(options.named_adapters(), found)

    refused("plain", "'plain' must be NAME=FOLDER")
    refused("a=x,a=y", "two are called 'a'")
    refused("a=x", "one of the two keys", follow=True)
    refused(f"a={tmp_path / 'none'}", "has no adapter_config.json")
    refused(f"a={base}", "not the output folder of a run")
    small = peft.LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    from transformers import AutoModelForCausalLM

    other = AutoModelForCausalLM.from_config(models["babbler"].config.__class__.from_dict(
        models["babbler"].config.to_dict() | {"intermediate_size": 48}
    ))  # fmt: skip
    save_adapter(tmp_path / "other", peft.get_peft_model(other, small), str(base), str(base))
    refused(f"a={tmp_path / 'other'}", "made for another base model: .*mlp")
    (run,) = (tmp_path / "run" / "checkpoints" / "000001",)
    (run / "hf").mkdir(parents=True)
    (run / "adapter").symlink_to(models["folder"] / "plain")
    for path in base.iterdir():
        (run / "hf" / path.name).symlink_to(path)
    with pytest.raises(InputError, match="has an adapter merged into it; serve adapters over the base model: --check"):
        find_adapters({"a": str(run)}, find_checkpoint(run))
    assert find_adapters({"a": str(run)}, found)[0].label == "run/000001"
    (tmp_path / "run" / "checkpoints" / "000002" / "adapter").mkdir(parents=True)
    for path in (models["folder"] / "plain").iterdir():
        (tmp_path / "run" / "checkpoints" / "000002" / "adapter" / path.name).symlink_to(path)
    assert find_adapters({"a": str(run.with_name("000002") / "adapter")}, found)[0].label == "run/000002"


def test_the_torch_engine_holds_none(base: Path, models: dict[str, Any]) -> None:
    options = ServingOptions.read({"checkpoint": str(base), "adapters": f"a={models['folder'] / 'plain'}"})[0]
    checkpoint = find_checkpoint(base)
    with pytest.raises(InputError, match="the torch engine holds one policy; they need engine=vllm"):
        engine_settings(options, served_settings(checkpoint, {**RUN, "engine": "torch"}), checkpoint)
