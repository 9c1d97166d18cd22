"""What the registry knows about alfworld."""

from __future__ import annotations

from rl_agents.envs.base import EnvSpec

SPEC = EnvSpec(
    name="alfworld",
    summary="household tasks in a text world: find things, clean, heat, cool and place them",
    reference="ALFWorld, arXiv 2010.03768; StepPO, appendices B and C; 3SPO, appendix C",
    module="rl_agents.envs.alfworld",
    gym_id="rl_agents/Alfworld-v0",
    options={
        "backend": "native",
        "size": "small",
        "test": "seen",
        "data": "",
        "skip_bad_games": False,
        "textworld_python": "",
        "prompt": "3spo",
        "anchor": "observation",
        "reward_scale": 1.0,
        "max_turns": 50,
    },
    max_turns=50,
)
