"""Declaration, reading and validation of the keys of a run. A run is built from `Settings`."""

from rl_agents.config.loading import (
    context_window,
    load_mapping,
    load_recipe,
    merge_flags,
    parse_assignments,
    summary_limit,
)
from rl_agents.config.settings import KEYS, Settings
from rl_agents.config.validation import validate

__all__ = [
    "KEYS",
    "Settings",
    "context_window",
    "load_mapping",
    "load_recipe",
    "merge_flags",
    "parse_assignments",
    "summary_limit",
    "validate",
]
