"""The folder that keeps built models and indexes between runs."""

from __future__ import annotations

import os
from pathlib import Path

from rl_agents.errors import InputError


def cache_dir() -> Path:
    """Return the cache folder: ``RL_AGENTS_CACHE``, else ``rl_agents`` in ``XDG_CACHE_HOME`` or ``~/.cache``.

    Raises:
        InputError: there is no home folder, as in a container with a user that it does not know.
    """
    if own := os.environ.get("RL_AGENTS_CACHE"):
        return Path(own)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rl_agents"
    except RuntimeError:
        raise InputError("this user has no home folder for the cache: set RL_AGENTS_CACHE to a folder") from None
