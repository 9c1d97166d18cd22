"""Exit code 2 means that nothing was written: outputs are checked first, and removed if bad input ends the work."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from rl_agents.durable import replace_text
from rl_agents.errors import InputError
from rl_agents.store.files import Lock

#: The traceback of a failure. A folder with only this file is free.
ERROR_LOG = "error.log"


def check_writable(path: Path, flag: str = "--output") -> None:
    """Check that an output file or folder can be written; nothing remains of the attempt.

    Raises:
        InputError: it cannot be written.
    """
    if os.path.islink(path) and not os.path.exists(path):
        raise InputError(f"{flag} {path}: cannot be written: it is a link to nowhere")
    folder = path if os.path.isdir(path) else path.parent  # pathlib raises if a name is too long
    missing = _missing(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, suffix=path.name):
            pass
    except OSError as error:
        existing = next(place for place in (folder, *folder.parents) if os.path.exists(place))
        reason = error.strerror if existing.is_dir() else f"{existing} is a file"
        raise InputError(f"{flag} {path}: cannot be written: {reason}") from None
    finally:
        _remove_empty(missing)


@contextmanager
def one_process(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's or sweep's folder: a second process would remove what the first one writes.

    Raises:
        InputError: another process holds it.
    """
    with ExitStack() as held:
        with suppress(OSError):  # a shared file system without locks
            held.callback(Lock(folder / "run", rule="one process at a time").release)
        yield


@contextmanager
def nothing_left(*outputs: Path, begun: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Remove what the block has written to ``outputs``, and their new parent folders, if an `InputError` ends it.

    Args:
        outputs: files or folders; earlier contents stay.
        begun: whether there is work that can be continued. Then everything is kept, and the error becomes a
            `RuntimeError` (exit code 1).
    """
    before = {path: set(path.iterdir()) if path.is_dir() else None for path in outputs}
    texts = {path: path.read_bytes() for path in outputs if path.is_file()}
    existed = {path for path in outputs if path.exists()}
    missing = [folder for path in outputs for folder in _missing(path.parent)]
    try:
        yield
    except InputError as error:
        if begun():
            raise RuntimeError(str(error)) from error
        for path in outputs:
            found = before[path]
            if found is not None:
                _remove(entry for entry in path.iterdir() if entry not in found)
            elif path not in existed:
                _remove([path])
        for path, text in texts.items():
            replace_text(path, text)
        _remove_empty(missing)
        raise


def _missing(folder: Path) -> list[Path]:
    """Return ``folder`` and its missing parents, the innermost first."""
    return [path for path in (folder, *folder.parents) if not os.path.exists(path)]


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def _remove(paths: Iterator[Path] | list[Path]) -> None:
    for path in list(paths):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
