"""Checkpoints: a Hugging Face folder, and everything needed to continue exactly.

    hf/                         the policy, loadable by transformers and vLLM
    training_state.safetensors  critic, adapters, optimizer moments
    state.json                  counters and everything that is not a tensor
    config.yaml                 the resolved configuration
    search.json                 searches in progress and counts of states
    memory.json                 state of an algorithm's credit from earlier iterations
    manifest.json               size and checksum of every other file

Nothing is pickled. A checkpoint gets its name only when it is complete.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from rl_agents.algorithms.base import Memory
from rl_agents.config import Settings
from rl_agents.config.loading import yaml_text
from rl_agents.durable import flush, read_json
from rl_agents.errors import InputError
from rl_agents.reporting.manifest import FORMAT, STATE, write_manifest
from rl_agents.reporting.run_folder import RunFolder, check_fixed, restored_settings
from rl_agents.rollout.tree_search.explorer import Explorer
from rl_agents.rollout.tree_search.saved import explorer_to_json, load_explorer

if TYPE_CHECKING:
    from rl_agents.learner.learner_group import AgentLearnerGroup

TENSORS = "training_state.safetensors"
SEARCH = "search.json"
MEMORY = "memory.json"


@dataclass
class Counters:
    """Progress of a run.

    Attributes:
        iteration: completed iterations.
        policy_version: completed optimizer schedules; the version of the engines' weights.
        task_position: tasks taken from the training stream; iterations may take more than ``tasks_per_iteration``.
        left_out: tasks that are no longer sampled, with their causes.
        strikes: number of a task's own failures (`BadTasks`).
        deaths: number of env runners that died in a task.
        pool: id of the run's trajectory store; empty: none; None: the run begins.
        in_flight: versions that sampled the next iterations' batches (`rl_agents.orchestrator.rollout_buffer`), or a
            stream's groups (`rl_agents.orchestrator.streaming_rollouts`).
        inputs: what the other numbers refer to (`rl_agents.trainer.run_inputs`).
        success: (solved, episodes) by task, with ``task_sampling=difficulty`` (`rl_agents.data.difficulty`).
    """

    iteration: int
    policy_version: int
    task_position: int
    left_out: dict[str, str] = field(default_factory=dict)
    strikes: dict[str, int] = field(default_factory=dict)
    deaths: dict[str, int] = field(default_factory=dict)
    pool: str | None = None
    in_flight: Sequence[int | str] = ()
    inputs: dict[str, list[int]] = field(default_factory=dict)
    success: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def save_run(
    folder: Path, learners: AgentLearnerGroup, counters: Counters, settings: Settings, search: Explorer | None,
    memory: Memory | None,
) -> None:  # fmt: skip
    """Write a checkpoint into an existing ``folder``; use `write_atomically` for a complete or absent checkpoint."""
    learners.save_hf(folder / "hf")
    save_state(folder, learners.full_state(), asdict(counters), settings.to_dict())
    if search is not None:
        save_part(folder, SEARCH, explorer_to_json(search))
    if memory is not None:
        save_part(folder, MEMORY, memory.to_json())
    write_manifest(folder)


def restore_run(
    folder: Path, saved: tuple[dict[str, Any], Counters], learners: AgentLearnerGroup, settings: Settings,
    search: Explorer | None, memory: Memory | None,
) -> Counters:  # fmt: skip
    """Restore learners, search and memory from what `load_run` returned, and return the counters."""
    state, counters = saved
    learners.load_full_state(state)
    if search is not None:
        load_explorer(search, load_part(folder, SEARCH))
    if memory is not None:
        memory.load_json(load_part(folder, MEMORY))
    if not keeps_in_flight(restored_settings(folder / "config.yaml"), settings):
        counters.in_flight = []
    return counters


def load_run(folder: Path, settings: Settings) -> tuple[dict[str, Any], Counters]:
    """Return the learners' state and the counters of `save_run`'s checkpoint.

    Raises:
        InputError: no complete checkpoint, a damaged one, or one of a run with other keys that a checkpoint fixes.
    """
    state, counters = load_state(folder)
    check_fixed(f"{folder}", restored_settings(folder / "config.yaml"), settings)
    return state, Counters(**counters)


def keeps_in_flight(before: Settings, settings: Settings) -> bool:
    """Return whether batches in flight count in a resumed run; other settings may make them invalid or too old."""
    if not (before.stream and settings.stream):
        return before.stream == settings.stream
    same_width = before.tasks_per_iteration == settings.tasks_per_iteration
    return same_width and before.max_staleness <= settings.max_staleness


def write_atomically(folder: Path, fill: Callable[[Path], None]) -> None:
    """Create ``folder`` by filling a temporary neighbor, flushing it to disk and renaming it.

    If that fails, nothing of it remains: a half-written checkpoint would keep a full disk full. A kill between the two
    renames leaves what is replaced as ``.old-NAME``, next to what is complete as ``.tmp-NAME``.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary, old = (folder.parent / f".{kind}-{folder.name}" for kind in ("tmp", "old"))
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        fill(temporary)
        for path in (*temporary.rglob("*"), temporary):  # folders, too, which hold the names
            flush(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    if folder.exists():  # replace an older checkpoint of the same iteration
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
    temporary.rename(folder)
    flush(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def save_state(folder: Path, learner_state: dict[str, Any], counters: dict[str, Any], config: dict[str, Any]) -> None:
    tensors: dict[str, torch.Tensor] = {}
    numbers: dict[str, Any] = {}
    for name, value in flatten(learner_state).items():
        (tensors if torch.is_tensor(value) else numbers)[name] = value
    save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, folder / TENSORS)
    state = {"format": FORMAT, "counters": counters, "learner": numbers}
    (folder / STATE).write_text(json.dumps(state, indent=1), encoding="utf-8")
    (folder / "config.yaml").write_text(yaml_text(config), encoding="utf-8")


def load_state(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (learner state, counters).

    Raises:
        InputError: the folder is no complete checkpoint of this format, or a file is not as it was written.
    """
    RunFolder.check_whole(folder)
    try:
        state = read_json(folder / STATE, dict)
        tensors = load_file(folder / TENSORS)
    except FileNotFoundError as error:
        raise InputError(f"{folder}: no checkpoint, {Path(error.filename or TENSORS).name} is missing") from None
    except (InputError, SafetensorError) as error:
        raise InputError(f"{folder}: damaged checkpoint: {error}") from None
    if missing := {"format", "learner", "counters"} - state.keys():
        raise InputError(f"{folder}: damaged checkpoint: {STATE} lacks {min(missing)}")
    if state["format"] != FORMAT:
        raise InputError(f"{folder}: checkpoint format {state['format']}, this version reads {FORMAT}")
    return unflatten({**tensors, **state["learner"]}), state["counters"]


def save_part(folder: Path, name: str, data: dict[str, Any]) -> None:
    (folder / name).write_text(json.dumps(data, separators=(",", ":")), encoding="utf-8")


def load_part(folder: Path, name: str) -> dict[str, Any]:
    """Return the data that `save_part` wrote. Raises `InputError`: it is missing or damaged."""
    if not (folder / name).is_file():
        raise InputError(f"{folder}: no checkpoint of this version, {name} is missing")
    return read_json(folder / name, dict)


SEPARATOR = "|"


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested dictionaries; parts of a path are joined by ``|``."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        path = f"{prefix}{SEPARATOR}{name}" if prefix else str(name)
        flat.update(flatten(value, path) if isinstance(value, dict) else {path: value})
    return flat


def unflatten(flat: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, leaf = path.split(SEPARATOR)
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    return tree
