"""A run's output folder, from which the run can be resumed after a kill at any time.

config.yaml            resolved configuration
build.json             version, commit and libraries, with the iteration since when they are used
metrics.jsonl          one object per iteration, with evaluations
summary.json           start, end, cost
success.png            success over iterations
checkpoints/000010/    complete if the name has only digits; `hf/` is a Hugging Face model
trajectories/          000010.jsonl, eval-000010.jsonl, latest.md
pool.sqlite            every step and its advantage (docs/reference/pool.md)
tensorboard/
error.log              traceback of a failure
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_agents.algorithms import ALGORITHMS, Settings, readers
from rl_agents.config.loading import load_config, yaml_text
from rl_agents.config.options import keys_of, unmet
from rl_agents.config.settings import KEYS
from rl_agents.durable import read_json, replace_text
from rl_agents.envs.base import ENVIRONMENTS
from rl_agents.errors import InputError, similar, unknown
from rl_agents.installation import command, this_build
from rl_agents.reporting.manifest import damage
from rl_agents.reporting.outputs import ERROR_LOG, check_writable

Record = dict[str, Any]

#: Keys that cannot change when a run is resumed, and why.
FIXED = {
    "algo": "", "env": "", "environments": "", "seed": "",
    "lora_rank": ": it decides which weights are trained: adapters of that rank, or with 0 all",
    "lora_alpha": ": it scales what the adapters have learned",
    "optimizer": ": the saved moments are those of this optimizer",
    **dict.fromkeys(("state_key", "state_scope", "score_rate"), ": it decides what is counted"),
}  # fmt: skip

_COMPLETE = re.compile(r"\d{6,}")


class RunFolder:
    """Paths and files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.yaml"
        self.build_file = path / "build.json"
        self.metrics_file = path / "metrics.jsonl"
        self.summary_file = path / "summary.json"
        self.plot_file = path / "success.png"
        self.checkpoints = path / "checkpoints"
        self.trajectories = path / "trajectories"
        self.tensorboard = path / "tensorboard"
        self.pool = path / "pool.sqlite"

    @staticmethod
    def check_free(path: Path) -> None:
        """Check that a folder is empty, except for the log of a failed start.

        Raises:
            InputError: the folder is not empty, is a file, or cannot be written.
        """
        check_writable(path)
        if path.exists() and not path.is_dir():
            raise InputError(f"--output {path}: a file with that name exists")
        if path.is_dir() and any(entry.name != ERROR_LOG for entry in path.iterdir()):
            raise InputError(f"--output {path}: not empty; choose another folder, or continue with --resume {path}")

    @classmethod
    def create(cls, path: Path, settings: Settings) -> RunFolder:
        cls.check_free(path)
        folder = cls(path)
        (path / ERROR_LOG).unlink(missing_ok=True)
        folder.make_parts()
        folder.save_settings(settings)
        return folder

    def make_parts(self) -> None:
        for part in (self.checkpoints, self.trajectories, self.tensorboard):
            part.mkdir(parents=True, exist_ok=True)

    @classmethod
    def locate(cls, path: Path) -> tuple[RunFolder, int, Path]:
        """Find a run by its folder or by one of its checkpoints.

        Returns:
            The run's folder, and iteration and path of the named checkpoint, else of the newest complete one.

        Raises:
            InputError: no such folder, not a run, or no complete checkpoint.
        """
        if not path.is_dir():
            raise InputError(f"{path}: no such folder")
        path = path.resolve()
        if _COMPLETE.fullmatch(path.name) and path.parent.name == "checkpoints":
            return cls(path.parent.parent), int(path.name), path
        folder = cls(path)
        if not folder.config_file.is_file():
            raise InputError(f"{path}: not the output folder of a run (no config.yaml)")
        complete = folder.complete_checkpoints()
        if not complete:
            done = max((record["iteration"] for record in folder.read_metrics()), default=0)
            lost = f"its {done} iterations were not saved" if done else "nothing was trained yet"
            raise InputError(f"{path}: no checkpoint: {lost}; {folder.start_again()}")
        return folder, *complete[-1]

    @classmethod
    def resumable(cls, path: Path) -> tuple[RunFolder, int, Path | None]:
        """As `locate`; a run without a checkpoint starts again with its pool (None).

        Raises:
            InputError: as `locate`, if there is no pool either.
        """
        folder = cls(path.resolve())
        if folder.config_file.is_file() and folder.pool.is_file() and not folder.complete_checkpoints():
            return folder, 0, None
        return cls.locate(path)

    def start_again(self) -> str:
        return f"start it again with: {command('--config', self.config_file)}"

    @classmethod
    def check_whole(cls, path: Path, words: Sequence[str] = ("--resume",), parts: tuple[str, ...] = ("",)) -> None:
        """Check that the files of a checkpoint are as they were written.

        Args:
            words: command for the error, to which the newest whole checkpoint is added.
            parts: see `damage`.

        Raises:
            InputError: one of them is not.
        """
        if not (problem := damage(path, parts)):
            return
        folder = cls(path.resolve().parent.parent)
        whole = next((other for _, other in folder.complete_checkpoints()[::-1] if not damage(other, parts)), None)
        hint = f"; the run has no whole one; {folder.start_again()}" if folder.config_file.is_file() else ""
        hint = f"; the newest whole one: {command(*words, whole)}" if whole else hint
        raise InputError(f"{path}: damaged checkpoint: {problem}{hint}")

    def load_settings(self) -> Settings:
        """Read config.yaml. Raises `InputError`: it is missing or invalid."""
        return restored_settings(self.config_file)

    def save_settings(self, settings: Settings) -> None:
        """Write config.yaml, and add this build to build.json unless it is the last entry."""
        replace_text(self.config_file, yaml_text(settings.to_dict()))
        builds, records = self.read_builds(), self.read_metrics()
        now = {"from_iteration": records[-1]["iteration"] if records else 0, **this_build()}
        if not builds or {**builds[-1], "from_iteration": 0} != {**now, "from_iteration": 0}:
            replace_text(self.build_file, json.dumps([*builds, now], indent=2) + "\n")

    def read_builds(self) -> list[Record]:
        """Return build.json; empty if it does not exist yet. Raises `InputError`: it is damaged."""
        return read_json(self.build_file, list) if self.build_file.exists() else []

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Append one line to metrics.jsonl."""
        with self.metrics_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(json_safe(record)) + "\n")

    def write_metrics(self, records: Iterable[Mapping[str, Any]]) -> None:
        replace_text(self.metrics_file, "".join(json.dumps(json_safe(record)) + "\n" for record in records))

    def read_metrics(self) -> list[Record]:
        """Return all records, except lines that a kill or a power failure has damaged."""
        if not self.metrics_file.exists():
            return []
        records = []
        for line in self.metrics_file.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                found = json.loads(line)
                if isinstance(found, dict) and "iteration" in found:
                    records.append(found)
        return records

    def cut_after(self, iteration: int) -> None:
        """Remove metrics, trajectories and checkpoints of later iterations, so that nothing counts twice."""
        kept = [record for record in self.read_metrics() if record["iteration"] <= iteration]
        self.write_metrics(kept)
        for file in self.trajectories.glob("*.jsonl"):
            number = file.stem.removeprefix("eval-")
            if number.isdigit() and int(number) > iteration:
                file.unlink()
        for later, path in self.complete_checkpoints():
            if later > iteration:
                shutil.rmtree(path)
        for leftover in (*self.checkpoints.glob(".tmp-*"), *self.checkpoints.glob("*.deleted")):
            shutil.rmtree(leftover)

    def checkpoint(self, iteration: int) -> Path:
        """Return the path of the checkpoint of ``iteration``."""
        return self.checkpoints / f"{iteration:06d}"

    def complete_checkpoints(self) -> list[tuple[int, Path]]:
        """Return (iteration, folder) of every complete checkpoint, oldest first.

        An incomplete checkpoint has a different name until its last file is written.
        """
        if not self.checkpoints.is_dir():
            return []
        found = [path for path in self.checkpoints.iterdir() if path.is_dir() and _COMPLETE.fullmatch(path.name)]
        return sorted((int(path.name), path) for path in found)

    def prune_checkpoints(self, keep: int, best: int | None = None) -> None:
        """Delete all except the newest ``keep`` checkpoints and that of the iteration ``best``; 0 keeps all."""
        older = self.complete_checkpoints()[:-keep] if keep else []
        for path in [path for iteration, path in older if iteration != best]:
            # With its old name, a partly deleted folder would count as a complete checkpoint.
            doomed = path.rename(path.with_name(f"{path.name}.deleted"))
            shutil.rmtree(doomed)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        replace_text(self.summary_file, json.dumps(json_safe(summary), indent=2) + "\n")

    def read_summary(self) -> Record:
        """Return summary.json; empty if it does not exist. Raises `InputError`: it is damaged."""
        return read_json(self.summary_file, dict) if self.summary_file.exists() else {}


def restored_settings(config_file: Path) -> Settings:
    """Read the resolved configuration of a run; resolving it again changes nothing.

    Raises:
        InputError: it is missing or invalid, or has a key that this version does not have.
    """
    settings = Settings.restored(load_config(config_file), config_file)
    if settings.algo not in ALGORITHMS:
        raise unknown("algorithm", settings.algo, ALGORITHMS)
    if settings.env in ENVIRONMENTS:
        for name in settings.env_options:
            if name not in keys_of(ENVIRONMENTS[settings.env].options):
                near = similar(name, keys_of(ENVIRONMENTS[settings.env].options))
                raise InputError(f"{config_file}: this version has no key 'env.{name}'; {near}".rstrip("; "))
    return settings


def check_fixed(source: str, before: Settings, now: Settings) -> None:
    """Raise `InputError` if a key that a checkpoint fixes, because it has an effect there, has changed."""
    own = ALGORITHMS[before.algo].reads
    for name, reason in FIXED.items():
        if name not in KEYS or unmet(KEYS[name].needs, before) or (readers(name) and name not in own):
            continue
        if (old := getattr(before, name)) != (new := getattr(now, name)):
            raise InputError(f"{source}: that run has {name}={old}, not {new}{reason}")


def json_safe(value: Any) -> Any:
    """Return ``value`` with NaN and infinities as None, because JSON does not have them."""
    if isinstance(value, Mapping):
        return {name: json_safe(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
