"""The license of a published model: the one that was named, or the base model's own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from rl_agents.errors import InputError
from rl_agents.inference.hub import find_folder

#: Fields of a model card that belong together.
FIELDS = ("license", "license_name", "license_link")
FRONT_MATTER = re.compile(r"\A---\s*\n(.*?)\n---\s*$", re.DOTALL | re.MULTILINE)


def check_license(name: str) -> str:
    """Return an identifier as the Hub writes them: ``apache-2.0``, ``mit``, ``other``.

    Raises:
        InputError: it cannot be one.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", name.lower()):
        raise InputError(f"--license {name}: an identifier of the Hub's, such as apache-2.0, mit or other")
    return name.lower()


def license_of(model: str) -> dict[str, str]:
    """Read what a base model's card says of its license, else its config.json; empty where neither does.

    Args:
        model: a folder, or a public model's name in the cache.
    """
    folder = find_folder(model)
    if folder is None:
        return {}
    said = _card(folder / "README.md") or _config(folder / "config.json")
    fields = {name: said[name] for name in FIELDS if isinstance(said.get(name), str) and said[name]}
    return fields if "license" in fields else {}


def _card(path: Path) -> dict[str, Any]:
    try:
        found = FRONT_MATTER.match(path.read_text(encoding="utf-8"))
        fields = yaml.safe_load(found[1]) if found else None
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    return fields if isinstance(fields, dict) and "license" in fields else {}


def _config(path: Path) -> dict[str, Any]:
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return fields if isinstance(fields, dict) else {}
