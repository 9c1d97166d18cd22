"""Every key of a run, with its default, in one place (`sections`); how they are read and checked."""

from rl_agents.settings.files import context_window, load_recipe, parse_assignments
from rl_agents.settings.settings import FIELD_TYPES, HELP, Settings

__all__ = ["FIELD_TYPES", "HELP", "Settings", "context_window", "load_recipe", "parse_assignments"]
