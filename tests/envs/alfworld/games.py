"""Games for the tests: the reference data, where it is at hand, and the one real trial made playable."""

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from rl_agents.envs.alfworld.expert import Expert
from rl_agents.envs.alfworld.generator import draft, generated_file, read_task_id
from rl_agents.envs.alfworld.native import NativeGame
from rl_agents.envs.alfworld.official import load_game

SHARED_DATA = Path(os.environ.get("RL_AGENTS_SHARED_DATA", Path(__file__).parents[4] / "shared" / "data"))


def compiled(path: str | Path) -> NativeGame:
    return NativeGame.compile(load_game(path))


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
    "go to coffeemachine 1", "take potato 2 from countertop 2", "go to microwave 1", "heat potato 2 with microwave 1",
    "go to sinkbasin 1", "move potato 2 to sinkbasin 1",
)  # fmt: skip


def expert_plays(task_id: str, turns: int = 50) -> tuple[bool, list[str]]:
    """Play a generated game; return whether the expert wins in so many turns, and its commands."""
    game = NativeGame.compile(generated_file(task_id))
    state = game.start()
    player, commands = Expert(game.intro(state)), list[str]()
    while not game.won(state) and len(commands) < turns:
        commands.append(player.choose())
        result = game.step(state, commands[-1])
        player.observe(commands[-1], result.feedback)
        state = result.state
    return game.won(state), commands


def trajectory(task_id: str) -> dict[str, Any]:
    """Return the parts of ALFRED's ``traj_data.json`` that ALFWorld's tools read."""
    drawn = draft(task_id)
    goal, light = drawn.goal, drawn.task.family.in_light
    return {
        "task_type": goal.family.name, "task_id": task_id, "scene": {"floor_plan": drawn.task.layout.name},
        "pddl_params": {"object_target": goal.object_type, "parent_target": "" if light else goal.target_type,
                        "toggle_target": goal.target_type if light else "", "mrecep_target": "",
                        "object_sliced": False},
        "turk_annotations": {"anns": [{"task_desc": drawn.sentence}]},
    }  # fmt: skip


def write_games(folder: Path, task_ids: Iterable[str]) -> list[Path]:
    """Write games the way ALFWorld's download lays out one split, and return their ``game.tw-pddl`` files.

    A game lies in ``<family>-<object>-<target>-<layout>/<number>``.
    """
    written = []
    for task_id in task_ids:
        goal, task = draft(task_id).goal, read_task_id(task_id)
        name = f"{goal.family.name}-{goal.object_type}-{goal.target_type}-{task.size}-{task.layout.name}"
        path = folder / name / f"trial_{task.number:04d}"
        path.mkdir(parents=True, exist_ok=True)
        game = generated_file(task_id)
        parts = {"pddl_domain": game.domain, "grammar": game.grammar, "pddl_problem": game.problem, "solvable": True}
        (path / "traj_data.json").write_text(json.dumps(trajectory(task_id), indent=1), encoding="utf-8")
        (path / "game.tw-pddl").write_text(json.dumps(parts), encoding="utf-8")
        written.append(path / "game.tw-pddl")
    return written
