"""The built-in environments; importing this package registers them. A new one is a folder here with a ``SPEC``."""

from __future__ import annotations

from rl_agents.envs.base import discover

discover()
