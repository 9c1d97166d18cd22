"""Fingerprints of what a run's progress refers to: its tasks, and the weights that it began with."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from rl_agents.config import Settings
from rl_agents.errors import InputError
from rl_agents.reporting.run_folder import restored_settings

TRAIN, TEST, BASE, EXPERT = "training tasks", "test tasks", "base model", "expert dialogues"
#: Bytes of a weight file that are read, from its middle.
SAMPLE = 1 << 20


def of_items(items: Iterable[str]) -> list[int]:
    """Return the number of items, and a checksum of their names in order."""
    names = list(items)
    return [len(names), zlib.crc32("\n".join(names).encode(errors="surrogatepass"))]


def of_model(folder: Path) -> list[int]:
    """Return the size of a model's weight files in bytes, and a checksum of samples of them."""
    size = found = 0
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            size += (here := path.stat().st_size)
            file.seek(here // 2)
            found = zlib.crc32(file.read(SAMPLE), found)
    return [size, found]


def changed_tasks(
    folder: Path, saved: Mapping[str, list[int]], now: Mapping[str, list[int]], settings: Settings
) -> list[str]:
    """Return the names of the task lists that are not a checkpoint's; ``tasks_changed=accept`` allows it.

    Raises `InputError`: tasks differ, or the weights of the base model where they matter.
    """
    changed = [name for name in now if saved.get(name, now[name]) != now[name]]
    before = restored_settings(folder / "config.yaml")
    matters = settings.lora_rank or settings.kl_coef or settings.kl_in_reward_coef or settings.model != before.model
    if BASE in changed and matters:
        raise InputError(
            f"{folder}: model={settings.model} has other weights than the run began with, to which its adapters and "
            "its reference belong; begin a new run with it"
        )
    tasks = [name for name in changed if name != BASE]
    if tasks and settings.tasks_changed == "refuse":
        (old, _), (new, _) = saved[tasks[0]], now[tasks[0]]
        how = f"were {old} and are now {new}" if old != new else f"are {new} other ones"
        raise InputError(f"{folder}: {tasks[0]} {how}: restore them, or continue with --set tasks_changed=accept")
    return tasks
