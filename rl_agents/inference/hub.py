"""Models by their public names, from the cache that `hf download` fills. A run downloads nothing.

``model=NAME`` or ``model=NAME@REVISION``, as in Qwen/Qwen3-4B@main. A run records the commit that it found.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from rl_agents.errors import InputError

#: OWNER/NAME, and a branch, tag or commit.
HUB_NAME = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@(?P<revision>[A-Za-z0-9][\w./-]*))?")


def find_folder(model: str | Path) -> Path | None:
    """Return the folder of ``model``: a folder itself, or a public model in the cache; None if it is not here."""
    if Path(model).is_dir():
        return Path(model)
    if not (match := HUB_NAME.fullmatch(str(model))):
        return None
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(match["name"], revision=match["revision"], local_files_only=True))
    except (LocalEntryNotFoundError, ValueError):  # a name that no public model can have
        return None


def model_folder(model: str | Path) -> Path:
    """Return the folder of ``model``.

    Raises:
        InputError: there is none; the message says how to download a public model.
    """
    if (folder := find_folder(model)) is not None:
        return folder
    raise InputError(f"model={model}: no such folder{how_to_get(str(model))}")


def how_to_get(model: str) -> str:
    """Say how to download a public model; empty if ``model`` cannot be a public name."""
    if not (match := HUB_NAME.fullmatch(model)):
        return ""
    from huggingface_hub import constants

    offline = "unset HF_HUB_OFFLINE, then " if os.environ.get("HF_HUB_OFFLINE") else ""
    return (
        f", and the Hugging Face cache ({constants.HF_HUB_CACHE}) does not have it; runs download nothing: {offline}"
        f"`{_download(match)}` (before that `hf auth login`, if its owner requires consent), or "
        "copy a cache here and set HF_HOME"
    )


def again(folder: Path, model: str | Path) -> str:
    """Say how to complete an interrupted download; empty for folders that are no downloads."""
    match = HUB_NAME.fullmatch(str(model))
    if match is None or folder == Path(model):
        return ""
    return f"; if its download was cut short, run `{_download(match)}` again"


def _download(match: re.Match[str]) -> str:
    revision = f" --revision {match['revision']}" if match["revision"] else ""
    return f"hf download {match['name']}{revision}"


def pinned(model: str) -> str:
    """Return a public name with the commit that the cache has; a folder unchanged."""
    match, folder = HUB_NAME.fullmatch(model), find_folder(model)
    return f"{match['name']}@{folder.name}" if match and folder and not Path(model).is_dir() else model


def plain_name(model: str) -> str:
    match = HUB_NAME.fullmatch(model)
    return (match["name"] if match else model).rstrip("/").rsplit("/", 1)[-1]
