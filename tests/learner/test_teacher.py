"""The KL to a teacher over the vocabulary, in every layout; a server's log-probabilities; and whole runs."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learner.learners import build_group, family_rows, largest_difference, random_rows
from learner.networks import needs_peft
from learner.references import clipped_gradients, differences, distributions
from loopback import Reply, Request, loopback
from trained import running, train
from transformers import AutoModelForCausalLM

from rl_agents.data.samples import Row, teacher_rows
from rl_agents.errors import InputError
from rl_agents.learner.training_data import AgentTrainingData
from rl_agents.losses import full_kl
from rl_agents.trainer.algorithm import AgentConfig

KEYS: dict[str, Any] = {"algo": "distill", "kl_coef": 0.0, "minibatches": 1, "grad_clip": 0.5, "temperature": 0.7}
FULL: dict[str, Any] = {**KEYS, "teacher_kl": "full", "ref_kl_coef": 0.5}


def test_the_divergence_by_hand() -> None:
    """p = (3/4, 1/4), q = (1/2, 1/2): 3/4·ln(3/2) + 1/4·ln(1/2) = 0.13081."""
    p, q = torch.tensor([[0.75, 0.25]]).log().requires_grad_(), torch.tensor([[0.5, 0.5]]).log()
    assert full_kl(p, q).item() == pytest.approx(0.130812, abs=1e-6)
    assert full_kl(q, q).item() == 0.0


def with_noise(folder: Path, scale: float, seed: int, copy: Path) -> Path:
    """Copy a model's folder, with noise in its weights."""
    shutil.copytree(folder, copy)
    model, noise = AutoModelForCausalLM.from_pretrained(folder), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=noise))
    model.save_pretrained(copy)
    return copy


@pytest.fixture(scope="module")
def teacher_dir(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_noise(tiny_model_dir, 0.05, 3, tmp_path_factory.mktemp("made") / "teacher")


def taught(rows: list[Row]) -> list[Row]:
    """Half of the rows have a hint before their first step."""
    for row in rows:
        row.components["ref_kl"], row.advantages = row.mask * np.float32(0.5), row.mask * 0
        row.hints = {0: (1, [7, 8, 9])} if row.trajectory % 2 else {}
    return rows


def test_the_gradient_of_the_whole_divergence(tiny_model_dir: Path, teacher_dir: Path) -> None:
    group, settings = build_group(str(tiny_model_dir), **FULL, teacher=str(teacher_dir))
    plain, teacher = (AutoModelForCausalLM.from_pretrained(place).eval() for place in (tiny_model_dir, teacher_dir))
    rows, loss, count = taught(random_rows(6, 60)), torch.zeros((), dtype=torch.float64), 0
    for row in rows:
        mine = distributions(plain, row, 0.7)[np.flatnonzero(row.mask) - 1]
        read = teacher_rows(row)
        with torch.no_grad():
            theirs = torch.cat([distributions(teacher, part, 0.7)[np.flatnonzero(part.mask) - 1] for part in read])
        loss, count = loss + (mine.exp() * (mine - theirs)).sum(), count + len(mine)
    loss = 0.5 * loss / count
    expected, _ = clipped_gradients(plain, loss)
    metrics = group.learn(AgentTrainingData.build(rows, settings, np.random.default_rng(0)))
    moments = group.full_state()["optimizer"]["moments"]
    assert max(differences(moments, "default_policy", {f"lm.{name}": g for name, g in expected.items()})) < 1e-4
    assert metrics["actor/ref_kl_loss"] == pytest.approx(float(loss.detach()), rel=1e-4)
    assert metrics["actor/ref_kl"] == pytest.approx(2 * float(loss.detach()), rel=1e-4)


SMALL, PACKED, SHARED = {"tokens_per_microbatch": 150}, {"sequence_packing": True}, {"prefix_sharing": True}


@pytest.mark.parametrize(
    ("name", "keys", "lora"),
    [
        ("teacher", SMALL, 0), ("teacher", PACKED, 0), ("policy", SHARED, 0), ("policy", SMALL, 0),
        pytest.param("teacher", SHARED, 2, marks=needs_peft), pytest.param("policy", PACKED, 2, marks=needs_peft),
    ],
    ids=str,
)  # fmt: skip
def test_layouts_and_pieces_change_no_update(
    tiny_model_dir: Path, teacher_dir: Path, name: str, keys: dict[str, Any], lora: int
) -> None:
    found = []
    for more, piece in (({}, None), (keys, 7)):
        teacher = str(teacher_dir) if name == "teacher" else name
        group, settings = build_group(str(tiny_model_dir), **FULL, **more, teacher=teacher, lora_rank=lora)
        group._learner.policy.piece = piece
        group.learn(AgentTrainingData.build(taught(family_rows()), settings, np.random.default_rng(0)))
        moments = group.full_state()["optimizer"]["moments"]
        found.append({name: t for name, t in moments.items() if name.endswith("exp_avg")})
    assert largest_difference(*found) < 2e-5


async def plain(request: Request) -> Reply:
    """Reply as a completions API without log-probabilities of prompts."""
    return Reply(b'{"choices": [{"text": "x", "index": 0}]}')


def test_a_server_without_prompt_logprobs_is_refused_before_anything_starts(beginner_model_dir: Path) -> None:
    with loopback(plain) as server:
        keys = {"algo": "distill", "teacher_url": server.url, "teacher_model": "t", "model": str(beginner_model_dir)}
        with pytest.raises(InputError, match=f"={server.url}: no log-probabilities of the prompt in its reply"):
            AgentConfig().environment("guess_numbers").training(**keys).local().build_algo()


@pytest.fixture(scope="module")
def student_dir(beginner_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_noise(beginner_model_dir, 0.02, 0, tmp_path_factory.mktemp("made") / "student")


@pytest.mark.parametrize(
    ("keys", "tag"),
    [
        ({"algo": "distill"}, "actor/teacher_kl"),
        ({"algo": "grpo", "ref_kl_coef": 1.0, "group_size": 2}, "actor/ref_kl"),
    ],
    ids=str,
)
def test_the_student_approaches_the_teacher(
    beginner_model_dir: Path, student_dir: Path, keys: dict[str, Any], tag: str
) -> None:
    sizes = {"tasks_per_iteration": 48, "lr": 6e-4, "iterations": 5}
    with running(student_dir, **sizes, **keys, teacher=str(beginner_model_dir)) as algo:
        found = [metrics[tag] for metrics in train(algo, 5)]
    assert found[0] > 0.15 and min(found[2:]) < 0.8 * found[0], found


def test_a_policy_cannot_teach_itself_without_hints(beginner_model_dir: Path) -> None:
    said = r"teacher=policy: no episode of env=guess_numbers has info\['hint'\]"
    with running(beginner_model_dir, algo="distill", teacher="policy") as algo, pytest.raises(InputError, match=said):
        algo.train()
