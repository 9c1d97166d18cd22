"""Which way weights travel, and what is refused in one line."""

from __future__ import annotations

from typing import Any

import pytest

from rl_agents.algorithms import Settings
from rl_agents.errors import InputError
from rl_agents.inference.base import EngineSettings
from rl_agents.inference.select import check_sleep, choose_transfer
from rl_agents.trainer.resolve import resolve


def settings(**keys: Any) -> Settings:
    return Settings.from_dict(keys)


APART = {"gpus_per_learner": 1, "gpus_per_engine": 1}
SHARED = {"gpus_per_learner": 0.4, "gpus_per_engine": 0.5}


@pytest.mark.parametrize(
    ("keys", "kind", "gpus", "way"),
    [
        ({}, "vllm", False, "object_store"),
        ({}, "torch", False, "object_store"),
        ({"num_env_runners": 0, **APART}, "vllm", True, "object_store"),
        (APART, "vllm", True, "nccl"),
        ({"gpus_per_learner": 1}, "vllm", True, "nccl"),  # engines get tensor_parallel GPUs
        ({"gpus_per_engine": 1}, "vllm", True, "object_store"),  # the learner is on a CPU
        ({**APART, "async_level": 1}, "vllm", True, "object_store"),
        ({**APART, "num_learners": 2, "learner_sharding": "fsdp"}, "vllm", True, "object_store"),
        (SHARED, "vllm", True, "ipc"),
        ({**SHARED, "num_engines": 2}, "vllm", True, "nccl"),
        ({"weight_transfer": "object_store", **APART}, "vllm", True, "object_store"),
    ],
)
def test_the_way(keys: dict[str, Any], kind: str, gpus: bool, way: str) -> None:
    choice = choose_transfer(settings(**keys), kind, gpus)
    assert (choice.way, choice.asked) == (way, "weight_transfer" in keys)


@pytest.mark.parametrize(
    ("keys", "kind", "why"),
    [
        ({"weight_transfer": "nccl"}, "torch", "the torch engine takes weights from the object store only"),
        ({"weight_transfer": "nccl", "num_env_runners": 0}, "vllm", "the engine is in the driver's process"),
        ({"weight_transfer": "nccl"}, "vllm", "learners and engines are not both on GPUs"),
        ({"weight_transfer": "nccl", **SHARED}, "vllm", "NCCL cannot put two ranks on one"),
        ({"weight_transfer": "ipc", **APART}, "vllm", "one learner and one engine on one GPU"),
        ({"weight_transfer": "ipc", **SHARED, "engine_mode": "async"}, "vllm", "set engine_mode=inprocess"),
        ({"weight_transfer": "nccl", **APART, "async_level": 1}, "vllm", "older weights than the learners hold"),
    ],
)
def test_what_cannot_work_is_refused(keys: dict[str, Any], kind: str, why: str) -> None:
    with pytest.raises(InputError, match=f"weight_transfer={keys['weight_transfer']}: .*{why}"):
        choose_transfer(settings(**keys), kind, False)


@pytest.mark.parametrize(
    ("keys", "kind", "gpus", "why"),
    [
        ({}, "vllm", False, "its CPU build has no sleep mode"),
        ({}, "torch", True, "only vLLM engines"),
        ({"async_level": 1}, "vllm", True, "with async_level or stream"),
    ],
)
def test_engines_that_cannot_sleep(keys: dict[str, Any], kind: str, gpus: bool, why: str) -> None:
    check_sleep(settings(**keys), kind, gpus)
    with pytest.raises(InputError, match=f"engine_sleep=1: .*{why}"):
        check_sleep(settings(engine_sleep=1, **keys), kind, gpus)


def test_a_run_says_so_before_it_starts() -> None:
    with pytest.raises(InputError, match="weight_transfer=nccl: the torch engine"):
        resolve(settings(engine="torch", weight_transfer="nccl"), with_model=False)


def test_gloo_is_gone_in_one_line() -> None:
    with pytest.raises(InputError, match=r"weight_transfer.*gloo.*object_store"):
        resolve(settings(weight_transfer="gloo"), with_model=False)


def test_an_engine_that_cannot_take_them_is_not_described() -> None:
    with pytest.raises(ValueError, match="no engine of kind 'torch' takes weights by 'nccl'"):
        EngineSettings("x", weight_transfer="nccl")
