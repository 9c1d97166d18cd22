"""Files that appear whole under their names, and writing that survives a power cut."""

from __future__ import annotations

import os
from pathlib import Path


def flush(path: Path) -> None:
    """Return when a file's content, or the names in a folder, are on the disk.

    Raises:
        OSError: there is none, or the disk fails.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_text(path: Path, text: str) -> None:
    """Write ``path`` in one step, whatever other processes write there: readers see the old text or the new one.

    Raises:
        OSError: it cannot be written; the old text stays, and no draft.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
