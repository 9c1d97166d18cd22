"""The manifest of a checkpoint: size and CRC-32 of every file, which show damage before anything is loaded."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

from rl_agents.durable import read_json
from rl_agents.errors import InputError

MANIFEST, STATE = "manifest.json", "state.json"
#: Format of checkpoints.
FORMAT = 2


def write_manifest(folder: Path) -> None:
    """List all files of a folder that is otherwise complete."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    listed = {path.relative_to(folder).as_posix(): [path.stat().st_size, _checksum(path)] for path in files}
    (folder / MANIFEST).write_text(json.dumps(listed, indent=1), encoding="utf-8")


def damage(folder: Path, parts: tuple[str, ...] = ("",)) -> str:
    """Return which file is not as it was written; empty if all are, or if the folder is no checkpoint.

    Args:
        parts: beginnings of the names of the files to read.
    """
    try:
        for name, (size, checksum) in read_json(folder / MANIFEST, dict).items():
            path = folder / name
            if name.startswith(parts) and (found := path.stat().st_size) != size:
                return f"{name} is not as it was written ({found} bytes, {size} were written)"
            if name.startswith(parts) and _checksum(path) != checksum:
                return f"{name} is not as it was written (its checksum differs)"
    except FileNotFoundError as error:
        name, state = Path(error.filename).name, folder / STATE
        ours = "" in parts and state.is_file() and f'"format": {FORMAT}' in state.read_text(errors="replace")
        return f"{name} is missing" if ours or name != MANIFEST else ""
    except (InputError, OSError) as error:
        return str(error)
    return ""


def _checksum(path: Path) -> int:
    found = 0
    with path.open("rb", buffering=0) as file:
        while piece := file.read(1 << 22):
            found = zlib.crc32(piece, found)
    return found
