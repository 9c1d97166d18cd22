"""The task sets of webshop: the goals of a shop (see `goals`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_agents.envs.panels import ids_digest, write_panel
from rl_agents.envs.webshop.goals import SPLIT_SEED, find_goal
from rl_agents.envs.webshop.shop import LocalShop, local_shop
from rl_agents.envs.webshop.spec import WebShopOptions

PANEL_FILE = Path(__file__).with_name("panel.json")


def task_ids(split: str, options: WebShopOptions) -> list[str]:
    """Return the ids of a split (``train``, ``test`` or ``eval``)."""
    if split == "train":
        split = train_split(options)
    return local_shop(options.catalogue).task_ids(split, options.goals)


def train_split(options: WebShopOptions) -> str:
    """What the goals to train on are called in `rl_agents.envs.webshop.goals`."""
    return "train_after_eval" if options.hold_out_eval else "train"


def frozen_panel() -> dict[str, Any]:
    """Return sizes and hashes of the generated catalogues' tasks, instructions and answers included."""
    digests, sizes = {}, {}
    for name in ("generated", "small"):
        shop = LocalShop(name)
        for split in ("train", "test"):
            ids = shop.task_ids(split, "human")
            digests[f"{name}/{split}"] = ids_digest(f"{i}: {find_goal(shop.store, i)}" for i in ids)
            sizes[f"{name}/{split}"] = len(ids)
    return {"seed": SPLIT_SEED, "sizes": sizes, "sha256": digests}


if __name__ == "__main__":
    write_panel(PANEL_FILE, frozen_panel())
