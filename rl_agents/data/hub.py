"""Data sets of the Hugging Face Hub, by ``hub:OWNER/NAME[@REVISION][:CONFIG][/SPLIT]``.

A copy in the Hub's cache (``HF_HOME``, ``HF_HUB_CACHE``) is used without network access. Otherwise only the files of
the split are downloaded into it. Only tables are read: no script of a repository is run.

The files of a split are found by their names, in folders and in repositories:

| files | configuration | split |
|---|---|---|
| ``train.jsonl``, ``hotpot_train_v1.1.json`` | ``default`` | ``train`` |
| ``data/train-00000-of-00002.parquet`` | ``default`` | ``train`` |
| ``distractor/validation-00000-of-00001.parquet`` | ``distractor`` | ``validation`` |
| ``main/test/0000.parquet`` (the Hub's own copies) | ``main`` | ``test`` |

A card (``README.md``) whose header lists ``configs`` takes precedence.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from rl_agents.errors import InputError, nearest

CARD = "README.md"
#: Suffixes of data files; of a split in several formats the first one is read.
SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".json", ".csv", ".tsv")
#: Files that describe a data set.
_NO_DATA = re.compile(r"(\..*|dataset_infos?\.json|dataset_dict\.json|state\.json)")
_SHARD = re.compile(r"(.+?)[-_.](\d{4,6})-of-(\d{4,6})")
_SPLIT = re.compile(r"(?:^|[-_.])(train|test|validation|valid|val|dev|eval)(?=[-_.]|$)")
MAX_FILES = 20_000
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Part:
    """A file of a data set. ``split`` is empty if it is unknown."""

    name: str
    config: str
    split: str


def folder_files(folder: Path, config: str, split: str, where: str) -> tuple[Path, ...]:
    """Return the files of a split in order; raises as `choose` does.

    Args:
        config, split: empty takes the only one.
        where: name of the folder in messages.
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
    paths = map(PurePosixPath, names)
    data = sorted(str(path) for path in paths if path.suffix in SUFFIXES and not _NO_DATA.fullmatch(path.name))
    return list(_listed(data, card)) or [_guessed(name) for name in data]


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
        raise InputError(f"{where} has the configurations {', '.join(configs)}: name one, such as :{configs[0]}/train")
    config = config or (DEFAULT if DEFAULT in configs else configs[0])
    own = [part for part in found if part.config == config]
    chosen = _of_split(own, split, where)
    suffix = next(end for end in SUFFIXES if any(part.name.endswith(end) for part in chosen))
    names = [part.name for part in chosen if part.name.endswith(suffix)]
    _check_shards(names, where)
    stems = {PurePosixPath(name).stem for name in names}  # an equal one is the same table in another format
    if others := tuple(part.name for part in chosen if PurePosixPath(part.name).stem not in stems):
        _report_formats(where, suffix, others)
    return names


@lru_cache
def _report_formats(where: str, suffix: str, others: tuple[str, ...]) -> None:
    """Print, once per data set, the files of a split that are not read."""
    shown = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
    print(f"{where}: only its {suffix} files are read, not {shown}", file=sys.stderr, flush=True)


def _of_split(own: Sequence[Part], split: str, where: str) -> list[Part]:
    splits = list(dict.fromkeys(part.split or "train" for part in own))
    if not split:
        if len(splits) > 1:
            raise InputError(f"{where} has the splits {', '.join(splits)}: name one, such as {where}/{splits[0]}")
        return list(own)
    chosen = [part for part in own if part.split == split] or [
        part for part in own if PurePosixPath(part.name).stem == split
    ]
    if not chosen and split == "train" and not any(part.split for part in own):
        chosen = list(own)
    if not chosen:
        raise InputError(f"{where}: no split '{split}': {nearest(split, splits)}")
    return chosen


def _check_shards(names: Sequence[str], where: str) -> None:
    """Raise if a shard is missing: an interrupted download would look like a smaller data set."""
    shards = [match for name in names if (match := _SHARD.fullmatch(PurePosixPath(name).stem))]
    if shards and len(shards) == len(names):
        wanted = int(shards[0][3])
        numbers = {int(match[2]) for match in shards}
        if len({match[1] for match in shards}) == 1 and len(numbers) < wanted:
            there = f"{len(numbers)} of {wanted} files of '{shards[0][1]}'"
            raise InputError(f"{where}: {there}: is the download complete?")


def _guessed(name: str) -> Part:
    path = PurePosixPath(name)
    folders = [folder for folder in path.parts[:-1] if folder != "data"]
    shard = _SHARD.fullmatch(path.stem)
    if shard and shard[1] != "data":
        split = shard[1]
    elif named := _SPLIT.search(path.stem):
        split = named[1]
    elif folders and (shard or path.stem.isdecimal() or _SPLIT.fullmatch(folders[-1])):
        split = folders.pop()
    else:
        split = ""
    return Part(name, "/".join(folders) or DEFAULT, split)


def card_header(card: str) -> dict[str, Any]:
    """Return the header of a data set's card; empty if it has none, or a broken one."""
    match = re.match(r"---\s*\n(.*?)\n---\s*(?:\n|$)", card, re.DOTALL)
    try:
        header = yaml.safe_load(match[1]) if match else None
    except yaml.YAMLError:
        return {}
    return header if isinstance(header, dict) else {}


def _listed(names: Sequence[str], card: str) -> Iterable[Part]:
    """Yield the files that the header of a card lists."""
    configs = card_header(card).get("configs")
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


PREFIX = "hub:"
FORM = "hub:OWNER/NAME[@REVISION][:CONFIG][/SPLIT]"
_NAME = re.compile(
    r"hub:(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>refs/[^/:]+/[^/:]+|[^/:]+))?(?::(?P<config>[^/:]+))?(?:/(?P<split>[^/:]+))?"
)


@dataclass(frozen=True, slots=True)
class HubName:
    """Parts of a name; absent ones are empty."""

    repo: str
    revision: str
    config: str
    split: str

    @property
    def where(self) -> str:
        """The name without its split."""
        return f"{PREFIX}{self.repo}{self.revision and f'@{self.revision}'}{self.config and f':{self.config}'}"

    @property
    def command(self) -> str:
        """The command that downloads all of it."""
        return f"hf download {self.repo} --repo-type dataset{self.revision and f' --revision {self.revision}'}"


def read_hub_name(name: str) -> HubName:
    """Parse a name. Raises `InputError`: it has another form."""
    match = _NAME.fullmatch(name)
    if match is None:
        example = "hub:hotpotqa/hotpot_qa:distractor/train"
        raise InputError(f"{name}: a data set of the Hub is written {FORM}, such as {example}")
    return HubName(*(match[part] or "" for part in ("repo", "revision", "config", "split")))


@lru_cache(maxsize=32)
def hub_files(name: str) -> tuple[Path, ...]:
    """Return the files of a split, from the cache or downloaded into it.

    Raises:
        InputError: no network, no such repository, revision, configuration or split, or no access.
    """
    hub = read_hub_name(name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import is_offline_mode
    from huggingface_hub.errors import LocalEntryNotFoundError

    revision, folder, problem = hub.revision or None, None, None
    try:
        folder = Path(snapshot_download(hub.repo, repo_type="dataset", revision=revision, local_files_only=True))
        return folder_files(folder, hub.config, hub.split, hub.where)
    except LocalEntryNotFoundError:
        pass
    except InputError as error:  # the cache may have another split
        problem = error
    if is_offline_mode():
        if problem is not None:
            raise InputError(f"{problem} (in the cache; HF_HUB_OFFLINE is set: `{hub.command}` gets all)")
        raise InputError(f"{hub.where}: not in the cache, and HF_HUB_OFFLINE is set: {_get(hub)}")
    return _downloaded(hub)


def _downloaded(hub: HubName) -> tuple[Path, ...]:
    from huggingface_hub import HfApi, hf_hub_download, snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

    no_answer: Any = HfHubHTTPError.__bases__[0]  # of the HTTP library that this version uses
    revision = hub.revision or None
    try:
        names = HfApi().list_repo_files(hub.repo, repo_type="dataset", revision=revision)
        card = ""
        if CARD in names:
            card = Path(hf_hub_download(hub.repo, CARD, repo_type="dataset", revision=revision)).read_text("utf-8")
        wanted = choose(_usable(hub, names, card), hub.config, hub.split, hub.where)
        folder = snapshot_download(
            hub.repo, repo_type="dataset", revision=revision, allow_patterns=[*map(glob.escape, wanted), CARD]
        )
        return tuple(Path(folder) / name for name in wanted)
    except GatedRepoError:
        page = f"https://huggingface.co/datasets/{hub.repo}"
        raise InputError(f"{hub.where} is gated: accept its conditions on {page}, then `hf auth login`") from None
    except RevisionNotFoundError:
        raise InputError(f"{hub.where}: no revision '{hub.revision}'") from None
    except RepositoryNotFoundError:
        raise InputError(f"{hub.where}: no such data set on the Hub, or a private one (`hf auth login`)") from None
    except HfHubHTTPError as error:
        raise InputError(f"{hub.where}: the Hub answers: {str(error).splitlines()[0]}") from None
    except (OSError, no_answer) as error:
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no answer'}"
        where = f"{hub.where}: not in the cache, and the Hub cannot be reached"
        raise InputError(f"{where} ({reason}): {_get(hub)}") from None


def _usable(hub: HubName, names: list[str], card: str) -> list[Part]:
    found = parts(names, card)
    if not found:
        copy = f"{PREFIX}{hub.repo}@refs/convert/parquet"
        raise InputError(f"{hub.where}: no tables in it, and scripts are not run; the Hub's own copy may be {copy}")
    return found


def _get(hub: HubName) -> str:
    return f"`{hub.command}` gets it where there is a network"
