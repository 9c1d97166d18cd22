"""The task sets of multihop_qa, and the hashes of the generated ones.

``panel.json`` holds sizes and hashes of all generated tasks, their passages and answers included; ``python -m
rl_agents.envs.multihop_qa.tasks`` writes it again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_agents.envs.multihop_qa.sources import SEED, SPLITS, WORLDS, Worlds, find_source, open_world
from rl_agents.envs.multihop_qa.spec import MultihopQAOptions
from rl_agents.envs.panels import ids_digest, write_panel

PANEL_FILE = Path(__file__).with_name("panel.json")


def task_ids(split: str, options: MultihopQAOptions) -> list[str]:
    """Return the ``train`` or ``test`` ids of the source that the options name."""
    return list(find_source(options).ids(split))


def setting_digest(setting: str, split: str) -> str:
    """Return the sha256 over all passages and questions of a generated setting."""
    lines = []
    for number in range(WORLDS[setting][split]):
        world = open_world(setting, f"{split}/{number:03d}")
        lines += [f"{one.id}: {one.title}: {one.text}" for one in world.world.passages]
        lines += [f"{one.id}: {one.question} = {one.answers[0]} ({one.plan})" for one in world.questions]
    return ids_digest(lines)


def frozen_panel() -> dict[str, Any]:
    """Return the panel as it is stored in ``panel.json``."""
    names = [(setting, split) for setting in WORLDS for split in SPLITS]
    sizes = {f"{setting}/{split}": len(Worlds(setting).ids(split)) for setting, split in names}
    digests = {f"{setting}/{split}": setting_digest(setting, split) for setting, split in names}
    return {"seed": SEED, "sizes": sizes, "sha256": digests}


if __name__ == "__main__":
    write_panel(PANEL_FILE, frozen_panel())
