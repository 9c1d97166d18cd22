"""The registry's entry of alfworld, and its keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_agents.config.options import key
from rl_agents.envs.spec import EnvSpec


@dataclass(frozen=True)
class AlfworldOptions:
    """Keys of alfworld; see docs/environments/alfworld.md."""

    size: Literal["small", "full"] = key(
        "small", "generated games: about 7 receptacles and 7 objects, or as many as the official games have"
    )
    train_tasks: int = key(
        1200, "number of generated training games; the first 1200 are the frozen training set",
        ge=1, le=300_000,
    )  # fmt: skip
    test: Literal["seen", "unseen"] = key("seen", "rooms of the test tasks: those of the training tasks, or new ones")
    data: str = key("", "folder of the official games (made by alfworld-download); empty for generated games")
    prompt: Literal["3spo", "steppo", "compact"] = key("3spo", "prompt style: a paper's, or few words for small models")
    anchor: Literal["observation", "situation", "role"] = key(
        "observation", "state key for step-level methods: the text, the text with the commands, or its meaning"
    )
    reward_scale: float = key(1.0, "reward of success; verl-agent uses 10")


SPEC = EnvSpec(
    name="alfworld",
    summary="household tasks in a text world: find things, clean, heat, cool and place them",
    reference="ALFWorld, arXiv 2010.03768; StepPO, appendices B and C; 3SPO, appendix C",
    options=AlfworldOptions,
    max_turns=50,
    blocking="inline",
)
