"""What the registry knows about webshop."""

from __future__ import annotations

from rl_agents.envs.base import EnvSpec

SPEC = EnvSpec(
    name="webshop",
    summary="find and buy the product that an instruction describes, in a shop of many pages",
    reference="WebShop, arXiv 2207.01206; StepPO, appendix B.2; 3SPO, appendix C.2",
    module="rl_agents.envs.webshop",
    gym_id="rl_agents/WebShop-v0",
    options={
        "catalogue": "generated",
        "goals": "human",
        "prompt": "3spo",
        "reward": "score",
        "success_reward": 10.0,
        "service_url": "",
        "service_timeout_s": 30.0,
        "max_turns": 15,
    },
    max_turns=15,
)
