"""The learner: optimizer steps on weighted token rows."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ray.rllib.core import COMPONENT_RL_MODULE
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from safetensors.torch import save_file
from torch import distributed as dist

from rl_agents.algorithms import ALGORITHMS
from rl_agents.algorithms.base import AlgorithmSpec, LossInputs
from rl_agents.config import Settings
from rl_agents.data.samples import FloatArray, Row, teacher_rows
from rl_agents.inference.hub import HUB_NAME
from rl_agents.inference.weights import PackedWeights, buckets
from rl_agents.learner.batching import PADDED, SHARED, Layout, collate, laid_out, pad_weights
from rl_agents.learner.fsdp import (
    full_state_dict,
    gathered,
    is_rank_zero,
    learner_mesh,
    load_full_state_dict,
    max_over_learners,
    release,
    shard_network,
)
from rl_agents.learner.hf import save_hf_folder
from rl_agents.learner.metrics import LearnerMetrics
from rl_agents.learner.optimizers import OptimizerSet
from rl_agents.learner.prefix_attention import pack_rows
from rl_agents.learner.prefix_sharing import packing_key
from rl_agents.learner.rl_modules import CRITIC, POLICY, TEACHER, CausalLMModule, teacher_network
from rl_agents.learner.training_data import VALUE, AgentTrainingData, Minibatch, TokenLosses
from rl_agents.losses import CE, REF_KL, RL, clipped_value_loss, cross_entropy, kl_penalty, masked, weighted_sum

#: Folder of a checkpoint, next to ``hf``.
ADAPTER = "adapter"
#: Trained weights from which on an update on a CPU hands freed memory back; with fewer there is little.
LARGE = 50_000_000
#: Metrics' prefix of rows by (`Row.again`, `Row.expert`), in the order of their passes.
EXPERT = "expert"
KINDS = {(False, False): "actor", (True, False): "success_replay", (False, True): EXPERT}
#: Weights of an adapter in peft's format.
TENSORS = "adapter_model.safetensors"


def save_adapter(folder: Path, model: Any, base: str, base_dir: str) -> None:
    """Write the adapters of ``model`` in the format of ``peft.PeftModel.from_pretrained`` and vLLM's ``LoRARequest``.

    Tensors are float32, as in training. All sharded learners must call this, and the first one writes.

    Args:
        folder: created if it is missing.
        base: the run's key ``model``; the name and commit of a public model are recorded.
        base_dir: folder that the base was loaded from, recorded for all other models.
    """
    from peft.utils.save_and_load import get_peft_model_state_dict

    trained = ((name, tensor) for name, tensor in model.state_dict().items() if "lora_" in name)
    tensors = {name: full.cpu().contiguous() for name, full in gathered(trained)}
    if not is_rank_zero():
        return
    named = get_peft_model_state_dict(model, state_dict=tensors, save_embedding_layers=False)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(dict(sorted(named.items())), folder / TENSORS, metadata={"format": "pt"})
    _config(model, base, base_dir).save_pretrained(str(folder))


def _config(model: Any, base: str, base_dir: str) -> Any:
    config = copy.copy(model.peft_config["default"])
    public = None if Path(base).is_dir() else HUB_NAME.fullmatch(base)
    config.base_model_name_or_path = public["name"] if public else str(Path(base_dir).resolve())
    config.revision = public["revision"] if public else None
    config.target_modules = sorted(config.target_modules)
    config.inference_mode = True
    return config


class AgentLearner(TorchLearner):
    """RLlib's torch learner on token rows instead of episodes, connectors and padded sample batches.

    Gradients are sums of globally weighted token losses. Several learners add them up once per optimizer step, so
    neither the number of learners nor the micro-batch size changes an update.

    Attributes:
        forwarded: tokens that went through networks so far, including padding.
    """

    settings: Settings
    recipe: AlgorithmSpec
    forwarded = 0

    def build(self) -> None:
        self.settings = self.config.agent
        self.recipe = ALGORITHMS[self.settings.algo]
        torch.manual_seed(self.settings.seed)
        super().build()

    # --- RLlib hooks -------------------------------------------------------------------------------------------

    def configure_optimizers(self) -> None:
        networks = {POLICY: self.module[POLICY]}
        if CRITIC in self.module.keys():  # noqa: SIM118  (a MultiRLModule is no mapping)
            networks[CRITIC] = self.module[CRITIC]
        self.optimizers = OptimizerSet(networks, self.settings)

    @property
    def sharded(self) -> bool:
        return self.distributed and self.settings.learner_sharding == "fsdp"

    def _map_module_to_device(self, module: Any) -> None:
        """Move shards to the device one by one: the whole network may not fit."""
        if not self.sharded:
            super()._map_module_to_device(module)
            return
        mesh = learner_mesh(self._device)
        for name in module.keys():  # noqa: SIM118  (a MultiRLModule is no mapping)
            shard_network(module[name], mesh)

    def _make_modules_ddp_if_necessary(self) -> None:
        """Use no DDP wrapper: `_optimizer_step` adds up gradients after accumulation."""

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """Return weights as torch tensors (RLlib's numpy conversion fails on bfloat16), none for inference.

        Engines get their weights from `export_weights`; env runners have none. All sharded learners must be asked, and
        the first answers.
        """
        if kwargs.get("inference_only"):
            return {COMPONENT_RL_MODULE: {}}
        return {
            COMPONENT_RL_MODULE: {
                name: full_state_dict(self.module[name])
                for name in (POLICY, CRITIC)
                if name in self.module.keys()  # noqa: SIM118
            },
            "optimizer": self.optimizers.state(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore weights and optimizer exactly."""
        for name, tensors in state.get(COMPONENT_RL_MODULE, {}).items():
            load_full_state_dict(self.module[name], tensors)
        if "optimizer" in state:
            self.optimizers.load(state["optimizer"])

    def update(
        self, training_data: AgentTrainingData, *, timesteps: Any = None, return_state: bool = False, **kwargs: Any
    ) -> tuple[dict[str, tuple[str, float, float]], TokenLosses]:
        """Run all optimizer steps of the schedule; return metrics and, if asked, the losses by token as plain data.

        The keyword ``train_policy=False`` trains only the critic (warm-up).
        """
        started = time.perf_counter()
        self.sums, self.token_losses, self._by_token = LearnerMetrics(), TokenLosses(), training_data.by_token
        networks = [name for name in self.optimizers.networks if name != POLICY or kwargs.get("train_policy", True)]
        for index, minibatch in enumerate(training_data.minibatches):
            self._before_first_step = index == 0
            self._optimizer_step([training_data.rows[i] for i in minibatch.rows], minibatch, networks)
        self.optimizers.zero_grad()  # gradients need as much memory as the weights
        if self._device.type == "cpu" and sum(weights.numel() for weights in self.optimizers.parameters()) >= LARGE:
            hand_back_memory()
        self.sums.add("timing_s/update", time.perf_counter() - started, how="max")
        return self.sums.data, self.token_losses

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: dict[str, Any], fwd_out: dict[str, torch.Tensor]
    ) -> torch.Tensor:
        """Return the weighted loss of a network on a micro-batch; ``batch`` has the rows' arrays and weights."""
        return (self._policy_loss if module_id == POLICY else self._value_loss)(batch, fwd_out)

    # --- one optimizer step ------------------------------------------------------------------------------------

    def _optimizer_step(self, rows: list[Row], minibatch: Minibatch, networks: list[str]) -> None:
        self.optimizers.zero_grad()
        before = self.forwarded
        for part, layout in self._parts(rows):
            if not part:
                self._read_teacher([], layout)
                self._dummy_pass(networks)
                continue
            self._present = [rows[i] for i in part]
            self._tag = KINDS[rows[part[0]].again, rows[part[0]].expert]
            batch: dict[str, Any] = collate([rows[i] for i in part], self._device)
            own = {name: [of[i] for i in part] for name, of in minibatch.weights.items()}
            batch["weights"] = {name: pad_weights(of, self._device) for name, of in own.items()}
            batch["teacher"] = self._read_teacher([row for row in self._present if not row.expert], layout)
            batch["fresh"] = torch.tensor([[float(rows[i].fresh)] for i in part], device=self._device)
            for network in networks:
                if network == CRITIC and self._tag == EXPERT:
                    self._dummy_pass([network] * self.sharded)
                    continue
                output = self._forward(network, batch, layout, entropy_gradient=self.settings.entropy_coef > 0)
                self.compute_loss_for_module(
                    module_id=network, config=self.config, batch=batch, fwd_out=output
                ).backward()
        if packing_key(self.settings) and rows:
            tokens = sum(map(len, rows)) * len(networks)
            self.sums.add("actor/forwarded_share", (self.forwarded - before) / tokens, weight=tokens)
        if self.sharded and TEACHER in self.module.keys():  # noqa: SIM118
            release(self.module[TEACHER])
        if self.distributed and not self.sharded:
            _sum_gradients(self.optimizers.parameters())
        for network, norm in self.optimizers.step(networks, minibatch.done).items():
            prefix = "actor" if network == POLICY else "critic"
            if np.isfinite(norm):
                self.sums.add(f"{prefix}/grad_norm", norm)
            if network in self.optimizers.rates:
                self.sums.add(f"{prefix}/lr", self.optimizers.rates[network])
            self.sums.add(f"{prefix}/skipped_steps", float(not np.isfinite(norm)), how="max")

    def _parts(self, rows: Sequence[Row]) -> list[tuple[list[int], Layout]]:
        """Row indices per forward pass, and their layout; sharded learners do equally many, the last empty.

        Replayed episodes and expert rows are forwarded by themselves, so that the metrics of the others are theirs
        alone.
        """
        kinds = [[i for i, row in enumerate(rows) if (row.again, row.expert) == kind] for kind in KINDS]
        parts = [
            ([kind[i] for i in part], layout)
            for kind in kinds
            for part, layout in laid_out([rows[i] for i in kind], self.settings, self.policy.width)
        ]
        if self.sharded:
            parts += [([], PADDED)] * (max_over_learners(len(parts), self._device) - len(parts))
        return parts

    @torch.no_grad()
    def _read_teacher(self, rows: Sequence[Row], layout: Layout) -> tuple[Any, torch.Tensor] | None:
        """Return the teacher's head and its states of the rows' scored tokens, if the loss needs its distributions."""
        name, full = teacher_network(self.settings), self.settings.teacher_kl == "full"
        if not (rows and full and self.settings.ref_kl_coef):
            self._dummy_pass([name] * (full and self.sharded))  # to gather its weights as the others do
            return None
        batch = collate([part for row in rows for part in teacher_rows(row)], self._device)
        found = self._forward(name, batch, layout, states=True)
        return found["head"], found["states"]

    def _dummy_pass(self, networks: Sequence[str]) -> None:
        """Forward, and where gradients are on backward, a token that counts for nothing: the others gather weights."""
        last = torch.tensor([[0.0, 1.0]])
        batch = {"input_ids": torch.zeros(1, 2, dtype=torch.long), "mask": last, "scored": last}
        batch = {name: tensor.to(self._device) for name, tensor in batch.items()}
        for network in networks:
            scores = self._forward(network, batch)["values" if network == CRITIC else "logprobs"]
            if scores.requires_grad:
                (0.0 * scores.sum()).backward()

    def _policy_loss(self, batch: dict[str, Any], scores: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the sum of the components' losses: of expert rows all but `rl`."""
        parts = [] if self._tag == EXPERT else [self._rl_loss(batch, scores)]
        if (weights := batch["weights"].get(CE)) is not None and weights.any():
            token_loss = cross_entropy(scores["logprobs"], batch["scored"])
            parts.append(self._component(CE, "actor/ce_loss", token_loss, weights))
            self.sums.add_tokens("actor/ce_nll", token_loss, (weights != 0).to(token_loss.dtype))
        if (weights := batch["weights"].get(REF_KL)) is not None and weights.any():
            if (kl := scores.get("kl")) is None:
                given = batch["teacher_logprobs"], batch["mask"], self.settings.kl_estimator
                kl = kl_penalty(scores["logprobs"], *given)
            parts.append(self._component(REF_KL, "actor/ref_kl_loss", kl, weights))
            self.sums.add_tokens("actor/ref_kl", kl, batch["mask"])
        return torch.stack(parts).sum() if len(parts) > 1 else parts[0]

    def _component(self, name: str, metric: str, token_loss: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Return the loss of a component, and note it; by token, the first time that the update trains on the token."""
        loss = weighted_sum(token_loss, weights)
        self.sums.add(metric, float(loss.detach()), how="sum")
        if self._by_token:
            shares = masked(token_loss.detach() * weights, weights != 0).cpu().numpy()
            for row, line in zip(self._present, shares, strict=True):
                for step in np.unique(row.segments[row.scored > 0]).tolist():
                    own = line[: len(row)][row.segments == step].tolist()
                    self.token_losses.setdefault((row.trajectory, step), {}).setdefault(name, own)
        return loss

    def _rl_loss(self, batch: dict[str, Any], scores: dict[str, torch.Tensor]) -> torch.Tensor:
        settings, mask, weights, tag = self.settings, batch["mask"], batch["weights"][RL], self._tag
        logprobs = scores["logprobs"]
        token_loss, details = self.recipe.policy_loss(LossInputs.from_batch(logprobs, batch), settings)
        if "correction" in batch:
            token_loss = token_loss * batch["correction"]
        loss = self._component(RL, f"{tag}/pg_loss", token_loss, weights)
        if settings.kl_coef:
            kl = kl_penalty(logprobs, batch["reference_logprobs"], mask, settings.kl_estimator)
            loss = loss + settings.kl_coef * weighted_sum(kl, weights)
            self.sums.add_tokens(f"{tag}/kl_reference", kl, mask)
        if settings.entropy_coef:
            loss = loss - settings.entropy_coef * weighted_sum(scores["entropy"], weights)
        self.sums.add_tokens(f"{tag}/entropy", scores["entropy"], mask)
        for name, value in details.items():
            self.sums.add(f"{tag}/{name}", float(value), weight=float(mask.sum()))
        # Before the first step, the weights are those that sampled fresh rows, so the difference is the engine's.
        fresh = mask * batch.get("fresh", 1.0)
        if self._before_first_step and tag == "actor" and self.recipe.credit is not None and fresh.any():
            gap = (logprobs.detach() - batch["logprobs"]).abs() * fresh
            self.sums.add_tokens("rollout_corr/logprob_diff_mean", gap, fresh)
            self.sums.add("rollout_corr/logprob_diff_max", float(gap.max()), how="max")
        return loss

    def _value_loss(self, batch: dict[str, Any], scores: dict[str, torch.Tensor]) -> torch.Tensor:
        mask = batch.get("value_mask", batch["mask"])
        token_loss, details = clipped_value_loss(
            scores["values"], batch["values"], batch["returns"], mask, clip=self.settings.cliprange_value or None
        )
        loss = weighted_sum(token_loss, batch["weights"][VALUE])
        self.sums.add("critic/value_loss", float(loss.detach()), how="sum")
        for name, value in details.items():
            self.sums.add(f"critic/{name}", float(value), weight=float(mask.sum()))
        return loss

    def _forward(
        self, network: str, batch: dict[str, Any], layout: Layout = PADDED, **extra: Any
    ) -> dict[str, torch.Tensor]:
        mask = batch.get("value_mask", batch["mask"]) if network == CRITIC else batch["scored"]
        inputs = {"input_ids": batch["input_ids"], "mask": mask, "temperature": self.settings.temperature}
        inputs["teacher"] = batch.get("teacher") if network == POLICY else None
        ids = batch["input_ids"]
        if layout != PADDED:
            inputs["packed"] = rows = pack_rows(ids, mask, self.module[network].width, share=layout == SHARED)
            ids = rows.input_ids
        self.forwarded += ids.numel() * (not extra.get("states"))  # what the teacher reads is no row
        return self.module[network].forward_train({**inputs, **extra})  # type: ignore[no-any-return]

    # --- calls of the driver between updates -------------------------------------------------------------------

    @torch.no_grad()
    def score(self, rows: Sequence[Row], network: str) -> list[FloatArray]:
        """Return per-token log-probabilities (policy, reference) or values (critic) of rows, in their order."""
        what = "values" if network == CRITIC else "logprobs"
        output: list[FloatArray] = [np.zeros(0, np.float32)] * len(rows)
        for part, layout in self._parts(rows):
            if not part:
                self._dummy_pass([network])
                continue
            batch = collate([rows[i] for i in part], self._device)
            scores = self._forward(network, batch, layout)[what].cpu().numpy()
            for i, line in zip(part, scores, strict=True):
                output[i] = line[: len(rows[i])].astype(np.float32)
        if self.sharded:
            release(self.module[network])
        return output

    @property
    def policy(self) -> CausalLMModule:
        return self.module[POLICY]  # type: ignore[no-any-return]

    def export_weights(self) -> Iterator[PackedWeights]:
        """Yield the policy's weights for engines: Hugging Face names, LoRA merged; one tensor at a time is gathered."""
        return buckets(gathered(self.policy.merged_weights()))

    def save_hf(self, folder: Path) -> None:
        """Write the policy in Hugging Face layout, and LoRA's adapters next to it in peft's layout (``adapter``)."""
        source = self.policy.model_config["model_dir"]
        weights = {name: full.cpu() for name, full in gathered(self.policy.merged_weights())}
        if is_rank_zero():
            save_hf_folder(folder, weights, source)
        if self.settings.lora_rank:
            save_adapter(folder.with_name(ADAPTER), self.policy.lm, self.settings.model, source)


def hand_back_memory() -> None:
    """Return freed memory to the system; glibc kept 1.3 GB after an update of 135 million weights on a CPU."""
    with contextlib.suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def _sum_gradients(parameters: Sequence[torch.nn.Parameter]) -> None:
    """Add up gradients over learners, in place; a learner without rows contributes zeros."""
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    for pending in [dist.all_reduce(parameter.grad, async_op=True) for parameter in parameters]:
        pending.wait()
