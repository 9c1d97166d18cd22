"""The registry's entry of webshop, and its keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_agents.config.options import key, on
from rl_agents.envs.spec import EnvSpec


@dataclass(frozen=True)
class WebShopOptions:
    """Keys of webshop; see docs/environments/webshop.md."""

    catalogue: str = key("generated", "products: generated, small, or a path of official products")
    goals: Literal["human", "synthetic"] = key("human", "instructions: written by people, or synthetic")
    prompt: Literal["3spo", "steppo", "compact"] = key("3spo", "prompt style: a paper's, or few words for small models")
    reward: Literal["score", "success"] = key(
        "score", "reward: the graded score of the purchase, or of a score of exactly 1 alone (GiGPO, HGPO, 3SPO)"
    )
    success_reward: float = key(
        10.0, "reward of a score of exactly 1; GiGPO's scripts use 10", needs=on(reward="success")
    )


SPEC = EnvSpec(
    name="webshop",
    summary="find and buy the product that an instruction describes, in a shop of many pages",
    reference="WebShop, arXiv 2207.01206; StepPO, appendix B.2; 3SPO, appendix C.2",
    gym_id="rl_agents/WebShop-v0",
    options=WebShopOptions,
    max_turns=15,
    blocking="inline",
)
