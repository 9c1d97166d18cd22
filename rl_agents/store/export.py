"""Export of trajectories as JSON lines, for other programs."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.durable import flush
from rl_agents.errors import InputError
from rl_agents.store.reader import PoolReader, Stored, StoreQuery

Row = dict[str, Any]


def export(reader: PoolReader, to: Path, where: StoreQuery) -> int:
    """Write a line of JSON per session to a new file, which is complete or absent.

    Returns:
        Number of sessions.

    Raises:
        InputError: the file exists or cannot be written.
    """
    count = 0
    with _new_file(to) as unfinished, unfinished.open("w", encoding="utf-8") as file:
        for stored in reader.stored(where):
            file.write(json.dumps(plain(_session(reader, stored)), ensure_ascii=False) + "\n")
            count += 1
    return count


def _session(reader: PoolReader, stored: Stored) -> Row:
    """Return `Trajectory.to_json` with the columns of the session."""
    session, trajectory = stored.session, reader.trajectory(stored)
    steps = [_columns(step) for step in trajectory.steps]
    return {
        "session": session.id, "kind": session.kind, "iteration": session.iteration, "env": session.env,
        "state": stored.state, "total": stored.total, **_columns(trajectory), "steps": steps,
    }  # fmt: skip


def _columns(item: Step | Trajectory) -> Row:
    return {field.name: getattr(item, field.name) for field in fields(item)}  # `asdict` would copy id by id


def plain(value: Any) -> Any:
    """Return data that every JSON reader accepts: no NaN, no half of a surrogate pair."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple) and not all(type(item) is int for item in value):  # ids are plain
        return [plain(item) for item in value]
    return value


@contextmanager
def _new_file(path: Path) -> Iterator[Path]:
    """Let the block write a file that appears under its name once it is complete, and replaces none."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if path.exists():
            raise FileExistsError
        yield unfinished
        flush(unfinished)
        os.link(unfinished, path)  # unlike a rename, this replaces nothing
    except FileExistsError:
        raise InputError(f"--output {path}: exists already") from None
    except OSError as error:
        raise InputError(f"--output {path}: cannot be written: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
