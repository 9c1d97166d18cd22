"""Harbor's task folders (harbor 0.26, task.toml of schema 1.4), read without its package."""

from __future__ import annotations

import glob
import posixpath
import re
import shutil
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasPath, BaseModel, Field, StringConstraints, ValidationError

from rl_agents.envs.panels import held_out
from rl_agents.errors import InputError, named, report_once, similar_file

CONTAINERS = ("podman", "docker")
#: Instructions of a Dockerfile that install nothing.
IDLE = ("FROM", "WORKDIR", "COPY", "ARG", "LABEL", "EXPOSE", "CMD", "ENTRYPOINT")
#: Comments at the beginning of an instruction that mark a benchmark's data. Harbor does not show them either.
CANARY = re.compile(r"(?i)\A(?:[ \t]*(?:<!--.*canary.*-->|#.*canary.*)[ \t]*\n)+\s*")
#: Environment variables. ``${NAME}`` is one of this machine, which may be a key.
Variables = dict[str, Annotated[str, StringConstraints(pattern=r"^[^$]*$")]]


def toml(path: str, default: Any = None, **limits: Any) -> Any:
    """Declare a field that is read from task.toml."""
    return Field(default, validation_alias=AliasPath(*path.split(".")), **limits)


class Task(BaseModel):
    """A task folder. Fields with one possible value are parts of the format that are not supported."""

    folder: Path
    instruction: str
    dockerfile: list[tuple[str, str]]
    agent_s: float = toml("agent.timeout_sec", 600.0, gt=0)
    verifier_s: float = toml("verifier.timeout_sec", 600.0, gt=0)
    build_s: float = toml("environment.build_timeout_sec", 600.0, gt=0)
    image: str = toml("environment.docker_image", "")
    workdir: str = toml("environment.workdir", "")
    cpus: float = toml("environment.cpus", 0.0)
    memory_mb: int = toml("environment.memory_mb", 0)
    memory: str = toml("environment.memory", "0M", pattern=r"^\d+[MG]$")  # the older form
    variables: Variables = toml("environment.env", {})
    verifier_variables: Variables = toml("verifier.env", {})
    os: Literal["linux"] = toml("environment.os", "linux")
    mode: Literal["shared"] = toml("verifier.environment_mode", "shared")
    verifier_environment: None = toml("verifier.environment")
    servers: None = toml("environment.mcp_servers")
    healthcheck: None = toml("environment.healthcheck")
    steps: None = toml("steps")

    def missing(self) -> str:
        """Return the first part of the environment that only a container has; empty for none."""
        lines = [f"{word} {rest}" for word, rest in self.dockerfile]
        parts = [line for line in lines if line.split()[0] not in IDLE or re.match(r"COPY.*(--from|<<|\[)", line)]
        return next(iter(parts if lines else [f"docker_image {self.image}"]), "")

    def place(self, root: Path) -> str:
        """Copy the files that the Dockerfile copies to below ``root``, and return the working directory.

        Raises:
            ValueError: a file is not there, or a path leads out of the folders.
        """
        workdir, context = "/", self.folder / "environment"
        for word, rest in self.dockerfile or [("WORKDIR", "/app"), ("COPY", ". .")]:
            *sources, target = [each for each in rest.split() if not each.startswith("--")] or [""]
            to = root / posixpath.join(workdir, target).lstrip("/")
            if word == "WORKDIR":
                workdir = posixpath.join(workdir, target)
                to.mkdir(parents=True, exist_ok=True)
            found = [name for each in sources for name in glob.glob(each.lstrip("/"), root_dir=context)]
            if word == "COPY" and not found:
                raise ValueError(f"COPY {rest}: no such file in {context}")
            for path in (context / name for name in found if word == "COPY"):
                inside = to / path.name if path.is_file() and (target.endswith("/") or to.is_dir()) else to
                if not inside.resolve().is_relative_to(root) or not path.resolve().is_relative_to(context):
                    raise ValueError(f"COPY {rest} leads out of the folder")
                inside.parent.mkdir(parents=True, exist_ok=True)
                if path.is_dir():
                    shutil.copytree(path, inside, symlinks=True, dirs_exist_ok=True)
                else:
                    shutil.copy(path, inside)
        return self.workdir or workdir


@lru_cache(maxsize=8)
def load_tasks(path: str, test_path: str, kind: str, build: str) -> Mapping[str, Mapping[str, Task]]:
    """Return the tasks of ``train`` and ``test`` by name, for a kind of sandbox; they are read once per process.

    Raises:
        InputError: there are none, one cannot be read or run here, or one is in both folders.
    """
    train = _read(path, "env.path", kind, build)
    if not test_path:
        return {part: {name: train[name] for name in ids} for part, ids in held_out([*train], "harbor-2026").items()}
    test = _read(test_path, "env.test_path", kind, build)
    if both := sorted({*train} & {*test}):
        raise InputError(f"env.test_path={test_path}: the task {both[0]} is in env.path, too")
    return {"train": train, "test": test}


def _read(name: str, key: str, kind: str, build: str) -> dict[str, Task]:
    home = Path(name).expanduser().resolve()
    folders = [home] if (home / "task.toml").is_file() else sorted(path.parent for path in home.glob("*/task.toml"))
    if not folders:
        raise InputError(f"{key}={name}: there is no folder with a task.toml; {similar_file(home)}".rstrip("; "))
    return {folder.name: read_task(folder, kind, build) for folder in folders}


def read_task(folder: Path, kind: str, build: str) -> Task:
    """Read a task folder; raises `InputError`: it is incomplete, or cannot run in this kind of sandbox."""
    where, home = f"harbor task {folder}", folder / "environment"
    with named(where):
        config = tomllib.loads((folder / "task.toml").read_text("utf-8"))
        text = CANARY.sub("", (folder / "instruction.md").read_text("utf-8")).strip()
        file = re.sub(r"(?m)^\s*#.*\n|\\\s*\n", " ", (home / "Dockerfile").read_text("utf-8") if (home / "Dockerfile").is_file() else "")
    pairs = [line.split(None, 1) for line in file.splitlines() if line.strip()]
    try:
        given = {"folder": folder, "instruction": text, "dockerfile": [(pair[0].upper(), pair[-1].strip()) for pair in pairs]}
        task = Task.model_validate(config | given)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(map(str, problem["loc"]))
        raise InputError(f"{where}: task.toml: {place}={problem['input']!a:.60} is not supported: {problem['msg']}") from None
    if (home / "docker-compose.yaml").exists() or not (pairs or task.image) or not (folder / "tests" / "test.sh").is_file():
        raise InputError(f"{where}: it needs tests/test.sh, and environment/Dockerfile or environment.docker_image, and no docker-compose.yaml")
    if kind not in CONTAINERS:
        missing = task.missing()
        if missing and build == "refuse":
            how = f"env.sandbox is {kind}, and env.build=ignore does without"
            raise InputError(f"{where}: '{missing:.60}' in its environment needs podman or docker; {how}")
        lacks = missing or " ".join(pairs[0])
        report_once(f"{where}: env.sandbox={kind} uses this machine's programs instead of '{lacks:.60}'", kind, lacks)
    return task
