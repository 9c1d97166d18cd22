"""The folder that keeps built models and indexes between runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """Return the cache folder: ``RL_AGENTS_CACHE``, else ``rl_agents`` in ``XDG_CACHE_HOME`` or ``~/.cache``."""
    if own := os.environ.get("RL_AGENTS_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rl_agents"
