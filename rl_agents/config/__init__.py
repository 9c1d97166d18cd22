"""How the keys of a run are declared, read and checked. `rl_agents.algorithms.Settings` is what a run is built from."""

from rl_agents.config.loading import context_window, load_recipe, merge_flags, parse_assignments
from rl_agents.config.settings import Settings
from rl_agents.config.validation import validate

__all__ = ["Settings", "context_window", "load_recipe", "merge_flags", "parse_assignments", "validate"]
