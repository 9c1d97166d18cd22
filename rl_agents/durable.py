"""Atomic replacement of files, and writes that survive a power failure."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from rl_agents.errors import InputError

Data = TypeVar("Data", dict, list)


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


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a draft that replaces ``path`` atomically at the end: readers see the old content or the new one.

    Raises:
        OSError: it cannot be written; the old content stays, and no draft remains.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield draft
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def replace_text(path: Path, text: str | bytes) -> None:
    with replacing(path) as draft:
        draft.write_bytes(text if isinstance(text, bytes) else text.encode())


def read_json(path: Path, kind: type[Data]) -> Data:
    """Return the object (``dict``) or list that a JSON file holds.

    Raises:
        InputError: the file is damaged, or holds something else.
        OSError: it cannot be read.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: broken JSON: {error}") from None
    if not isinstance(data, kind):
        wanted = "an object" if kind is dict else "a list"
        raise InputError(f"{path}: {wanted} is needed as JSON, found {type(data).__name__}")
    return data
