"""The parts of an algorithm: `AlgorithmSpec` names one choice for each."""

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
    from rl_agents.data.success_replay import SolvedEpisode
    from rl_agents.data.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class LossInputs:
    """Inputs of a policy loss; all tensors [rows, tokens].

    Attributes:
        logprobs: under the current weights, with gradient.
        old_logprobs: denominator of the importance ratio.
        advantages: detached.
        mask: 1 where the policy sampled the token.
        segments: interaction step of a sampled token, -1 elsewhere.
    """

    logprobs: torch.Tensor
    old_logprobs: torch.Tensor
    advantages: torch.Tensor
    mask: torch.Tensor
    segments: torch.Tensor

    @property
    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """The arguments that every policy loss begins with."""
        return self.logprobs, self.old_logprobs, self.advantages, self.mask

    @classmethod
    def from_batch(cls, logprobs: torch.Tensor, batch: Mapping[str, torch.Tensor]) -> LossInputs:
        """Take the fields of a collated batch; absent advantages are 0 (supervised losses)."""
        mask = batch["mask"]
        advantages = batch.get("advantages", mask * 0)
        old = batch.get("old_logprobs", batch["logprobs"])
        return cls(logprobs, old, advantages, mask, batch["segments"])


# Each function annotates its settings with the data class that declares the keys it reads.
#: Loss per token [rows, tokens] (0 outside the mask) and per-token metrics.
PolicyLoss = Callable[[LossInputs, Any], "tuple[torch.Tensor, dict[str, torch.Tensor]]"]
#: Fill ``advantages`` (and ``returns``) of every row.
Credit = Callable[[Sequence["Row"], Sequence["Trajectory"], Any], None]
#: From all episodes of the iteration so far, before credit: which to train on, the weight of each group, and how many
#: groups are missing. Called again with more episodes while groups are missing.
Select = Callable[[Sequence["Trajectory"], Any, "np.random.Generator"], "Selected"]
#: 1 at the tokens before which the critic is read and trained.
ValueMask = Callable[["Row", Any], "FloatArray"]


class Memory(Protocol):
    """State of an algorithm's credit from earlier iterations, and the credit itself.

    It is saved with every checkpoint. It depends only on the batches and their order.
    """

    def again(self, iteration: int) -> Sequence[SolvedEpisode]:
        """Return the episodes of earlier iterations that ``iteration`` replays in addition to its own."""

    def credit(self, rows: Sequence[Row], trajectories: Sequence[Trajectory]) -> None:
        """Fill ``advantages`` of every row; only `keep` stores what these episodes contribute.

        Args:
            rows: those of replayed episodes come last and have `Row.again` set.
        """

    def keep(self, iteration: int, sessions: Sequence[str]) -> None:
        """Store the episodes that were credited last, which are being trained on.

        Args:
            sessions: names of ``iteration``'s own episodes in the trajectory store; empty without a store.
        """

    def disown(self) -> None:
        """Forget session names: the run continues from another run's checkpoint, and they belong to its store."""

    def metrics(self) -> dict[str, float]:
        """Return metrics of the last credit."""

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain data; `load_json` is its inverse."""

    def load_json(self, data: Mapping[str, Any]) -> None:
        """Replace the state by what `to_json` returned."""


@dataclass(frozen=True)
class AlgorithmSpec:
    """An algorithm: one choice for each part, and the keys that it reads.

    Attributes:
        name: as on the command line.
        summary: one sentence that relates it to another method.
        reference: paper and section.
        policy_loss: objective per token.
        credit: advantages of rollouts; None for supervised recipes.
        memory: builds the credit's state of earlier iterations from the settings; None: there is none. If there is one,
            ``credit`` is that of a first iteration.
        select: chooses the groups to train on and their weights; None: all groups alike.
        one_round: whether ``select`` never asks for further episodes with these keys; then rollouts do not wait for
            judges of rewards.
        value_mask: where the critic is read and trained; None for every sampled token.
        keys: data class of the keys that it reads beyond those of every run; choosing another algorithm's is an error.
        unread: keys of that class that it does not read.
        defaults: this algorithm's defaults where they differ from `Settings`.
        variants: further defaults that one of its keys chooses: key -> value -> defaults.
        source: source of experience: whole episodes, a demonstrator, or siblings at states that a search visits.
        states: builds a search's statistics of states, for the source "search".
        critic: a value network is trained alongside the policy.
        teacher: advantages are scores of a teacher, so a run needs one (`rl_agents.config.sections.TeacherKeys`).
        grouped: advantages compare rollouts of one task, so a group of one has no effect.
        stale_unit: unit of an importance weight for stale rollouts: a step if ratios are per step or sequence or
            samples are single actions, else a token; a ``ratio_level`` among its keys takes precedence.
        preset: recipe file of tune_configs/recipes that the command line takes if it is given neither an environment
            nor a recipe; empty: the defaults.
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
    one_round: Callable[[Any], bool] = lambda settings: False
    value_mask: ValueMask | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    variants: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    source: Literal["rollouts", "demonstrations", "search"] = "rollouts"
    states: Callable[[Any], States] | None = None
    critic: bool = False
    teacher: bool = False
    grouped: bool = False
    stale_unit: Literal["token", "step"] = "token"
    preset: str = ""

    @cached_property
    def reads(self) -> frozenset[str]:
        """Names of the keys that the algorithm reads beyond those of every run."""
        return frozenset(keys_of(self.keys).keys() - set(self.unread))

    def defaults_of(self, settings: Any) -> dict[str, Any]:
        """Return the defaults, including those of the chosen `variants`."""
        found = dict(self.defaults)
        for name, values in self.variants.items():
            found.update(values[getattr(settings, name)])
        return found
