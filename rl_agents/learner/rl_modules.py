"""The networks that learners train, as RLlib modules: a causal language model and a critic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import nn

from rl_agents.algorithms import ALGORITHMS
from rl_agents.config import Settings
from rl_agents.config.sections import POLICY_AS_TEACHER
from rl_agents.envs.gymnasium_adapter import TEXT_SPACE
from rl_agents.errors import InputError
from rl_agents.inference.hub import find_folder
from rl_agents.inference.torch_model import load_causal_lm
from rl_agents.inference.weights import FileNames
from rl_agents.learner.chunked_logprobs import exact_head, piece_size
from rl_agents.learner.hf import enable_recompute, load_backbone
from rl_agents.learner.logprobs import packed_states, score_rows, scored_states
from rl_agents.learner.prefix_attention import Packed, enable
from rl_agents.learner.prefix_sharing import packing_key
from rl_agents.losses import at_least_float32

POLICY = "default_policy"
CRITIC = "critic"
REFERENCE = "reference"
TEACHER = "teacher"


def teacher_network(settings: Settings) -> str:
    return POLICY if settings.teacher == POLICY_AS_TEACHER else TEACHER


def module_specs(settings: Settings, model_dir: str) -> MultiRLModuleSpec:
    """Return the specification of the policy, and of critic and reference if the algorithm needs them."""
    base: dict[str, Any] = {"model_dir": model_dir, "dtype": settings.dtype}
    if asked := packing_key(settings):
        base |= {"shared_rows": settings.max_model_len, "packed_for": asked}
    if settings.activation_checkpointing != "none":
        base["recompute"] = settings.activation_checkpointing
    if settings.teacher_kl == "full":
        base["whole"] = True
    policy = {**base, "lora_rank": settings.lora_rank, "lora_alpha": settings.lora_alpha}
    modules: dict[str, tuple[type[Network], dict[str, Any]]] = {POLICY: (CausalLMModule, policy)}
    if ALGORITHMS[settings.algo].critic:
        modules[CRITIC] = (ValueModule, base)
    if settings.kl_coef or settings.kl_in_reward_coef:
        modules[REFERENCE] = (CausalLMModule, {**base, "frozen": True})
    if settings.teacher and teacher_network(settings) == TEACHER:
        modules[TEACHER] = (CausalLMModule, {**base, "model_dir": str(find_folder(settings.teacher)), "frozen": True})
    specs = {
        name: RLModuleSpec(
            module_class=cls, observation_space=TEXT_SPACE, action_space=TEXT_SPACE, model_config=dict(config)
        )
        for name, (cls, config) in modules.items()
    }
    return MultiRLModuleSpec(rl_module_specs=specs)


class Network(TorchRLModule):
    """Base of policy, reference and critic: the precision of their computations.

    Trained weights, and so the optimizer's moments, are float32: a step of 1e-6 is lost on a bfloat16 weight of 0.02,
    whose neighbors are 1e-4 away. With ``dtype=bfloat16`` they are cast for the forward pass. Frozen weights (the
    reference, the base under adapters) are in ``dtype``.

    Attributes:
        autocast: cast here; false if FSDP2 gathers the weights in ``dtype``.
        width: width of the residual stream.
    """

    autocast = True

    @property
    def dtype(self) -> torch.dtype:
        return getattr(torch, self.model_config["dtype"])  # type: ignore[no-any-return]

    def precision(self, device: torch.device) -> Any:
        return torch.autocast(device.type, self.dtype, enabled=self.autocast and self.dtype != torch.float32)

    def prepare(self, model: Any) -> Any:
        """Return a loaded model without dropout and, if rows are packed, with attention that separates them."""
        _disable_dropout(model)
        config = self.model_config
        if longest := config.get("shared_rows"):
            enable(model, config["model_dir"], longest, config.get("packed_for", "prefix_sharing"))
        self.width: int = model.config.get_text_config().hidden_size
        return model


class CausalLMModule(Network):
    """A Hugging Face causal language model, whole or with LoRA adapters.

    ``model_config`` keys: ``model_dir``, ``dtype``, ``lora_rank``, ``lora_alpha``, ``recompute`` (absent: none),
    ``frozen`` (the reference, the teacher), ``whole`` (whole distributions are compared), ``shared_rows`` (tokens of
    the longest row if rows are packed), ``packed_for`` (the key that requests it).

    Attributes:
        piece: number of states that go through the vocabulary head at once; None: all of a micro-batch.
    """

    lm: nn.Module
    piece: int | None = None

    def setup(self) -> None:
        config = self.model_config
        kept = config["dtype"] if config.get("frozen") or config.get("lora_rank") else "float32"
        self.lm = self.prepare(load_causal_lm(config["model_dir"], kept))
        if config.get("whole") and not exact_head(self.lm):
            raise InputError(f"teacher_kl=full: not for {config['model_dir']}, whose head is not the last layer")
        self.piece = piece_size(self.lm)
        self.names = FileNames(self.lm)
        if config.get("frozen"):
            self.lm.requires_grad_(False)
            return
        if config.get("recompute"):
            enable_recompute(self.lm, config["recompute"])
        if config.get("lora_rank"):
            self.lm = _with_lora(self.lm, config["lora_rank"], config["lora_alpha"])

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Score the tokens of a right-padded batch.

        Args:
            batch: ``input_ids`` [B, L]; ``mask`` [B, L], 1 where a token is scored; ``temperature``; ``packed``: the
                same rows as one sequence, which is forwarded instead.

        Returns:
            ``logprobs`` [B, L]: log p(input_ids[t] | input_ids[<t]) where ``mask`` is 1, else 0; ``entropy`` [B, L]:
            entropy of the distribution that token t was drawn from (no gradient unless ``entropy_gradient``); with
            ``teacher`` ``kl`` [B, L]. With ``states`` only what a teacher is: ``head`` and ``states`` [scored, width].
        """
        precision, adapters = self.precision(batch["mask"].device), bool(self.model_config.get("lora_rank"))
        if batch.get("states"):
            head, hidden, source = scored_states(self.lm, batch, precision, adapters)
            return {"head": head, "states": hidden[source]}
        return score_rows(self.lm, batch, self.piece, precision, adapters=adapters)

    def merged_weights(self, cast: bool = True) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield (name in files, tensor in ``dtype``) of the plain model, adapters merged, a tied head once.

        Sharded tensors that files contain in parts (experts) are gathered first. Without ``cast``, tensors without
        adapters are the trained ones themselves.
        """
        from torch.distributed.tensor import DTensor  # slow to import, and env runners import this module

        config: Any = self.lm.config
        tied = set(getattr(self.lm, "_tied_weights_keys", None) or ()) if config.tie_word_embeddings else set()
        adapted = dict(_adapted(self.lm))
        for name, tensor in self.lm.state_dict().items():
            if "lora_" in name:
                continue
            plain = _plain_name(name)
            if plain in tied:
                continue
            if plain in adapted:  # its addition is as large as the weight: one at a time
                tensor = dithered(tensor + adapted[plain].get_delta_weight("default"), self.dtype)
            merged = tensor.detach().to(self.dtype if cast else tensor.dtype)
            if plain in self.names.changed and isinstance(merged, DTensor):
                merged = merged.full_tensor()
            yield from self.names.parts(plain, merged)
            del merged


class ValueModule(Network):
    """A critic: the backbone of a language model and a linear head that starts at zero."""

    def setup(self) -> None:
        self.backbone = self.prepare(load_backbone(self.model_config["model_dir"], "float32"))
        if self.model_config.get("recompute"):
            enable_recompute(self.backbone, self.model_config["recompute"])
        self.head = nn.Linear(self.width, 1, bias=True)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, torch.Tensor]:
        """Compute the value of the prefix before each scored token: ``values`` [B, L], 0 where ``mask`` is 0.

        Only tokens up to the last scored one are forwarded, and only scored positions go through the head.
        """
        mask = batch["mask"]
        rows, columns = torch.nonzero(mask[:, 1:], as_tuple=True)
        if batch.get("packed"):
            packed: Packed = batch["packed"]
            with self.precision(packed.read.device):
                states = packed_states(self.backbone, packed, seen_by=self.backbone)
            hidden = states[packed.read[packed.source]]
        else:
            end = int(columns.max()) + 1 if columns.numel() else 1
            with self.precision(mask.device):
                hidden = self.backbone(input_ids=batch["input_ids"][:, :end], use_cache=False).last_hidden_state
            hidden = hidden[rows, columns]
        values = at_least_float32(self.head(hidden.to(self.head.weight.dtype)).squeeze(-1))
        scattered = torch.zeros(mask.shape, dtype=values.dtype, device=values.device)
        return {"values": scattered.index_put((rows, columns + 1), values)}


def dithered(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Round to bfloat16, up or down with the probability that keeps the mean; other dtypes are left to the caller.

    Adapters change a weight by less than half the distance of two bfloat16 numbers at first. Rounded to the nearest
    one, most of the change would be lost (87% for SmolLM2-135M and random adapters of the size of two updates with
    rank 16 and learning rate 2e-4). A number that is exact in bfloat16 stays. Equal tensors give equal results.
    """
    from torch.distributed.tensor import DTensor

    if isinstance(tensor, DTensor):
        local = dithered(tensor.to_local(), dtype)
        return DTensor.from_local(
            local, tensor.device_mesh, tensor.placements, shape=tensor.shape, stride=tensor.stride()
        )
    if dtype != torch.bfloat16:
        return tensor
    draws = torch.Generator(tensor.device).manual_seed(0)
    bits = tensor.float().contiguous().view(torch.int32)
    added = torch.randint(0, 1 << 16, bits.shape, generator=draws, dtype=torch.int32, device=tensor.device)
    return ((bits + added) & -(1 << 16)).view(torch.float32)


def _with_lora(model: nn.Module, rank: int, alpha: float) -> nn.Module:
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(model, config)  # type: ignore[no-any-return]


def _plain_name(name: str) -> str:
    return name.removeprefix("base_model.model.").replace(".base_layer", "")


def _adapted(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield layers with adapters, by the plain name of the weight; experts' are separate tensors."""
    for name, module in model.named_modules():
        if hasattr(module, "get_delta_weight"):
            parameter = getattr(module, "parameter_name", "weight")
            yield f"{_plain_name(name)}.{parameter}", module


def _disable_dropout(model: nn.Module) -> None:
    """Disable dropout, which in RLlib's ``train()`` mode makes a policy's ratio to itself differ from one."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0
