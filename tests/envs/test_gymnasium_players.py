"""The starter of a user's own environment is made anew when what it imitates changes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_agents.trainer.warm_start_folder import starter_dir

BASE = """
import gymnasium
from gymnasium.spaces import Text

class Base(gymnasium.Env):
    observation_space = action_space = Text(max_length=100)
    max_turns = 2
    def reset(self, *, seed=None, options=None):
        return "say it", {}
    def step(self, action):
        return "so", 1.0, True, False, {"success": True}
"""
OWN = """
from door_base import Base
WORD = "open"
class Door(Base):
    def demonstrate(self, observation, random):
        return WORD
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("door_base", "door"):
        sys.modules.pop(name, None)


def folder_with(folder: Path, base: str, own: str) -> Path:
    """Where the starter lies when the two modules say this, as a new process finds it."""
    for name, text in (("door_base", base), ("door", own)):
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    return starter_dir("gymnasium:door:Door")


@pytest.mark.parametrize("base, own", [(BASE, OWN), (BASE, OWN.replace('"open"', '"shut"')),
                                       (BASE.replace('"say it"', '"say that"'), OWN)])  # fmt: skip
def test_a_starter_is_kept_until_a_file_of_its_class_changes(folder: Path, base: str, own: str) -> None:
    first = folder_with(folder, BASE, OWN)
    assert (folder_with(folder, base, own) == first) is ((base, own) == (BASE, OWN))
