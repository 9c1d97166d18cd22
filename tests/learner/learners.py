"""Rows, learner groups, and every algorithm's settings, for the tests of this folder."""

import copy
import sys
from typing import Any

import numpy as np
import torch
from ray import cloudpickle

from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.data.samples import Row
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


CORRECTED = {"algo": "grpo", "rollout_correction": "token_tis", "old_logprobs": "learner"}

#: One of each way in which losses are summed: over tokens, steps and rows, with a critic, rejections and components.
VARIANTS: dict[str, dict[str, Any]] = {
    "sft": {"algo": "sft"},
    "gspo": {"algo": "gspo"},
    "steppo, mean over trajectories": {"algo": "steppo", "loss_agg_mode": "step-mean-in-traj"},
    "steppo, token arms": {"algo": "steppo", "steppo_credit": "token_gae", "ratio_level": "token"},
    "with rejected tokens": CORRECTED,
    "ppo with experts and a teacher": {
        "algo": "ppo", "expert_data": "table", "teacher": "hinted", "teacher_kl": "full", "ref_kl_coef": 0.2,
    },
}  # fmt: skip
