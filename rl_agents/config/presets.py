"""Recipes and sweeps by name: ``--config guess_numbers_grpo`` from any folder, in a checkout or with the wheel."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, Literal

from rl_agents.config.loading import load_recipe
from rl_agents.errors import InputError
from rl_agents.installation import presets_folder

Kind = Literal["recipes", "sweeps"]
SUFFIXES = (".yaml", ".yml")


def preset_files(kind: Kind = "recipes") -> dict[str, Path]:
    """Return the files that come with the package by name, sorted."""
    return {path.stem: path for path in sorted((presets_folder() / kind).glob("*.yaml"))}


def preset_path(text: str, kind: Kind = "recipes") -> str:
    """Return the file that ``text`` names: a path; or a recipe or sweep of the package, by name or as in the docs.

    A file that is there comes first. ``tune_configs/recipes/NAME.yaml`` is the package's where there is no such file.

    Raises:
        InputError: neither; the nearest name is suggested.
    """
    path, known = Path(text), preset_files(kind)
    bare = path.stem if path.suffix in SUFFIXES else path.name
    ours = path.parent in (Path("."), Path("tune_configs") / kind) and bare in known
    if path.is_file() or (path.exists() and not ours):
        return text
    if ours:
        return str(known[bare])
    close = difflib.get_close_matches(bare.lower(), known, n=1, cutoff=0.6)
    hint = f"did you mean '{close[0]}'?" if close else f"`run.py list {kind}` shows all"
    if path.suffix in SUFFIXES or path.parent != Path("."):
        raise InputError(f"{text}: no such file" + (f", and no {kind[:-1]} of that name; {hint}" if close else ""))
    raise InputError(f"unknown {kind[:-1]} '{text}': {hint}")


def load_preset(text: str) -> dict[str, Any]:
    """Read a recipe by path or name.

    Raises:
        InputError: as `preset_path` and `load_recipe`.
    """
    return load_recipe(preset_path(text))
