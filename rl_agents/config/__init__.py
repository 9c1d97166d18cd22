"""Declaration, reading and contradictions of the keys of a run. A run is built from `Settings`."""

from rl_agents.config.loading import load_recipe, merge_flags, parse_assignments
from rl_agents.config.sections import context_window, summary_limit
from rl_agents.config.settings import KEYS, Settings

__all__ = [
    "KEYS",
    "Settings",
    "context_window",
    "load_recipe",
    "merge_flags",
    "parse_assignments",
    "summary_limit",
]
