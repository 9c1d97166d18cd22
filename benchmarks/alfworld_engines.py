"""The two ALFWorld engines on the same commands: ``python -m benchmarks.alfworld_engines --games DIR [DIR ...]``.

DIR is searched for ``game.tw-pddl``: the official data, generated games, or both. Measures the CPU time of reset and
step and counts differences (``tests/envs/alfworld/differential.py``). Needs an interpreter with TextWorld and
ALFWorld (``RL_AGENTS_TEXTWORLD_PYTHON``) and about 5 seconds per game.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import command_line, save
from rl_agents.envs.alfworld.families import FAMILIES
from tests.envs.alfworld import differential


def main() -> None:
    parser = command_line(__doc__, {"steps": 100})
    parser.add_argument("--games", nargs="+", type=Path, required=True, help="folders with game.tw-pddl files")
    args = parser.parse_args()
    games = sorted(path for folder in args.games for path in folder.rglob("game.tw-pddl"))
    python = differential.textworld_python()
    if not games or not python:
        parser.error("no game.tw-pddl there" if python else "no TextWorld: set RL_AGENTS_TEXTWORLD_PYTHON")
    result = {"games": len(games), **summary(compared(games, args.steps, python))}
    save("alfworld_engines", result)
    print(json.dumps(result, indent=2))


def compared(games: list[Path], steps: int, python: str) -> list[differential.Comparison]:
    """Run every game on both engines."""
    found = []
    with differential.real_engine(python) as engine:
        for number, game in enumerate(games):
            found.append(
                differential.compare_game(engine, game, family_of(game), steps, f"alfworld-{game.parent.name}")
            )
            print(f"{number + 1}/{len(games)} {game.parent}: {found[-1].mismatches or 'no difference'}", flush=True)
    return found


def family_of(game: Path) -> str:
    """Return the task family; the name of a folder above a game begins with it."""
    names = [part for part in game.parts for family in FAMILIES if part.startswith(family.name)]
    return names[-1].split("-")[0] if names else "other"


def summary(found: Sequence[differential.Comparison]) -> dict[str, Any]:
    real, native = ([s for one in found for s in getattr(one, name)] for name in ("real_steps", "native_steps"))
    steps = sum((Counter(one.steps) for one in found), Counter[str]())
    return {
        "textworld": {"reset_ms": milliseconds([one.real_reset for one in found]), "step_ms": milliseconds(real)},
        "native_on_the_same_commands": {
            "load_and_reset_ms": milliseconds([one.native_reset for one in found]), "step_ms": milliseconds(native),
        },
        "differential": {
            "games": dict(Counter(one.family for one in found)),
            "steps": dict(steps) | {"total": steps.total()},
            "steps_that_did_something": sum(one.accepted for one in found),
            "games_won": sum(one.won for one in found),
            "mismatches": dict(sum((Counter(one.mismatches) for one in found), Counter[str]())),
            "examples": [example for one in found for example in one.examples][:20],
        },
    }  # fmt: skip


def milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    values = 1e3 * np.array(seconds)
    figures = {"mean": values.mean(), "median": np.median(values), "p95": np.quantile(values, 0.95)}
    return {name: round(float(value), 3) for name, value in figures.items()}


if __name__ == "__main__":
    main()
