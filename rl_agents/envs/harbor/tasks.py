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

from pydantic import AliasChoices, AliasPath, BaseModel, BeforeValidator, Field, StringConstraints, ValidationError

from rl_agents.envs.harbor import HarborOptions
from rl_agents.envs.task_sets import held_out
from rl_agents.errors import InputError, report_once, similar_file

CONTAINERS = ("podman", "docker")
#: Instructions of a Dockerfile that install nothing.
IDLE = ("FROM", "WORKDIR", "COPY", "ARG", "LABEL", "EXPOSE", "CMD", "ENTRYPOINT")
#: Comments at the beginning of an instruction that mark a benchmark's data. Harbor does not show them either.
CANARY = re.compile(r"(?i)\A(?:[ \t]*(?:<!--.*canary.*-->|#.*canary.*)[ \t]*\n)+\s*")
#: Environment variables. ``${NAME}`` is one of this machine, which may be a key.
Variables = dict[str, Annotated[str, StringConstraints(pattern=r"^[^$]*$")]]
#: In MiB, or as in older folders ``4G``.
Size = Annotated[
    int, BeforeValidator(lambda size: int(size[:-1]) << 10 * "MG".index(size[-1]) if size is str(size) else size)
]


def toml(*paths: str, default: Any = None, **limits: Any) -> Any:
    """Declare a field that is read from task.toml, from the first of these places."""
    places = [AliasPath(*path.split(".")) for path in paths]
    return Field(default, validation_alias=AliasChoices(*places), **limits)


class Task(BaseModel):
    """A task folder. Fields with one possible value are parts of the format that are not supported."""

    folder: Path
    instruction: str
    dockerfile: list[tuple[str, str]]
    agent_s: float = toml("agent.timeout_sec", default=600.0, gt=0)
    verifier_s: float = toml("verifier.timeout_sec", default=600.0, gt=0)
    build_s: float = toml("environment.build_timeout_sec", default=600.0, gt=0)
    image: str = toml("environment.docker_image", default="")
    workdir: str = toml("environment.workdir", default="")
    cpus: float = toml("environment.cpus", default=0.0)
    memory_mb: Size = toml("environment.memory_mb", "environment.memory", default=0)
    variables: Variables = toml("environment.env", default={})
    verifier_variables: Variables = toml("verifier.env", default={})
    os: Literal["linux"] = toml("environment.os", default="linux")
    verifier_mode: Literal["shared"] = toml("verifier.environment_mode", default="shared")
    more: None = toml("steps", "verifier.environment", "environment.mcp_servers", "environment.healthcheck")

    def missing(self) -> str:
        """Return the first part of the environment that only a container has; empty for none."""
        lines = [f"{word} {rest}" for word, rest in self.dockerfile] or [f"docker_image {self.image}"]
        return next((line for line in lines if re.match(rf"(?!{'|'.join(IDLE)})|COPY.*(--from|<<|\[)", line)), "")

    def place(self, root: Path) -> str:
        """Copy what the Dockerfile copies to below ``root``, and return the working directory.

        Raises:
            InputError: a file is not there, or a path leads out of the folders.
        """
        workdir, context = "/", self.folder / "environment"
        for word, rest in self.dockerfile or [("WORKDIR", "/app"), ("COPY", ". .")]:
            *sources, target = [each for each in rest.split() if not each.startswith("--")] or [""]
            to, found = root / posixpath.join(workdir, target).lstrip("/"), []
            if word == "WORKDIR":
                workdir = posixpath.join(workdir, target)
                to.mkdir(parents=True, exist_ok=True)
            elif word == "COPY":
                found = [context / name for each in sources for name in glob.glob(each.lstrip("/"), root_dir=context)]
                if not found:
                    raise InputError(f"harbor task {self.folder}: COPY {rest}: no such file in {context}")
            for path in found:
                inside = to / path.name if path.is_file() and (target.endswith("/") or to.is_dir()) else to
                if not inside.resolve().is_relative_to(root) or not path.resolve().is_relative_to(context):
                    raise InputError(f"harbor task {self.folder}: COPY {rest} leads out of the folder")
                inside.parent.mkdir(parents=True, exist_ok=True)
                if path.is_dir():
                    shutil.copytree(path, inside, symlinks=True, dirs_exist_ok=True)
                else:
                    shutil.copy(path, inside)
        return self.workdir or workdir


@lru_cache(maxsize=8)
def load_tasks(options: HarborOptions, kind: str) -> Mapping[str, Mapping[str, Task]]:
    """Return the tasks of ``train`` and ``test`` by name, for a kind of sandbox; they are read once per process.

    They are in two folders of these names; otherwise, a tenth of all tasks is for tests.

    Raises:
        InputError: there are none, one cannot be read or run here, or one is in both folders.
    """
    home = Path(options.path).expanduser().resolve()
    folders = {part: _folders(home / part) for part in ("train", "test")}
    split = all(folders.values())
    both = {path.name for path in folders["train"]} & {path.name for path in folders["test"]}
    if split and both:
        raise InputError(f"env.path={options.path}: the task {min(both)} is in train and in test")
    chosen = (
        [*folders["train"], *folders["test"]] if split else [home] if (home / "task.toml").is_file() else _folders(home)
    )
    if not chosen:
        needed = "there is no NAME/task.toml in it, nor train/NAME/task.toml and test/NAME/task.toml"
        raise InputError(f"env.path={options.path}: {needed}; {similar_file(home)}".rstrip("; "))
    tasks = {folder.name: read_task(folder, kind, options.build) for folder in chosen}
    ids = held_out([*tasks], "harbor-2026")
    if split:
        ids = {part: tuple(path.name for path in own) for part, own in folders.items()}
    return {part: {name: tasks[name] for name in own} for part, own in ids.items()}


def _folders(home: Path) -> list[Path]:
    return sorted(path.parent for path in home.glob("*/task.toml"))


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: not UTF-8 (byte 0x{error.object[error.start]:02x})") from None
    except OSError as error:
        problem = f"{file}: {(error.strerror or str(error)).lower()}; {similar_file(file)}"
        raise InputError(problem.rstrip("; ")) from None


def _toml(file: Path) -> dict[str, Any]:
    text = _text(file)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problem, _, place = str(error).partition(" (at ")
        line = re.match(r"line (\d+)", place)
        raise InputError(f"{file}:{line[1] if line else len(text.splitlines())}: not TOML: {problem}") from None


def read_task(folder: Path, kind: str, build: str) -> Task:
    """Read a task folder; raises `InputError`: it is incomplete, or cannot run in this kind of sandbox."""
    where, home = f"harbor task {folder}", folder / "environment"
    config = _toml(folder / "task.toml")
    text = CANARY.sub("", _text(folder / "instruction.md")).strip()
    file = _text(home / "Dockerfile") if (home / "Dockerfile").is_file() else ""
    lines = [line.strip().partition(" ") for line in re.sub(r"(?m)^\s*#.*\n|\\\s*\n", " ", file).splitlines()]
    steps = [(word.upper(), rest.strip()) for word, _, rest in lines if word]
    try:
        task = Task.model_validate(config | {"folder": folder, "instruction": text, "dockerfile": steps})
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = f"{'.'.join(map(str, problem['loc']))}={problem['input']!a:.60}"
        raise InputError(f"{folder / 'task.toml'}: {place} is not supported: {problem['msg']}") from None
    if (
        (home / "docker-compose.yaml").exists()
        or not (steps or task.image)
        or not (folder / "tests" / "test.sh").is_file()
    ):
        needed = "tests/test.sh, and one Dockerfile or environment.docker_image, without docker-compose.yaml"
        raise InputError(f"{where}: only tasks with {needed} are supported")
    if kind not in CONTAINERS:
        lacks = task.missing()
        if lacks and build == "refuse":
            how = f"env.sandbox is {kind}, and env.build=ignore does without"
            raise InputError(f"{where}: '{lacks:.60}' in its environment needs podman or docker; {how}")
        lacks = lacks or " ".join(steps[0])
        report_once(f"{where}: env.sandbox={kind} uses this machine's programs instead of '{lacks:.60}'", kind, lacks)
    return task
