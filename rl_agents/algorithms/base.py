"""What an algorithm is here: a recipe of named parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol

from rl_agents.config.options import keys_of
from rl_agents.rollout.tree_search.states import States

if TYPE_CHECKING:
    import numpy as np
    import torch

    from rl_agents.data.samples import FloatArray, Row
    from rl_agents.data.selection import Selected
    from rl_agents.data.success_replay import Remembered
    from rl_agents.data.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class LossInputs:
    """What a policy loss may read; all tensors [rows, tokens].

    Attributes:
        logprobs: under the current weights, with gradient.
        old_logprobs: denominator of the importance ratio.
        advantages: detached credit.
        mask: 1 where the policy sampled the token.
        segments: interaction step of a sampled token, -1 elsewhere.
    """

    logprobs: torch.Tensor
    old_logprobs: torch.Tensor
    advantages: torch.Tensor
    mask: torch.Tensor
    segments: torch.Tensor

    @classmethod
    def from_batch(cls, logprobs: torch.Tensor, batch: Mapping[str, torch.Tensor]) -> LossInputs:
        """Pick the fields out of a collated batch; absent credit reads as 0 (supervised losses)."""
        mask = batch["mask"]
        advantages = batch.get("advantages", mask * 0)
        old = batch.get("old_logprobs", batch["logprobs"])
        return cls(logprobs, old, advantages, mask, batch["segments"])


# Each of these parts annotates its settings with the data class that declares the keys that it reads.
#: Loss per token [rows, tokens] (0 outside the mask) and per-token metrics.
PolicyLoss = Callable[[LossInputs, Any], "tuple[torch.Tensor, dict[str, torch.Tensor]]"]
#: Fill ``advantages`` (and ``returns``) of every row.
Credit = Callable[[Sequence["Row"], Sequence["Trajectory"], Any], None]
#: From all episodes of the iteration so far, before credit: which to learn from, with which weight per group, and how
#: many groups are missing. Asked again, with more episodes, while some are.
Select = Callable[[Sequence["Trajectory"], Any, "np.random.Generator"], "Selected"]
#: 1 at the tokens before which the critic is read and trained.
ValueMask = Callable[["Row", Any], "FloatArray"]


class Memory(Protocol):
    """What an algorithm's credit knows from earlier iterations, and the credit itself.

    It is saved with every checkpoint. A replay meets the same batches in the same order: it depends on them alone.
    """

    def again(self, iteration: int) -> Sequence[Remembered]:
        """Episodes of earlier iterations that ``iteration`` trains on again, in addition to its own."""

    def credit(self, rows: Sequence[Row], trajectories: Sequence[Trajectory]) -> None:
        """Fill ``advantages`` of every row; what these episodes taught is kept by `keep` only.

        Args:
            rows: those of `again` come last, and say so (`Row.again`).
        """

    def keep(self, iteration: int, sessions: Sequence[str]) -> None:
        """The episodes that were credited last are trained on; without this call they leave no trace.

        Args:
            sessions: names in the pool of ``iteration``'s own episodes; empty ones where there is no pool.
        """

    def disown(self) -> None:
        """The run continues from another run's checkpoint: sessions that are remembered are in that one's pool."""

    def metrics(self) -> dict[str, float]:
        """Metrics of the last credit."""

    def to_json(self) -> dict[str, Any]:
        """Plain data of what is kept; `load_json` is its inverse."""

    def load_json(self, data: Mapping[str, Any]) -> None:
        """Replace everything by what `to_json` returned."""


def never(settings: Any) -> bool:
    """Whatever the keys say."""
    return False


def always(settings: Any) -> bool:
    """Whatever the keys say."""
    return True


@dataclass(frozen=True)
class AlgorithmSpec:
    """An algorithm: one choice for each part, and the keys that mean something to it.

    Attributes:
        name: as on the command line.
        summary: one sentence that locates it relative to another method.
        reference: paper and section.
        policy_loss: objective per token.
        credit: advantages of rollouts; None for supervised recipes.
        memory: what credit remembers of earlier iterations, made from the settings; None: nothing. Where there is one,
            ``credit`` is that of a first iteration.
        select: which groups are trained on, and how much each counts; None for all alike.
        one_round: whether ``select`` never asks for further episodes with these keys; then judges of rewards hold up no
            rollouts.
        value_mask: where the critic is read and trained; None for every sampled token.
        keys: data class of the keys that it reads beyond those of every run; choosing another algorithm's is an error.
        unread: keys of that class that it does not read.
        defaults: this recipe's defaults where they differ from `Settings`.
        variants: further defaults that a key of the recipe chooses: key -> value -> defaults.
        source: where experience comes from: whole episodes, a demonstrator, or siblings at states that a search visits.
        states: what a search knows about states, for the source "search".
        critic: a value network is trained alongside the policy.
        grouped: advantages compare rollouts of one task, so a group of one has no effect.
        stale_unit: what one weight corrects where rollouts are stale: a step, where ratios are per step or sequence or
            samples are single actions, else a token; a ``ratio_level`` among its keys says so instead.
        preset: recipe file of tune_configs/recipes that the command line takes, with its algorithm, when it is given
            neither an environment nor a recipe; empty: the defaults.
    """

    name: str
    summary: str
    reference: str
    policy_loss: PolicyLoss
    keys: type
    unread: tuple[str, ...] = ()
    credit: Credit | None = None
    memory: Callable[[Any], Memory] | None = None
    select: Select | None = None
    one_round: Callable[[Any], bool] = never
    value_mask: ValueMask | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    variants: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    source: Literal["rollouts", "demonstrations", "search"] = "rollouts"
    states: Callable[[Any], States] | None = None
    critic: bool = False
    grouped: bool = False
    stale_unit: Literal["token", "step"] = "token"
    preset: str = ""

    @cached_property
    def reads(self) -> frozenset[str]:
        """Names of the keys that it reads beyond those of every run."""
        return frozenset(keys_of(self.keys).keys() - set(self.unread))

    def defaults_of(self, settings: Any) -> dict[str, Any]:
        """Return the defaults, with those that the chosen values of `variants` bring."""
        found = dict(self.defaults)
        for name, values in self.variants.items():
            found.update(values[getattr(settings, name)])
        return found
