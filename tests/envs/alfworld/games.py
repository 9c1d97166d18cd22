"""Games for the tests: the reference data, where it is at hand, and the one real trial made playable."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

SHARED_DATA = Path(os.environ.get("RL_AGENTS_SHARED_DATA", Path(__file__).parents[4] / "shared" / "data"))


def reference_games() -> list[Path]:
    """Return the six generated games, one a family, with ALFWorld's own domain and grammar; skip without them."""
    games = sorted((SHARED_DATA / "alfworld_generated").glob("*/game.tw-pddl"))
    if not games:
        pytest.skip(f"no ALFWorld games under {SHARED_DATA} (set RL_AGENTS_SHARED_DATA)")
    return games


def real_trial(folder: Path) -> Path:
    """Write the one real trial (heat a potato, put it in the sink basin), cut back to one agent, as a game file.

    The trial's file is a variant with three agents in one place; the domain and the grammar are those of the others.
    """
    source = SHARED_DATA / "alfworld_real_game" / "initial_state.pddl"
    if not source.exists():
        pytest.skip(f"no real ALFWorld trial under {SHARED_DATA} (set RL_AGENTS_SHARED_DATA)")
    data = json.loads(reference_games()[0].read_text())
    problem = source.read_text().replace("alice - agent\nbob - agent\ncharlie - agent\n", "agent1 - agent\n")
    problem = re.sub(r"\s*\(atLocation (bob|charlie) [^)]*\)", "", problem)
    data["pddl_problem"] = problem.replace("(atLocation alice", "(atLocation agent1")
    data["grammar"] = re.sub(
        r"Your task is to: [^\"]*", "Your task is to: put a hot potato in sinkbasin.", data["grammar"]
    )
    path = folder / "game.tw-pddl"
    path.write_text(json.dumps(data))
    return path


#: The planner's solution of the real trial.
REAL_TRIAL_SOLUTION = (
    "go to coffeemachine 1",
    "take potato 2 from countertop 2",
    "go to microwave 1",
    "heat potato 2 with microwave 1",
    "go to sinkbasin 1",
    "move potato 2 to sinkbasin 1",
)
