"""How the keys of a run are declared, read and checked. `rl_agents.algorithms.Settings` is what a run is built from."""

from rl_agents.settings.checks import validate
from rl_agents.settings.files import context_window, load_recipe, parse_assignments
from rl_agents.settings.settings import Settings

__all__ = ["Settings", "context_window", "load_recipe", "parse_assignments", "validate"]
