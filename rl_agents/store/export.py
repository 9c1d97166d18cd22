"""Export of trajectories as JSON lines or Parquet, for other programs."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.durable import flush
from rl_agents.errors import InputError, nearest
from rl_agents.store.reader import PoolReader, Stored, Where

#: Rows of a Parquet row group.
ROW_GROUP = 256
Row = dict[str, Any]


def export(reader: PoolReader, to: Path, where: Where, *, steps: bool = False, raw: bool = False) -> int:
    """Write sessions to a file, whose suffix is the format (``.jsonl``, ``.parquet``).

    The file is complete or absent. Readers: `json`, `datasets.load_dataset("json" | "parquet", ...)`, pandas.

    Args:
        steps: a row per step, with the columns of its session; default: a row per session, with its steps.
        raw: as recorded, including excluded sessions; default: as `PoolReader.trajectories` returns them.

    Returns:
        Number of rows.

    Raises:
        InputError: the file exists or cannot be written, or the format is unknown.
    """
    if to.suffix not in WRITERS:
        raise InputError(f"--output {to}: '{to.suffix}' is no known form; {nearest(to.suffix, WRITERS)}")
    rows = step_rows(reader, where, raw) if steps else session_rows(reader, where, raw)
    with _new_file(to) as unfinished:
        return WRITERS[to.suffix](unfinished, rows, steps)


def session_rows(reader: PoolReader, where: Where, raw: bool) -> Iterator[Row]:
    """Yield a row per session: `Trajectory.to_json` and the columns of `_around`."""
    for stored in reader.stored(where):
        if raw or where.excluded or not stored.decision.excluded:
            trajectory = reader.trajectory(stored, raw)
            weights = [1.0 if raw else stored.decision.weight_of(ordinal) for ordinal in range(len(trajectory.steps))]
            steps = [_columns(step) | {"weight": w} for step, w in zip(trajectory.steps, weights, strict=True)]
            yield {**_around(stored), **_columns(trajectory), "steps": steps}


def step_rows(reader: PoolReader, where: Where, raw: bool) -> Iterator[Row]:
    for row in session_rows(reader, where, raw):
        steps = row.pop("steps")
        for ordinal, step in enumerate(steps):
            yield {**row, "step": ordinal, "steps": len(steps), **step}


def _columns(item: Step | Trajectory) -> Row:
    return {field.name: getattr(item, field.name) for field in fields(item)}  # `asdict` would copy id by id


def _around(stored: Stored) -> Row:
    session = stored.session
    return {
        "session": session.id, "kind": session.kind, "iteration": session.iteration, "env": session.env,
        "state": stored.state, "total": stored.total,
    }  # fmt: skip


def plain(value: Any) -> Any:
    """Return data that every JSON reader accepts: no NaN, no half of a surrogate pair."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list) and not (value and isinstance(value[0], int)):  # ids are plain
        return [plain(item) for item in value]
    return value


def _write_jsonl(path: Path, rows: Iterator[Row], steps: bool) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(plain(row), ensure_ascii=False) + "\n")
            count += 1
    return count


def _write_parquet(path: Path, rows: Iterator[Row], steps: bool) -> int:
    """Write ``facts`` and ``metrics`` as JSON text, since their keys differ between sessions."""
    import pyarrow.parquet

    schema, count = _schema(steps), 0
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while page := list(itertools.islice(rows, ROW_GROUP)):
            flat = [
                {**plain(row), **{key: json.dumps(plain(row[key])) for key in ("facts", "metrics")}} for row in page
            ]
            writer.write_table(pyarrow.Table.from_pylist(flat, schema))
            count += len(page)
    return count


def _schema(steps: bool) -> Any:
    import pyarrow as pa

    text, whole, real, ids = pa.string(), pa.int64(), pa.float64(), pa.list_(pa.uint32())
    step = [
        ("prompt_ids", ids), ("response_ids", ids), ("logprobs", pa.list_(pa.float32())), ("policy_version", whole),
        ("finish_reason", text), ("observation", text), ("anchor", text), ("action", text), ("reward", real),
        ("valid", pa.bool_()), ("call", whole), ("next_step", whole), ("weight", real),
        ("version_spans", pa.list_(pa.list_(whole))),
    ]  # fmt: skip
    session = [
        ("session", text), ("kind", text), ("iteration", whole), ("env", text), ("state", text), ("total", real),
        ("task_id", text), ("group_id", whole), ("member", whole), ("seed", whole), ("terminated", pa.bool_()),
        ("truncated", pa.bool_()), ("end_cause", text), ("failed", pa.bool_()), ("success", pa.bool_()),
        ("metrics", text), ("facts", text),
    ]  # fmt: skip
    inner = [("step", whole), ("steps", whole), *step] if steps else [("steps", pa.list_(pa.struct(step)))]
    return pa.schema([*session, *inner])


WRITERS: dict[str, Callable[[Path, Iterator[Row], bool], int]] = {
    ".jsonl": _write_jsonl,
    ".parquet": _write_parquet,
}


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
