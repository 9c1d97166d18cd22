"""Finding a checkpoint and the configuration of its run, and checking whether it can replace another."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from rl_agents.algorithms import Settings
from rl_agents.config.loading import refuse_keys
from rl_agents.config.settings import EVALUATION_KEYS
from rl_agents.envs.base import env_spec
from rl_agents.errors import InputError
from rl_agents.inference.engines import ENGINES, resolve_engine
from rl_agents.inference.hub import find_folder, how_to_get, plain_name
from rl_agents.inference.model_shape import check_model_dir, read_config
from rl_agents.reporting.run_folder import RunFolder, restored_settings
from rl_agents.trainer.measure import measure, ready
from rl_agents.trainer.model_note import model_note
from rl_agents.trainer.resolve import resolve_chat

#: Keys of config.json without an effect on the weights.
_INCIDENTAL = {"transformers_version", "_name_or_path", "dtype", "torch_dtype"}
TEMPLATE_FILES = ("chat_template.jinja", "tokenizer_config.json")


@dataclass(frozen=True)
class Checkpoint:
    """A folder of weights.

    Attributes:
        hf_dir: Hugging Face folder.
        config_file: the run's configuration; None for a model folder.
        label: its name in answers: ``RUN/000040``, or the name of the model folder.
    """

    hf_dir: Path
    config_file: Path | None
    label: str


def find_checkpoint(path: str | Path) -> Checkpoint:
    """Find the weights that ``path`` names: a run's newest checkpoint, a checkpoint, a model's folder or public name.

    Raises:
        InputError: none of these, or a folder without safetensors weights.
    """
    folder = Path(path).resolve()
    if not folder.is_dir():
        public = find_folder(path)
        if public is None:
            raise InputError(f"{path}: no such folder{how_to_get(str(path))}")
        return Checkpoint(check_model_dir(public), None, plain_name(str(path)))
    if (folder / "config.json").is_file():
        return Checkpoint(check_model_dir(folder), None, folder.name)
    if not (folder / "hf").is_dir():
        folder = RunFolder.locate(folder)[2]
    return Checkpoint(check_model_dir(folder / "hf"), folder / "config.yaml", _label(folder))


def _label(checkpoint: Path) -> str:
    parent = checkpoint.parent
    return f"{parent.parent.name if parent.name == 'checkpoints' else parent.name}/{checkpoint.name}"


def present(checkpoint: Checkpoint, path: str) -> Checkpoint:
    """Return the checkpoint, or the one that ``path`` names now if its run has deleted it; raises `InputError`."""
    return checkpoint if checkpoint.hf_dir.is_dir() else find_checkpoint(path)


def served_settings(checkpoint: Checkpoint, keys: Mapping[str, Any]) -> Settings:
    """Return the run's resolved configuration under ``keys``; a model folder may name its environment in a note.

    Without the environment's module, a line says so, and only agent sessions fail.

    Raises:
        InputError: a damaged checkpoint, unknown key or environment, a tokenizer without chat template, an engine that
            cannot run here.
    """
    _check_whole(checkpoint)
    refuse_keys(keys, ("model", *EVALUATION_KEYS), "a server has its checkpoint's model, and does not train")
    if checkpoint.config_file is not None:
        settings = restored_settings(checkpoint.config_file)
    else:
        settings = Settings()
        if note := model_note(checkpoint.hf_dir):
            settings.set_defaults({"env": note["env"]})
    settings.update({**keys, "model": str(checkpoint.hf_dir), **EVALUATION_KEYS})
    # Regardless of the model's size, since clients may ask for what other engines refuse.
    if ENGINES[engine := resolve_engine(settings.engine)[0]].extras:
        settings.update({"engine": engine})
    try:
        env_spec(settings.env)
    except InputError as error:
        print(f"[rl_agents] no agent sessions, only the model: {error}", file=sys.stderr)
        return measure(resolve_chat(settings), plays=False)
    return ready(settings)


def traits(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what `check_replaces` compares; runs delete old checkpoints, also one that is served."""
    return {name: read(checkpoint.hf_dir) for name, read in _READERS.items()}


def check_replaces(new: Checkpoint, old: Mapping[str, Any]) -> None:
    """Raise `InputError` for damaged weights, or if they differ from the served `traits`, which needs a new server."""
    _check_whole(new)
    for name, read in _READERS.items():
        if read(new.hf_dir) != old[name]:
            raise InputError(f"{new.label} cannot replace the served weights: its {name} differs; start a new server")


def _check_whole(checkpoint: Checkpoint) -> None:
    if checkpoint.hf_dir.name == "hf":
        RunFolder.check_whole(checkpoint.hf_dir.parent, ("serve", "--checkpoint"), ("hf/", "config.yaml"))


def _architecture(folder: Path) -> dict[str, Any]:
    return {name: value for name, value in read_config(folder).items() if name not in _INCIDENTAL}


def _tensors(folder: Path) -> dict[str, list[int]]:
    """Return shapes by name; reads only the headers of the files."""
    shapes: dict[str, list[int]] = {}
    for path in folder.glob("*.safetensors"):
        try:
            with safe_open(path, framework="numpy") as file:
                shapes |= {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise InputError(f"{path}: damaged weights: {error}") from None
    return shapes


def _digest(folder: Path, name: str = "tokenizer.json") -> str:
    path = folder / name
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


_READERS: Mapping[str, Callable[[Path], Any]] = {
    "config.json": _architecture,
    "tokenizer.json": _digest,
    "chat template": lambda folder: [_digest(folder, name) for name in TEMPLATE_FILES],
    "list of tensors": _tensors,
}
