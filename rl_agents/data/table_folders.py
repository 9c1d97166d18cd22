"""Which files of a folder, or of a repository on the Hub, are the rows of a split: told by names, and by the card.

| files | configuration | split |
|---|---|---|
| ``train.jsonl``, ``hotpot_train_v1.1.json`` | ``default`` | ``train`` |
| ``data/train-00000-of-00002.parquet`` | ``default`` | ``train`` |
| ``distractor/validation-00000-of-00001.parquet`` | ``distractor`` | ``validation`` |
| ``main/test/0000.parquet`` (the Hub's own copies) | ``main`` | ``test`` |
| ``train/data-00000-of-00001.arrow`` (`datasets.save_to_disk`) | ``default`` | ``train`` |

A card (``README.md``) whose header lists ``configs`` says it better, and is believed.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from rl_agents.data.table_files import SUFFIXES
from rl_agents.errors import InputError, nearest

CARD = "README.md"
#: Files that describe a data set, or that `datasets` keeps beside it.
_NO_DATA = re.compile(r"(\..*|cache-.*|dataset_infos?\.json|dataset_dict\.json|state\.json)")
_SHARD = re.compile(r"(.+?)[-_.](\d{4,6})-of-(\d{4,6})")
_SPLIT = re.compile(r"(?:^|[-_.])(train|test|validation|valid|val|dev|eval)(?=[-_.]|$)")
MAX_FILES = 20_000
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Part:
    """A file of a data set. ``split`` is empty where nothing says so."""

    name: str
    config: str
    split: str

    @property
    def stem(self) -> str:
        """The file's name without its end."""
        return PurePosixPath(self.name).stem


def folder_files(folder: Path, config: str, split: str, where: str) -> tuple[Path, ...]:
    """Return the files of a split, in their order; raises as `choose` does.

    Args:
        config, split: empty takes the only one.
        where: how messages call the folder.
    """
    found: list[str] = []
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [str((Path(root) / name).relative_to(folder).as_posix()) for name in files]
        if len(found) > MAX_FILES:
            raise InputError(f"{where}: more than {MAX_FILES:,} files; name the folder of one data set")
    card = folder / CARD
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    return tuple(folder / name for name in choose(parts(found, text), config, split, where))


def parts(names: Iterable[str], card: str = "") -> list[Part]:
    """Return the data files among ``names`` with their configurations and splits."""
    data = sorted(name for name in names if _is_data(PurePosixPath(name)))
    told = list(_told(data, card))
    return told or [_guessed(name) for name in data]


def choose(found: Sequence[Part], config: str, split: str, where: str) -> list[str]:
    """Return the names of one split's files.

    Raises:
        InputError: no such configuration or split, several where none is named, or a shard is missing.
    """
    if not found:
        raise InputError(f"{where}: no data in it: no file that ends in {', '.join(SUFFIXES)}")
    configs = list(dict.fromkeys(part.config for part in found))
    if config and config not in configs:
        raise InputError(f"{where}: no configuration '{config}': {nearest(config, configs)}")
    if not config and len(configs) > 1 and DEFAULT not in configs:
        raise InputError(f"{where} has the configurations {', '.join(configs)}: name one, such as {_named(configs)}")
    config = config or (DEFAULT if DEFAULT in configs else configs[0])
    own = [part for part in found if part.config == config]
    chosen = _of_split(own, split, where)
    suffix = next(end for end in SUFFIXES if any(part.name.endswith(end) for part in chosen))
    names = [part.name for part in chosen if part.name.endswith(suffix)]
    _check_shards(names, where)
    return names


def _of_split(own: Sequence[Part], split: str, where: str) -> list[Part]:
    splits = list(dict.fromkeys(part.split or "train" for part in own))
    if not split:
        if len(splits) > 1:
            raise InputError(f"{where} has the splits {', '.join(splits)}: name one, such as {where}/{splits[0]}")
        return list(own)
    chosen = [part for part in own if part.split == split] or [part for part in own if part.stem == split]
    if not chosen and split == "train" and not any(part.split for part in own):
        chosen = list(own)
    if not chosen:
        raise InputError(f"{where}: no split '{split}': {nearest(split, splits)}")
    return chosen


def _check_shards(names: Sequence[str], where: str) -> None:
    """A download that was cut off would pass for a smaller data set."""
    shards = [match for name in names if (match := _SHARD.fullmatch(PurePosixPath(name).stem))]
    if shards and len(shards) == len(names):
        wanted = int(shards[0][3])
        numbers = {int(match[2]) for match in shards}
        if len({match[1] for match in shards}) == 1 and len(numbers) < wanted:
            there = f"{len(numbers)} of {wanted} files of '{shards[0][1]}'"
            raise InputError(f"{where}: {there}: is the download complete?")


def _named(configs: Sequence[str]) -> str:
    return f":{configs[0]}/train"


def _is_data(path: PurePosixPath) -> bool:
    return path.suffix in SUFFIXES and not _NO_DATA.fullmatch(path.name)


def _guessed(name: str) -> Part:
    path = PurePosixPath(name)
    folders = [folder for folder in path.parts[:-1] if folder != "data"]
    shard = _SHARD.fullmatch(path.stem)
    if shard and shard[1] != "data":
        split = shard[1]
    elif told := _SPLIT.search(path.stem):
        split = told[1]
    elif folders and (shard or path.stem.isdecimal() or _SPLIT.fullmatch(folders[-1])):
        split = folders.pop()
    else:
        split = ""
    return Part(name, "/".join(folders) or DEFAULT, split)


def _told(names: Sequence[str], card: str) -> Iterable[Part]:
    """Yield what the header of a card says; nothing where it has none, or one of another form."""
    match = re.match(r"---\s*\n(.*?)\n---\s*(?:\n|$)", card, re.DOTALL)
    try:
        header: Any = yaml.safe_load(match[1]) if match else None
    except yaml.YAMLError:
        return
    configs = header.get("configs") if isinstance(header, dict) else None
    for config in configs if isinstance(configs, list) else ():
        files = config.get("data_files") if isinstance(config, dict) else None
        for split, pattern in _patterns(files):
            chosen = fnmatch.filter(names, pattern)
            yield from (Part(name, str(config.get("config_name", DEFAULT)), split) for name in chosen)


def _patterns(files: Any) -> Iterable[tuple[str, str]]:
    if isinstance(files, str):
        yield "train", files
    for entry in files if isinstance(files, list) else ():
        if isinstance(entry, str):
            yield "train", entry
        elif isinstance(entry, dict):
            paths = entry.get("path", [])
            for path in [paths] if isinstance(paths, str) else paths:
                yield str(entry.get("split", "train")), str(path)
