"""The same update whatever the number of learners and the micro-batch size."""

import copy
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import ray
import torch
from algorithms.handmade import episode
from ray import cloudpickle

from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.data.samples import Row, build_samples
from rl_agents.data.trajectory import NEXT_PROMPT
from rl_agents.inference.weights import unpack
from rl_agents.learner.batching import PER_TOKEN
from rl_agents.learner.learner_group import AgentLearnerGroup
from rl_agents.learner.training_data import AgentTrainingData
from rl_agents.trainer.algorithm import AgentConfig

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # learner actors cannot import tests


def numbered_runs(mask: np.ndarray) -> np.ndarray:
    """Number the runs of sampled tokens as interaction steps, -1 between them."""
    starts = (mask > 0) & (np.r_[0, mask[:-1]] == 0)
    return np.where(mask > 0, np.cumsum(starts) - 1, -1).astype(np.int32)


def random_rows(count: int, vocabulary: int, seed: int = 0) -> list[Row]:
    rng = np.random.default_rng(seed)
    rows = []
    for index in range(count):
        length = int(rng.integers(6, 40))
        mask = (rng.random(length) < 0.5).astype(np.float32)
        mask[0], mask[-1] = 0, 1
        rows.append(
            Row(
                trajectory=index,
                group_id=index // 4,
                input_ids=rng.integers(0, vocabulary, length).astype(np.int32),
                mask=mask,
                logprobs=(-rng.random(length) * mask).astype(np.float32),
                segments=numbered_runs(mask),
                rewards=np.zeros(length, np.float32),
                advantages=(rng.standard_normal() * mask).astype(np.float32),
                values=(rng.standard_normal(length) * mask).astype(np.float32),
                returns=(rng.standard_normal(length) * mask).astype(np.float32),
                reference_logprobs=(-rng.random(length) * mask).astype(np.float32),
            )
        )
    return rows


def build_group(model_dir: str, **keys: object) -> tuple[AgentLearnerGroup, Settings]:
    config = AgentConfig()
    config.agent = Settings.from_dict({"algo": "ppo", "model": model_dir, "kl_coef": 0.01, **keys})
    config.model_dir = model_dir
    config.apply_settings()
    group = config.build_learner_group(rl_module_spec=config.get_multi_rl_module_spec())
    return group, config.agent


def family_rows() -> list[Row]:
    """Random rows of which four each begin with the same 60 tokens, half of them sampled; pairs go on alike."""
    rng, rows = np.random.default_rng(1), random_rows(12, 60)
    beginnings = rng.integers(0, 60, (3, 60)).astype(np.int32)
    for index, row in enumerate(rows):
        beginning = beginnings[index % 3]
        if index >= 6:
            row.input_ids[:4] = rows[index % 3].input_ids[:4]
        for name in PER_TOKEN:
            if (old := getattr(row, name)) is not None:
                new = beginning if name == "input_ids" else np.resize(old, 60).astype(old.dtype)
                setattr(row, name, np.concatenate([new, old]))
        row.mask[0] = 0
        row.segments = numbered_runs(row.mask)
        for name in ("logprobs", "advantages", "values", "returns", "reference_logprobs"):
            setattr(row, name, getattr(row, name) * row.mask)
    return rows


def prepared_rows(settings: Settings, families: bool = False) -> list[Row]:
    """Random rows with the marks that the algorithm's learner reads; some tokens are corrected, a row is rejected."""
    recipe = ALGORITHMS[settings.algo]
    rows = family_rows() if families else random_rows(12, 60)
    for row in rows:
        if recipe.value_mask is not None:
            row.value_mask = recipe.value_mask(row, settings)
        if settings.rollout_correction != "none":
            row.correction = row.mask * np.linspace(0.5, 1.5, len(row), dtype=np.float32)
    if settings.rollout_correction != "none":
        rows[3].mask = rows[3].mask * 0
    for row in rows if settings.ref_kl_coef else ():
        row.components["ref_kl"] = row.mask * np.float32(settings.ref_kl_coef)
        row.hints = {0: (1, [7, 8])} if row.trajectory % 3 else {}
    for row in rows[::4] if settings.expert_data else ():
        row.expert, row.components, row.mask = True, {"ce": row.mask * np.float32(0.3)}, row.mask * 0
        for name in ("advantages", "values", "value_mask", "returns", "reference_logprobs", "correction"):
            setattr(row, name, None)
    return rows


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


class Become:
    """Makes a learner one of other settings, as it was before its first step."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def __call__(self, learner: Any) -> None:
        learner.settings, learner.recipe = self.settings, ALGORITHMS[self.settings.algo]


Update = tuple[dict[str, torch.Tensor], dict[str, float]]


class Learners:
    """A group that is built once and plays every algorithm: it has policy and critic, and may share rows or not."""

    def __init__(self, model_dir: str, num_learners: int, sharding: str = "none", prefixes: bool = True) -> None:
        keys = {"num_learners": num_learners, "learner_sharding": sharding, "prefix_sharing": prefixes}
        keys |= {"teacher": str(model_dir)}
        self.group, _ = build_group(model_dir, grad_clip=0.5, **keys)
        self.start = copy.deepcopy(self.group.full_state())  # a local group's state shares memory with its weights

    def updated(self, algo: str = "ppo", families: bool = False, **keys: object) -> Update:
        """First moments after one optimizer step (a tenth of the clipped gradient) and the metrics of the step.

        Weights would not do: Adam divides by the gradient's size, which blows the noise of tiny gradients up.
        """
        given = {"algo": algo, "kl_coef": 0.01, "minibatches": 1, "grad_clip": 0.5, **keys}
        settings = Settings.from_dict({"learner_sharding": self.group.config.agent.learner_sharding, **given})
        settings.set_defaults(ALGORITHMS[algo].defaults)
        self.group.load_full_state(self.start)
        if self.group.is_local:
            Become(settings)(self.group._learner)
        else:
            self.group._call([Become(settings)] * len(self.group), "changing settings")
        data = AgentTrainingData.build(prepared_rows(settings, families), settings, np.random.default_rng(0))
        metrics = self.group.learn(data)
        moments = self.group.full_state()["optimizer"]["moments"]
        return {name: t.clone() for name, t in moments.items() if name.endswith("exp_avg")}, metrics


def largest_difference(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    assert set(a) == set(b)
    return max(float((a[name] - b[name]).abs().max() / a[name].abs().max().clamp_min(1e-9)) for name in a)


@pytest.fixture(scope="module")
def local(tiny_model_dir: str) -> Learners:
    return Learners(tiny_model_dir, 0, prefixes=False)


@pytest.fixture(scope="module", params=[(2, "none"), (2, "fsdp")], ids=["two", "sharded"])
def remote(ray_session: None, tiny_model_dir: str, request: pytest.FixtureRequest) -> Iterator[Learners]:
    learners = Learners(tiny_model_dir, *request.param)
    yield learners
    learners.group.shutdown()


CORRECTED = {"algo": "grpo", "rollout_correction": "token_tis", "old_logprobs": "learner"}


def learners_part(name: str) -> tuple[Any, ...]:
    """What of an algorithm the learner reads: algorithms in which it is equal differ in credit alone."""
    recipe, settings = ALGORITHMS[name], Settings.from_dict({"algo": name})
    settings.set_defaults(recipe.defaults)
    return recipe.policy_loss, recipe.value_mask, bool(recipe.critic), settings.loss_agg_mode, settings.ratio_level


VARIANTS: dict[str, dict[str, Any]] = {
    **{name: {"algo": name} for name in {learners_part(name): name for name in reversed(ALGORITHMS)}.values()},
    "steppo, mean over trajectories": {"algo": "steppo", "loss_agg_mode": "step-mean-in-traj"},
    "steppo, token arms": {"algo": "steppo", "steppo_credit": "token_gae", "ratio_level": "token"},
    "with rejected tokens": CORRECTED,
    "ppo with rejected tokens": {**CORRECTED, "algo": "ppo"},
    "ppo with experts and a teacher": {
        "algo": "ppo",
        "expert_data": "table",
        "teacher": "hinted",
        "teacher_kl": "full",
        "ref_kl_coef": 0.2,
    },
}


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
    critic.head.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].shape[0]))
    local.updated(algo="steppo")
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
