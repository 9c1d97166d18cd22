"""Data sets of the Hugging Face Hub, by ``hub:OWNER/NAME[@REVISION][:CONFIG][/SPLIT]``.

A copy in the Hub's cache (``HF_HOME``, ``HF_HUB_CACHE``) is used as it is, without a question to the network; else the
files of the split are downloaded into it, and nothing more. Only tables are read: no script of a repository is run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rl_agents.data.table_folders import CARD, Part, choose, folder_files, parts
from rl_agents.errors import InputError

PREFIX = "hub:"
FORM = "hub:OWNER/NAME[@REVISION][:CONFIG][/SPLIT]"
_NAME = re.compile(
    r"hub:(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>refs/[^/:]+/[^/:]+|[^/:]+))?(?::(?P<config>[^/:]+))?(?:/(?P<split>[^/:]+))?"
)


@dataclass(frozen=True, slots=True)
class HubName:
    """A name, taken apart; what is absent is empty."""

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
        """What downloads all of it."""
        return f"hf download {self.repo} --repo-type dataset{self.revision and f' --revision {self.revision}'}"


def read_hub_name(name: str) -> HubName:
    """Take a name apart.

    Raises:
        InputError: it is of another form.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        example = "hub:hotpotqa/hotpot_qa:distractor/train"
        raise InputError(f"{name}: a data set of the Hub is written {FORM}, such as {example}")
    return HubName(*(match[part] or "" for part in ("repo", "revision", "config", "split")))


@lru_cache(maxsize=32)
def hub_files(name: str) -> tuple[Path, ...]:
    """Return the files of a split, from the cache or downloaded into it.

    Raises:
        InputError: nothing there: no network, no such repository, revision, configuration or split, or no access.
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
    except InputError as error:  # another split of it may be there
        problem = error
    if is_offline_mode():
        if problem is not None:
            raise InputError(f"{problem} (in the cache; HF_HUB_OFFLINE is set: `{hub.command}` gets all)")
        raise InputError(f"{hub.where}: not in the cache, and HF_HUB_OFFLINE is set: {_get(hub)}")
    return _downloaded(hub)


def _downloaded(hub: HubName) -> tuple[Path, ...]:
    """Download the files of one split; raises as `hub_files` does."""
    from huggingface_hub import HfApi, hf_hub_download, snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

    revision = hub.revision or None
    try:
        names = HfApi().list_repo_files(hub.repo, repo_type="dataset", revision=revision)
        card = ""
        if CARD in names:
            card = Path(hf_hub_download(hub.repo, CARD, repo_type="dataset", revision=revision)).read_text("utf-8")
        wanted = choose(_usable(hub, names, card), hub.config, hub.split, hub.where)
        folder = snapshot_download(
            hub.repo, repo_type="dataset", revision=revision, allow_patterns=[*map(_literal, wanted), CARD]
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
    except InputError:
        raise
    except Exception as error:  # which one depends on the HTTP library of this version
        if not isinstance(error, OSError) and "httpx" not in type(error).__module__:
            raise
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no answer'}"
        where = f"{hub.where}: not in the cache, and the Hub cannot be reached"
        raise InputError(f"{where} ({reason}): {_get(hub)}") from None


def _usable(hub: HubName, names: list[str], card: str) -> list[Part]:
    found = parts(names, card)
    if not found:
        copy = f"{PREFIX}{hub.repo}@refs/convert/parquet"
        raise InputError(f"{hub.where}: no tables in it, and scripts are not run; the Hub's own copy may be {copy}")
    return found


def _literal(name: str) -> str:
    """A name as a pattern that matches nothing else."""
    return re.sub(r"([*?[])", r"[\1]", name)


def _get(hub: HubName) -> str:
    return f"`{hub.command}` gets it where there is a network"
