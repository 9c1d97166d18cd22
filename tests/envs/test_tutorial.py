"""docs/tutorials/your-own-environment.md: its environment works, and its code is the file's."""

import random
import re
import sys
from pathlib import Path

import pytest

from rl_agents import plugins
from rl_agents.envs.base import env_spec, make_env, read_env_options, starter_spec, task_ids

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "tutorials" / "your-own-environment.md"
SHOP = "gymnasium:shop:Shop"


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DOCS / "examples" / "tutorial")
    monkeypatch.setattr(sys, "path", [part for part in sys.path if part])
    plugins.OWN_MODULES.clear()


def test_the_expert_solves_every_kind_of_task(shop: None) -> None:
    options = read_env_options(env_spec(SHOP), {})
    test, train = (task_ids(SHOP, split, {}) for split in ("test", "train"))
    assert len(test) == 600 and len(train) == 2400 and not set(test) & set(train)
    starter = starter_spec(SHOP)
    assert starter.expert is not None
    for task in test[:40]:
        *_, (_, last) = starter.expert(task, random.Random(0), options)
        env = make_env(SHOP, {})
        env.reset(options={"task_id": task})
        assert env.step(last)[1:3] == (1.0, True)


def test_the_page_shows_what_the_file_says() -> None:
    source = (DOCS / "examples" / "tutorial" / "shop.py").read_text(encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    lines = {line.strip() for line in source.splitlines()}
    shown = [
        line.strip() for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) for line in block.splitlines()
    ]
    assert len(shown) > 10 and not [line for line in shown if line and line not in lines]
