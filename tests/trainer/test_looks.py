"""What a run looks at in its environment before it begins is called where the run would call it, within its limits."""

import time
from pathlib import Path
from typing import Any

import pytest
from chat_models import save_chat_model

from rl_agents.algorithms import Settings
from rl_agents.errors import InputError
from rl_agents.trainer.measure import ready


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_chat_model(tmp_path_factory.mktemp("chat-model"))


def resolved(model: Path, name: str, **keys: Any) -> Settings:
    env = f"gymnasium:rollout.waiting:{name}"
    return ready(Settings.from_dict({"engine": "torch", "model": str(model), "env": env, **keys}))


def test_an_environment_that_is_never_made_does_not_hold_up_the_command(model: Path) -> None:
    begun = time.monotonic()
    keys = {"env_blocking": "thread", "env_start_timeout_s": 1.0}
    with pytest.raises(InputError, match=r"start: no answer within 1 s \(waiting\.py:\d+\) \(env_start_timeout_s\)"):
        resolved(model, "NeverMade", **keys)
    assert time.monotonic() - begun < 60
