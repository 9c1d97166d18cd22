"""Plugins: modules of the user that are imported once per process and sent to all machines.

A plugin is a module that registers algorithms, environments, rewards and more (`GROUPS`) when it is imported. It is
named by the key ``plugins``, by ``--import``, or by an entry point of an installed package (`GROUPS`). `Settings` loads
its plugins when it is filled and when a process receives it, so no other code has to.
"""

from __future__ import annotations

import importlib
import os
import site
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

from rl_agents.errors import InputError, described, place_of, similar_file, unknown

Function = TypeVar("Function", bound=Callable[..., Any])
#: Entry points that are imported in every process; the name only documents what a module registers.
GROUPS = tuple(
    f"rl_agents.{kind}"
    for kind in (
        "algorithms", "environments", "rewards", "truncation_rules", "trackers", "verifiers", "judges", "engines",
    )
)  # fmt: skip
#: Files of the user's own modules, by name; Ray sends them to the workers of a cluster.
OWN_MODULES: dict[str, Path] = {}
#: Modules of ``--import``: the default of the key ``plugins``.
ASKED: list[str] = []
#: (kind, name) -> origin of an entry that a plugin registered.
ORIGINS: dict[tuple[str, str], str] = {}


@dataclass(frozen=True)
class Entry:
    """A reward, judge, verifier or truncation rule, as `run.py list` shows it.

    Attributes:
        build: the keys of a run or of an environment -> what they describe.
        served: of a judge: ``build`` reads the keys ``judge_url``, ``judge_model`` and so on.
    """

    name: str
    summary: str
    reference: str
    build: Callable[[Any], Any]
    served: bool = False


_loaded: set[str] = set()
_loading: list[str] = []
#: Python's import caches fail if two threads, which make environments, clear them at the same time.
_looking = threading.Lock()


def load(names: Iterable[str] = ()) -> None:
    """Import the plugins of installed packages and those of ``names``, each once per process.

    Args:
        names: modules, or files ``path/name.py``, which are imported as ``name``.

    Raises:
        InputError: one cannot be imported, or registers a name that is taken; distribution, file and line are named.
    """
    if "" not in _loaded and not _loading:
        for entry in (entry for group in GROUPS for entry in entry_points(group=group)):
            _load(entry.module, f"entry point {entry.name} of package {entry.dist.name if entry.dist else '?'}")
        _loaded.add("")
    for name in names:
        _load(name, f"plugin {name}")


def _load(name: str, origin: str) -> None:
    module = _module_name(name)
    if module in _loaded or origin in _loading:
        return
    _loading.append(origin)
    try:
        own_module(name, origin)
    finally:
        _loading.remove(origin)
    _loaded.add(module)


def located(name: str) -> str:
    """Return the absolute path of a file or of a user's single-file module; other modules by name.

    The path lets other processes and later runs find it from any folder.
    """
    if name.endswith(".py"):
        return str(Path(name).resolve())
    own = OWN_MODULES.get(name)
    return str(own) if own and own.is_file() else name


def _module_name(name: str) -> str:
    """Return the module of a plugin's name, and add a file's folder to the import path."""
    if not name.endswith(".py"):
        return name
    path = Path(name).resolve()
    if path.is_file() and str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    return path.stem  # on another node there is only the module, which Ray sent


def claim(kind: str, name: str, known: Mapping[str, Any]) -> None:
    """Record which plugin registers ``name``; every register function calls this first.

    Args:
        kind: of entry, such as ``algorithm``.
        known: registered entries by name.

    Raises:
        InputError: the name is taken by something built in, or by another plugin.
    """
    origin = _loading[-1] if _loading else ""
    before = ORIGINS.get((kind, name), "built in")
    if name in known and origin and before != origin:
        raise InputError(f"{origin} registers the {kind} '{name}', which is {before}: give it another name")
    if origin:
        ORIGINS[kind, name] = origin


def register(kind: str, known: dict[str, Any], entry: Any) -> None:
    """Add ``entry`` under its name; raises as `claim` does."""
    claim(kind, entry.name, known)
    known[entry.name] = entry


def decorator(
    kind: str, known: dict[str, Any], name: str, summary: str, build: Callable[[Any, Any], Any]
) -> Callable[[Function], Function]:
    """Return a decorator that registers a user's function; ``build`` gets it and the keys, as `Entry.build`."""

    def registered(function: Function) -> Function:
        register(kind, known, Entry(name, summary, function.__module__, partial(build, function)))
        return function

    return registered


def own_module(module: str, wanted: str) -> Any:
    """Import a module from the import path or the current folder, or a file, and record it in `OWN_MODULES`.

    Args:
        wanted: beginning of error messages.

    Raises:
        InputError: it does not exist or cannot be imported; the message names the line.
    """
    name, module, folder = module, _module_name(module), os.getcwd()
    with _looking:
        if folder not in sys.path and "" not in sys.path:
            sys.path.append(folder)  # at the end, so that a file here does not replace an installed module
        if module not in sys.modules:
            importlib.invalidate_caches()
    try:
        home = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            job = "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ and "; a .gitignore may exclude it from the job's folder"
            place = f"{module}{place_of(error, (__file__,))}"
            raise InputError(f"{wanted}: {place} needs {error.name}, which is not installed{job or ''}") from error
        if name.endswith(".py"):
            raise InputError(f"{wanted}: no such file; {similar_file(Path(name))}".rstrip("; ")) from error
        near = similar_file(Path(folder, f"{module.replace('.', '/')}.py"))
        raise InputError(
            f"{wanted}: there is no module {module} in {folder} or among the installed ones; {near and near + ' Else '}"
            f"run from the folder that contains {module.partition('.')[0]}.py, or add it to PYTHONPATH"
        ) from error
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        failed = described(error, (__file__,))
        raise InputError(f"{wanted}: module {module} cannot be imported: {failed}") from error
    if name.endswith(".py") and Path(name).is_file():
        file = getattr(home, "__file__", None)
        copied = "runtime_resources" in Path(file or "").parts  # by Ray, before the user edited the file, perhaps
        if not file or not (copied or Path(file).samefile(name)):
            raise InputError(f"{wanted}: the module name {module} is taken by {file or 'Python'}: rename {name}")
    _remember(module.partition(".")[0])
    return home


def member(path: str, what: str) -> Any:
    """Return a class or function of a user's module; ``path`` is ``<module>:<name>``, and ``what`` begins errors.

    Raises:
        InputError: there is none; the message has the nearest.
    """
    module, _, name = path.rpartition(":")
    if not module:
        raise InputError(f"{what}: write <module>:<name>")
    home = own_module(module, what)
    found = getattr(home, name, None)
    if not callable(found):
        own = [n for n, v in vars(home).items() if getattr(v, "__module__", "") == home.__name__]
        raise unknown(f"name in {home.__file__}, {what}:", name, own)
    return found


def _remember(name: str) -> None:
    """Record a top-level module that was not installed by a package manager."""
    module = sys.modules[name]
    path = Path([*getattr(module, "__path__", ()), module.__file__ or ""][0]).resolve()
    installed = [*site.getsitepackages(), site.getusersitepackages(), os.path.dirname(os.__file__)]
    if name != "rl_agents" and not any(path.is_relative_to(Path(folder).resolve()) for folder in installed):
        OWN_MODULES[name] = path
