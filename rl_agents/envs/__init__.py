"""The built-in environments, registered at import. A new one is a folder here with a ``SPEC``."""

from __future__ import annotations

from rl_agents.envs.base import discover

discover()
