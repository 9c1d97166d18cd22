"""Writes a product store from official files in a folder, or from a generated catalogue.

python -m rl_agents.envs.webshop.index FOLDER [OUTPUT.sqlite]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rl_agents.envs.webshop.catalogue import find_catalogue
from rl_agents.envs.webshop.store import build_store


def main() -> None:
    """Build a store from the command line."""
    parser = argparse.ArgumentParser(description="Build a WebShop product store, once, from the official files.")
    parser.add_argument("catalogue", help="folder with items_shuffle*.json and the instruction files, or a name")
    parser.add_argument("output", nargs="?", type=Path, help="file to write; by default in the cache of rl_agents")
    arguments = parser.parse_args()
    catalogue = find_catalogue(arguments.catalogue)
    path = arguments.output or catalogue.cached_path()
    build_store(path, catalogue.entries())
    print(path)


if __name__ == "__main__":
    main()
