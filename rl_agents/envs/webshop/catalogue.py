"""Where products come from: official files at a path, or a generated catalog; found by name.

| name | what |
|---|---|
| ``generated`` | 2,000 products of our own, one instruction each |
| ``generated:N`` | N of them, for measurements |
| ``small`` | 300 products in single words, for the warm-start model |
| a folder | the official ``items_shuffle*.json``, ``items_ins_v2*.json`` and, if there, ``items_human_ins.json`` |
| a ``.json`` file | an official product list; the instruction files are looked for next to it |

Stores are built at their first use and kept in the cache folder of rl_agents.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_agents.cache import cache_dir
from rl_agents.data.building import only_one
from rl_agents.data.tables import JsonStream
from rl_agents.envs.webshop.generated import shop_entries, small_entries
from rl_agents.envs.webshop.records import Entry, attributes_from_record, human_instructions, product_from_record
from rl_agents.envs.webshop.store import FORMAT, build_store
from rl_agents.errors import InputError

GENERATED_PRODUCTS = 2000
MAX_GENERATED = 10_000_000
#: Counts up when the generator's products change.
GENERATOR = 1

Entries = Iterator[tuple[Entry, float | None]]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """A source of products.

    Attributes:
        name: ``small``, ``generated``, ``generated:N``; a path otherwise.
        entries: yields all products with the share of the source that has been read.
        fingerprint: changes when the products do.
    """

    name: str
    entries: Callable[[], Entries]
    fingerprint: str

    @property
    def generated(self) -> bool:
        """Whether the products are our own."""
        return self.name.split(":")[0] in ("generated", "small")

    def ensure_store(self) -> Path:
        """Return the store, built first when it is absent."""
        digest = hashlib.sha256(f"{FORMAT}/{self.fingerprint}".encode()).hexdigest()[:12]
        path = cache_dir() / "webshop" / f"{re.sub(r'[^A-Za-z0-9]+', '-', Path(self.name).stem)}-{digest}.sqlite"
        if not path.is_file():
            with only_one(path):
                if not path.is_file():
                    build_store(path, self.entries())
        return path


def find_catalogue(name: str) -> Catalogue:
    """Return the catalog that the key ``env.catalogue`` names.

    Raises:
        InputError: no such file, a folder without product files, or a number out of range.
    """
    if name == "small":
        return Catalogue(name, small_entries, f"small/{GENERATOR}")
    if match := re.fullmatch(r"generated(?::([1-9]\d{0,8}))?", name):
        count = int(match[1] or GENERATED_PRODUCTS)
        if count > MAX_GENERATED:
            raise InputError(f"env.catalogue={name}: at most {MAX_GENERATED} products")
        plain = "generated" if count == GENERATED_PRODUCTS else f"generated:{count}"
        return Catalogue(plain, lambda: shop_entries(count), f"generated/{GENERATOR}/{count}")
    path = Path(name).expanduser()
    if not path.exists():
        raise InputError(f"env.catalogue={name}: valid: small, generated, generated:N, a folder or a file that exists")
    files = OfficialFiles.find(path)
    return Catalogue(name, files.entries, files.fingerprint())


@dataclass(frozen=True, slots=True)
class OfficialFiles:
    items: Path
    attributes: Path
    human: Path | None

    @classmethod
    def find(cls, path: Path) -> OfficialFiles:
        """Look for the files in a folder, or next to a product file.

        Raises:
            InputError: a file that is needed is missing; the message names it.
        """
        folder = path if path.is_dir() else path.parent
        items = path if path.is_file() else _first(folder, "items_shuffle*.json")
        tail = items.stem.removeprefix("items_shuffle")
        same = folder / f"items_ins_v2{tail}.json"
        human = folder / "items_human_ins.json"
        attributes = same if same.is_file() else _first(folder, "items_ins_v2*.json")
        return cls(items, attributes, human if human.is_file() else None)

    def fingerprint(self) -> str:
        """Return what tells these files from others without reading them: paths, sizes and times."""
        parts: list[Any] = []
        for path in (self.items, self.attributes, self.human):
            stat = None if path is None else path.stat()
            parts.append(None if stat is None else [str(path), stat.st_size, stat.st_mtime_ns])
        return json.dumps(parts)

    def entries(self) -> Entries:
        """Yield the products in the order of the file, with their instructions.

        Raises:
            InputError: a record that cannot be read; file, place and reason are named.
        """
        size = max(self.items.stat().st_size, 1)
        with _Lookup() as lookup:
            lookup.add("attributes", self.attributes)
            if self.human is not None:
                lookup.add("human", self.human)
            stream = JsonStream(self.items)
            for number, (_, record) in enumerate(stream, start=1):
                try:
                    entry = self._entry(record, lookup)
                except (AttributeError, InputError, KeyError, TypeError, ValueError) as error:
                    reason = f"no {error}" if isinstance(error, KeyError) else str(error)
                    raise InputError(f"{self.items}: product {number} cannot be read: {reason}") from error
                if entry is not None:
                    yield entry, min(stream.position / size, 1.0)

    @staticmethod
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
    """Return the file that matches; of several the one with the shortest name, which is the full set."""
    found = sorted(folder.glob(pattern), key=lambda path: (len(path.name), path.name))
    if not found:
        raise InputError(f"{folder}: no {pattern} there")
    return found[0]
