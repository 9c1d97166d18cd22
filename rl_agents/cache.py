"""Where built models and indexes are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """Return the cache folder: ``RL_AGENTS_CACHE``, else ``~/.cache/rl_agents``."""
    return Path(os.environ.get("RL_AGENTS_CACHE") or Path.home() / ".cache" / "rl_agents")
