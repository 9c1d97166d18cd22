"""The sources of products, by name: a generated catalog, or official files at a path.

A path is a folder with ``items_shuffle*.json``, ``items_ins_v2*.json`` and, if present, ``items_human_ins.json``, or a
product list with the instruction files next to it. Stores are built at their first use and kept in the cache folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rl_agents.data.building import cached_file
from rl_agents.data.row_cache import KeptRows, keep
from rl_agents.data.tables import JsonStream, fingerprint
from rl_agents.envs.webshop.generated import shop_entries, small_entries
from rl_agents.envs.webshop.records import Listing, attributes_from_record, human_instructions, product_from_record
from rl_agents.envs.webshop.store import FORMAT, build_store
from rl_agents.errors import InputError

GENERATED_PRODUCTS = 2000
#: Increases when the generated products change.
GENERATOR = 1

Entries = Iterator[tuple[Listing, float | None]]


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
        return self.name in ("generated", "small")

    def ensure_store(self) -> Path:
        version = f"{FORMAT}/{self.fingerprint}"
        return cached_file("webshop", Path(self.name).stem, version, lambda path: build_store(path, self.entries()))


def find_catalogue(name: str) -> Catalogue:
    if name == "small":
        return Catalogue(name, small_entries, f"small/{GENERATOR}")
    if name == "generated":
        entries = partial(shop_entries, GENERATED_PRODUCTS)
        return Catalogue(name, entries, f"generated/{GENERATOR}/{GENERATED_PRODUCTS}")
    path = Path(name).expanduser()
    if not path.exists():
        raise InputError(f"env.catalogue={name}: valid: small, generated, a folder or a file that exists")
    files = official_files(path)
    return Catalogue(name, partial(official_entries, *files), fingerprint([file for file in files if file]))


def official_files(path: Path) -> tuple[Path, Path, Path | None]:
    """Find products, attributes and human instructions in a folder, or next to a product file."""
    folder = path if path.is_dir() else path.parent
    items = path if path.is_file() else _first(folder, "items_shuffle*.json")
    same = folder / f"items_ins_v2{items.stem.removeprefix('items_shuffle')}.json"
    attributes = same if same.is_file() else _first(folder, "items_ins_v2*.json")
    human = folder / "items_human_ins.json"
    return items, attributes, human if human.is_file() else None


def official_entries(items: Path, attributes: Path, human: Path | None) -> Entries:
    size = max(items.stat().st_size, 1)
    attributed, wanted = _by_asin(attributes), _by_asin(human) if human else None
    stream = JsonStream(items)
    for number, (_, record) in enumerate(stream, start=1):
        try:
            asin = str(record["asin"])
            known = attributed.get(asin) if asin in attributed else {}
            names, synthetic = attributes_from_record(known)
            product = product_from_record(record, names)
            said = human_instructions(wanted.get(asin)) if wanted and asin in wanted else ()
        except (AttributeError, InputError, KeyError, TypeError, ValueError) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(f"{items}: product {number} cannot be read: {reason}") from error
        if product is not None:
            yield Listing(product, (*said, *((synthetic,) if synthetic else ()))), min(stream.position / size, 1.0)


def _by_asin(path: Path) -> KeptRows:
    """Return records by asin, in a file of the cache, so that memory stays bounded."""
    return keep(
        path.stem, f"webshop/{fingerprint([path])}", lambda: ((asin, "", record) for asin, record in JsonStream(path))
    )


def _first(folder: Path, pattern: str) -> Path:
    """Return the matching file; of several the one with the shortest name, which is the full set."""
    found = sorted(folder.glob(pattern), key=lambda path: (len(path.name), path.name))
    if not found:
        raise InputError(f"{folder}: no {pattern} there")
    return found[0]
