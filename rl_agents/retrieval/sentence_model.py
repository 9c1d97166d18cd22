"""Loading a sentence-transformers model from a folder."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from rl_agents.errors import InputError
from rl_agents.installation import pip_install


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
        raise InputError(f"{key}={folder} needs sentence-transformers: pip install {pip_install(extra)}") from error
    try:
        return SentenceTransformer(folder, local_files_only=True)
    except Exception as error:  # the loaders raise many types
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(f"{key}={folder}: cannot be loaded: {reason}") from error


#: What E5 models were trained with before queries and passages (Wang et al. 2022, section 4).
E5_PREFIXES = ("query: ", "passage: ")


def is_e5(folder: str) -> bool:
    """Whether a folder is an E5 model without prompts of its own, by its name or the name in its ``config.json``.

    The ``instruct`` ones are excluded: their queries begin with a task.
    """
    names = [Path(folder).resolve().name, Path(str(_json(folder, "config.json").get("_name_or_path", ""))).name]
    e5 = any(re.search(r"(^|[-_])e5([-_]|$)", name.lower()) and "instruct" not in name.lower() for name in names)
    prompts = _json(folder, "config_sentence_transformers.json").get("prompts") or {}
    return e5 and not any(prompts.values())


def _json(folder: str, name: str) -> dict[str, Any]:
    """A JSON object of a model folder; empty where there is none that can be read."""
    try:
        found = json.loads(Path(folder, name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
