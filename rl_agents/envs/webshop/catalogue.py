"""The sources of products, by name: a generated catalog, or official files at a path.

A path is a folder with ``items_shuffle*.json``, ``items_ins_v2*.json`` and, if present, ``items_human_ins.json``, or a
product list with the instruction files next to it. Stores are built at their first use and kept in the cache folder.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rl_agents.data.building import cached_file
from rl_agents.data.tables import JsonStream
from rl_agents.envs.webshop.generated import shop_entries, small_entries
from rl_agents.envs.webshop.records import Entry, attributes_from_record, human_instructions, product_from_record
from rl_agents.envs.webshop.store import FORMAT, build_store
from rl_agents.errors import InputError

GENERATED_PRODUCTS = 2000
#: Increases when the generated products change.
GENERATOR = 1

Entries = Iterator[tuple[Entry, float | None]]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """A source of products.

    Attributes:
        name: ``small`` or ``generated``; a path otherwise.
        entries: yields all products with the share of the source that has been read.
        fingerprint: changes when the products change.
    """

    name: str
    entries: Callable[[], Entries]
    fingerprint: str

    @property
    def generated(self) -> bool:
        """Whether the products are generated."""
        return self.name in ("generated", "small")

    def ensure_store(self) -> Path:
        """Return the store, and build it first if it is absent."""
        version = f"{FORMAT}/{self.fingerprint}"
        return cached_file("webshop", Path(self.name).stem, version, lambda path: build_store(path, self.entries()))


def find_catalogue(name: str) -> Catalogue:
    """Return the catalog that the key ``env.catalogue`` names."""
    if name == "small":
        return Catalogue(name, small_entries, f"small/{GENERATOR}")
    if name == "generated":
        entries = partial(shop_entries, GENERATED_PRODUCTS)
        return Catalogue(name, entries, f"generated/{GENERATOR}/{GENERATED_PRODUCTS}")
    path = Path(name).expanduser()
    if not path.exists():
        raise InputError(f"env.catalogue={name}: valid: small, generated, a folder or a file that exists")
    files = official_files(path)
    stats = [(file, file.stat()) if file else None for file in files]
    fingerprint = json.dumps([one and [str(one[0]), one[1].st_size, one[1].st_mtime_ns] for one in stats])
    return Catalogue(name, partial(official_entries, *files), fingerprint)


def official_files(path: Path) -> tuple[Path, Path, Path | None]:
    """Find products, attributes and human instructions in a folder, or next to a product file."""
    folder = path if path.is_dir() else path.parent
    items = path if path.is_file() else _first(folder, "items_shuffle*.json")
    same = folder / f"items_ins_v2{items.stem.removeprefix('items_shuffle')}.json"
    attributes = same if same.is_file() else _first(folder, "items_ins_v2*.json")
    human = folder / "items_human_ins.json"
    return items, attributes, human if human.is_file() else None


def official_entries(items: Path, attributes: Path, human: Path | None) -> Entries:
    """Yield the products in the order of the file, with their instructions."""
    size = max(items.stat().st_size, 1)
    with _Lookup() as lookup:
        lookup.add("attributes", attributes)
        if human is not None:
            lookup.add("human", human)
        stream = JsonStream(items)
        for number, (_, record) in enumerate(stream, start=1):
            try:
                entry = _entry(record, lookup)
            except (AttributeError, InputError, KeyError, TypeError, ValueError) as error:
                reason = f"no {error}" if isinstance(error, KeyError) else str(error)
                raise InputError(f"{items}: product {number} cannot be read: {reason}") from error
            if entry is not None:
                yield entry, min(stream.position / size, 1.0)


def _entry(record: dict[str, Any], lookup: _Lookup) -> Entry | None:
    known = lookup.get("attributes", str(record["asin"]))
    attributes, synthetic = attributes_from_record({} if known is None else known)
    product = product_from_record(record, attributes)
    if product is None:
        return None
    human = human_instructions(lookup.get("human", product.asin) or ())
    return Entry(product, (*human, *((synthetic,) if synthetic else ())))


class _Lookup:
    """Records by asin, kept in a temporary file so that memory stays bounded."""

    def __enter__(self) -> _Lookup:
        self._folder = tempfile.TemporaryDirectory(prefix="webshop-")
        self._db = sqlite3.connect(Path(self._folder.name) / "lookup.sqlite", isolation_level=None)
        self._db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
        self._db.execute("CREATE TABLE records (kind TEXT, asin TEXT, record TEXT, PRIMARY KEY (kind, asin))")
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._db.close()
        self._folder.cleanup()

    def add(self, kind: str, path: Path) -> None:
        self._db.execute("BEGIN")
        rows = ((kind, asin, json.dumps(record)) for asin, record in JsonStream(path))
        self._db.executemany("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", rows)
        self._db.execute("COMMIT")

    def get(self, kind: str, asin: str) -> Any:
        row = self._db.execute("SELECT record FROM records WHERE kind = ? AND asin = ?", (kind, asin)).fetchone()
        return json.loads(row[0]) if row else None


def _first(folder: Path, pattern: str) -> Path:
    """Return the matching file; of several the one with the shortest name, which is the full set."""
    found = sorted(folder.glob(pattern), key=lambda path: (len(path.name), path.name))
    if not found:
        raise InputError(f"{folder}: no {pattern} there")
    return found[0]
