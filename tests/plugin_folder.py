"""A user's folder with plugins of its own, as a new process would find it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rl_agents import plugins
from rl_agents.algorithms import ALGORITHMS, KEYS
from rl_agents.envs import base
from rl_agents.reporting.trackers import TRACKERS
from rl_agents.rewards.base import REWARDS
from rl_agents.rewards.judges import JUDGES
from rl_agents.rewards.verifiers import VERIFIERS

ROOT = Path(__file__).parents[1]

EXAMPLES = ROOT / "docs" / "examples" / "plugins"

NAMES = ["median_algorithm", "lock_environment", "brief_reward"]


@contextmanager
def as_a_new_process(folder: Path) -> Iterator[None]:
    """Nothing of the folder, which contains the current one, is known before or afterwards."""
    here = {path.stem for path in Path.cwd().glob("*.py")}
    hidden = {name: sys.modules.pop(name) for name in here & set(sys.modules)}
    registries: list[dict[Any, Any]] = [
        ALGORITHMS, KEYS, base.CLASSES, base.FAMILIES, REWARDS, VERIFIERS, JUDGES, TRACKERS, plugins.ORIGINS,
        plugins.OWN_MODULES,
    ]  # fmt: skip
    before, modules = [dict(registry) for registry in registries], set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [part for part in sys.path if part])
        patch.setattr(plugins, "_loaded", set(plugins._loaded))
        yield
    for registry, old in zip(registries, before, strict=True):
        registry.clear()
        registry.update(old)
    for name in set(sys.modules) - modules:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    sys.modules.update(hidden)
