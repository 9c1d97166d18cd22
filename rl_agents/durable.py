"""Atomic replacement of files, and writes that survive a power failure."""

from __future__ import annotations

import os
from pathlib import Path


def flush(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on disk.

    Raises:
        OSError: it does not exist, or the disk fails.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_text(path: Path, text: str | bytes) -> None:
    """Replace ``path`` atomically: readers see the old text or the new one.

    Raises:
        OSError: it cannot be written; the old text stays, and no draft remains.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(text if isinstance(text, bytes) else text.encode())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
