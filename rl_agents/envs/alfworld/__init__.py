"""What the registry knows about alfworld, and its keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_agents.config.options import key
from rl_agents.envs.spec import EnvSpec


@dataclass(frozen=True)
class AlfworldOptions:
    """Keys of alfworld; see docs/environments/alfworld.md."""

    backend: Literal["native", "textworld"] = key("native", "our engine, or the real one in processes of its own")
    size: Literal["small", "full"] = key(
        "small", "generated games: about 7 places and things, or like the official ones"
    )
    train_tasks: int = key(
        1200, "generated games to train on: the first of the panel, and beyond its 1200 as many as you like",
        ge=1, le=300_000,
    )  # fmt: skip
    test: Literal["seen", "unseen"] = key("seen", "rooms of the test tasks")
    data: str = key("", "folder of the official games (made by alfworld-download); empty plays generated ones")
    skip_bad_games: bool = key(False, "skip official games whose files are unusable", needs="data")
    textworld_python: str = key(
        "", "interpreter with the real engine; empty: that of make alfworld, else this one", needs="backend=textworld"
    )
    prompt: Literal["3spo", "steppo", "plain", "compact"] = key("3spo", "the papers' prompts, the bare text, few words")
    anchor: Literal["observation", "situation", "role"] = key(
        "observation", "state for step-level methods: the text, with the admissible commands, or what it means"
    )
    reward_scale: float = key(1.0, "reward of success; verl-agent's is 10")


SPEC = EnvSpec(
    name="alfworld",
    summary="household tasks in a text world: find things, clean, heat, cool and place them",
    reference="ALFWorld, arXiv 2010.03768; StepPO, appendices B and C; 3SPO, appendix C",
    options=AlfworldOptions,
    max_turns=50,
    blocking="inline",
)
