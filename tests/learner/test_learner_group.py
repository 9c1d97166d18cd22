"""The same update whatever the number of learners and the micro-batch size, and what memory it takes."""

import copy
import sys
from typing import Any

import numpy as np
import pytest
import ray
import torch
from algorithms.handmade import episode
from learner.learners import (
    CORRECTED,
    VARIANTS,
    Learners,
    build_group,
    family_rows,
    largest_difference,
    prepared_rows,
    random_rows,
)
from learner.memory import BUCKET, LARGEST, WHOLE, exporting, peak, stepping
from ray import cloudpickle

from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.data.samples import build_samples
from rl_agents.data.trajectory import NEXT_PROMPT
from rl_agents.inference import weights
from rl_agents.inference.weights import unpack
from rl_agents.learner.training_data import AgentTrainingData

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # learner actors cannot import tests


@pytest.mark.parametrize("algo", ["ppo", "steppo"])
@pytest.mark.parametrize("layout", ["merged", "per_step"])
def test_the_critic_reads_the_prompt_after_a_cut(tiny_model_dir: str, algo: str, layout: str) -> None:
    keys = {"algo": algo, "kl_coef": 0.0, "bootstrap_on_truncation": True}
    group, _ = build_group(str(tiny_model_dir), **keys)
    torch.nn.init.normal_(group._learner.module["critic"].head.weight)
    whole, cut, unknown = (episode(0, [0.0] * count, lengths=[2] * count) for count in (3, 2, 2))
    for one in (cut, unknown):
        one.terminated, one.truncated = False, True
    cut.facts[NEXT_PROMPT] = whole.steps[2].prompt_ids
    rows = build_samples([whole, cut, unknown], layout)
    group.fill_scores(rows, [whole, cut, unknown], ALGORITHMS[algo])
    of = [[row for row in rows if row.trajectory == number] for number in range(3)]
    last = of[0][-1]
    assert last.values is not None
    next_value = float(last.values[np.flatnonzero(last.segments == 2)[0]])
    assert of[1][-1].value_after == pytest.approx(next_value, abs=1e-5) and next_value != 0.0
    assert of[2][-1].value_after not in (0.0, of[1][-1].value_after), "before the observation"
    assert not any(row.value_after for row in [*of[0], *of[1][:-1], *of[2][:-1]])
    group.config.agent.bootstrap_on_truncation = False
    rows = build_samples([cut], layout)
    group.fill_scores(rows, [cut], ALGORITHMS[algo])
    assert not any(row.value_after for row in rows)


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_same_update_with_remote_learners(local: Learners, remote: Learners, variant: str) -> None:
    expected, moments = local.updated(**VARIANTS[variant]), remote.updated(**VARIANTS[variant])
    assert largest_difference(expected[0], moments[0]) < 1e-5
    for name in ("actor/pg_loss", "actor/kl_reference", "critic/value_loss"):
        assert moments[1][name] == pytest.approx(expected[1][name], rel=1e-4, abs=1e-7), name


def test_shared_and_packed_rows_give_the_same_update_with_any_learners(local: Learners, remote: Learners) -> None:
    """Each learner gets a part of the trie or of the rows, and sharded ones go through equally many passes."""
    keys = {"families": True, "tokens_per_microbatch": 150}
    expected, shared = local.updated(**keys), remote.updated(**keys, prefix_sharing=True)
    for found in (shared, remote.updated(**keys, sequence_packing=True)):
        assert largest_difference(expected[0], found[0]) < 1e-5
        for name in ("actor/pg_loss", "actor/kl_reference", "critic/value_loss"):
            assert found[1][name] == pytest.approx(expected[1][name], rel=1e-4, abs=1e-7), name
    rows = family_rows()
    for network in ("default_policy", "critic", "reference"):
        pairs = zip(local.group.score(rows, network), remote.group.score(rows, network), strict=True)
        assert all(found == pytest.approx(expected, abs=1e-5) for expected, found in pairs), network


def test_a_state_moves_between_one_learner_and_several(local: Learners, remote: Learners, monkeypatch) -> None:
    """What a checkpoint holds: both go on from it alike, whoever has written it."""
    for writer in (local, remote):
        writer.updated()
        state = writer.group.full_state()
        assert state["optimizer"]["steps"] == 1
        for learners in (local, remote):  # an optimizer goes on in the moments that it is given
            monkeypatch.setattr(learners, "start", copy.deepcopy(state))
        expected, found = local.updated(), remote.updated()
        assert largest_difference(expected[0], found[0]) < 1e-5
        assert found[1]["actor/pg_loss"] == pytest.approx(expected[1]["actor/pg_loss"], rel=1e-4)
        monkeypatch.undo()


def test_sharded_learners_hold_half_of_the_numbers_each(local: Learners, remote: Learners) -> None:
    held = [answer.get() for answer in remote.group.foreach_learner(numbers_held)]
    share = 2 if remote.group.config.agent.learner_sharding == "fsdp" else 1
    full = numbers_held(local.group._learner)
    assert all(abs(mine - full / share) < 0.02 * full for mine in held), (held, full)


def numbers_held(learner: Any) -> int:
    tensors = [p.to_local() if hasattr(p, "to_local") else p for p in learner.policy.parameters()]
    return sum(tensor.numel() for tensor in tensors)


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_same_update_with_any_micro_batch_size(local: Learners, variant: str) -> None:
    moments, _ = local.updated(**VARIANTS[variant], tokens_per_microbatch=50)
    assert largest_difference(local.updated(**VARIANTS[variant])[0], moments) < 1e-5


def test_another_loss_gives_another_update(local: Learners) -> None:
    moments, _ = local.updated(loss_agg_mode="seq-mean-token-mean")
    assert largest_difference(local.updated()[0], moments) > 1e-2


def test_rejected_rows_leave_denominators_and_corrections_scale_tokens(local: Learners) -> None:
    assert largest_difference(local.updated(algo="grpo")[0], local.updated(**CORRECTED)[0]) > 1e-2


def test_the_critics_head_runs_on_step_boundaries_only(local: Learners) -> None:
    critic, seen = local.group._learner.module["critic"], []
    hook = critic.head.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].shape[0]))
    local.updated(algo="steppo")
    hook.remove()
    rows = prepared_rows(Settings.from_dict({"algo": "steppo"}))
    assert sum(seen) == sum(int(row.value_mask.sum()) for row in rows)  # type: ignore[union-attr]
    assert sum(seen) < sum(int(row.mask.sum()) for row in rows)


@pytest.mark.parametrize("sharding", ["none", "fsdp"])
def test_small_steps_move_weights_that_are_used_in_bfloat16(ray_session, tiny_model_dir, sharding: str) -> None:
    keys = {"dtype": "bfloat16", "lr": 1e-6, "critic_lr": 1e-6, "num_learners": 2 if sharding == "fsdp" else 0}
    group, settings = build_group(tiny_model_dir, learner_sharding=sharding, **keys)
    try:
        before = copy.deepcopy(group.full_state()["rl_module"])
        metrics = group.learn(AgentTrainingData.build(random_rows(8, 60), settings, np.random.default_rng(0)))
        after = group.full_state()["rl_module"]
        exported = group.export_weights()
        exported = ray.get(exported) if group.is_remote else exported
    finally:
        group.shutdown()
    for network in ("default_policy", "critic"):
        moved = [not torch.equal(before[network][name], after[network][name]) for name in before[network]]
        assert {tensor.dtype for tensor in after[network].values()} == {torch.float32}
        assert sum(moved) > 0.9 * len(moved)
    assert {tensor.dtype for tensor in unpack(exported).values()} == {torch.bfloat16}
    assert np.isfinite(metrics["actor/grad_norm"]) and np.isfinite(metrics["critic/grad_norm"])


# --- memory


def test_weights_leave_in_buckets(local: Learners, remote: Learners) -> None:
    for learners in (local, remote):
        learners.group.load_full_state(learners.start)
    assert peak(remote.group, exporting) <= BUCKET + 2 * LARGEST < WHOLE / 2
    packed = ray.get(remote.group.export_weights())
    assert len(packed) >= WHOLE / BUCKET and max(bucket.buffer.nbytes for bucket in packed) <= BUCKET
    expected, found = unpack(local.group.export_weights()), unpack(packed)
    assert set(found) == set(expected) and all(torch.equal(found[name], expected[name]) for name in expected)


def test_the_norm_of_gradients_takes_no_vector_of_all(remote: Learners) -> None:
    assert peak(remote.group, stepping) <= LARGEST


@pytest.mark.parametrize(("sharding", "learners"), [("fsdp", 2), ("none", 0)])
def test_adapters_are_merged_one_by_one(
    ray_session: None, tiny_model_dir: str, monkeypatch: pytest.MonkeyPatch, sharding: str, learners: int
) -> None:
    monkeypatch.setattr(weights, "BUCKET_BYTES", BUCKET)  # in this process, where one learner is
    keys = {"algo": "grpo", "kl_coef": 0.0, "lora_rank": 4, "num_learners": learners, "learner_sharding": sharding}
    group, _ = build_group(tiny_model_dir, **keys)
    try:
        assert peak(group, exporting) <= BUCKET + 3 * LARGEST < WHOLE
    finally:
        group.shutdown()
