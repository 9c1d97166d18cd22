"""Loading a sentence-transformers model from a folder."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from rl_agents.errors import InputError


@lru_cache(maxsize=2)  # every store of a process asks
def load_sentence_model(folder: str, key: str, extra: str) -> Any:
    """Load a sentence-transformers model; nothing is downloaded.

    Args:
        key: the key that names the folder, for messages.
        extra: the extra that brings the package.

    Raises:
        InputError: no such folder, no sentence-transformers, or a folder that it cannot load.
    """
    if not Path(folder).is_dir():
        raise InputError(f"{key}={folder}: no such model folder")
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise InputError(f"{key}={folder} needs sentence-transformers: pip install -e '.[{extra}]'") from error
    try:
        return SentenceTransformer(folder, local_files_only=True)
    except Exception as error:  # the loaders raise many types
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(f"{key}={folder}: cannot be loaded: {reason}") from error
