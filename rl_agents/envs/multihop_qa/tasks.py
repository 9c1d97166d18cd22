"""The task sets of multihop_qa, and the hashes of the generated ones.

``panel.json`` holds sizes and hashes of all generated tasks, their passages and answers included; ``python -m
rl_agents.envs.multihop_qa.tasks`` writes it anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_agents.envs.multihop_qa.sources import SEED, SPLITS, WORLDS, find_source, open_world
from rl_agents.envs.panels import ids_digest, write_panel

PANEL_FILE = Path(__file__).with_name("panel.json")


def task_ids(
    split: str, *, questions: str = "generated", test_questions: str = "", passages: str = "", **_: Any
) -> list[str]:
    """Return the ``train`` or ``test`` ids of a source; other options do not matter here."""
    return list(find_source(questions, test_questions, passages).ids(split))


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
    sizes = {f"{setting}/{split}": len(task_ids(split, questions=setting)) for setting, split in names}
    digests = {f"{setting}/{split}": setting_digest(setting, split) for setting, split in names}
    return {"seed": SEED, "sizes": sizes, "sha256": digests}


if __name__ == "__main__":
    write_panel(PANEL_FILE, frozen_panel())
