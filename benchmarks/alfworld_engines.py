"""The two ALFWorld engines side by side: ``python -m benchmarks.alfworld_engines --games DIR [DIR ...]``.

DIR is searched for ``game.tw-pddl``: the official data, generated games, or both. Measures on every game

- the native engine alone: CPU time of compiling a game, of a step with its admissible commands, alone and in groups of
  eight episodes that share a game, and the memory of 1,000 environments in the middle of their episodes;
- both engines on the same commands (``tests/envs/alfworld/differential.py``): CPU time of reset and step, and what
  differed. That needs an interpreter with TextWorld and ALFWorld (``RL_AGENTS_TEXTWORLD_PYTHON``) and about 5 seconds
  a game; without one, or with ``--steps 0``, this part is left out. ``--log FILE`` keeps what every game gave, so that
  an interrupted comparison goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from rl_agents.envs.alfworld.families import FAMILIES
from rl_agents.envs.alfworld.native import NativeGame, State
from rl_agents.envs.alfworld.official import load_game
from tests.envs.alfworld import differential

RESULTS = Path(__file__).with_name("results") / "alfworld_engines.json"
ENVIRONMENTS = 1000
EPISODE_STEPS = 50
GROUP = 8


def main() -> None:
    parser = argparse.ArgumentParser(description="native and real ALFWorld engine: speed, memory and agreement")
    parser.add_argument("--games", nargs="+", type=Path, required=True, help="folders with game.tw-pddl files")
    parser.add_argument("--steps", type=int, default=100, help="commands a game in the comparison; 0: no comparison")
    parser.add_argument("--log", type=Path, help="JSON lines, one a compared game; those in it are not played again")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    games = sorted(path for folder in arguments.games for path in folder.rglob("game.tw-pddl"))
    if not games:
        parser.error(f"no game.tw-pddl under {', '.join(map(str, arguments.games))}")
    # Memory first: nothing else has grown the process yet.
    result: dict[str, Any] = {"games": len(games), "native": {**memory(games), **speed(games)}}
    print(json.dumps(result["native"], indent=2), flush=True)
    python = differential.textworld_python()
    if python and arguments.steps:
        result |= summary(compared(games, arguments.steps, python, arguments.log))
    else:
        print("no comparison: no TextWorld (set RL_AGENTS_TEXTWORLD_PYTHON), or --steps 0")
    arguments.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps({key: value for key, value in result.items() if key != "native"}, indent=2))


def memory(games: list[Path]) -> dict[str, Any]:
    """Return what ``ENVIRONMENTS`` environments, spread over the games, add to the process after 20 steps each."""
    process = psutil.Process()
    rng = random.Random(0)
    before = process.memory_info().rss
    compiled = [NativeGame.compile(load_game(game)) for game in games]
    after_games = process.memory_info().rss
    environments = [_played(compiled[n % len(compiled)], rng, 20) for n in range(ENVIRONMENTS)]
    after = process.memory_info().rss
    assert len(environments) == ENVIRONMENTS
    return {
        "environments": ENVIRONMENTS,
        "environments_mb": round((after - before) / 2**20, 1),
        "kb_a_compiled_game": round((after_games - before) / 1024 / len(games), 1),
    }


def _played(game: NativeGame, rng: random.Random, steps: int) -> State:
    state = game.start()
    for _ in range(steps):
        state = game.step(state, rng.choice(game.admissible(state))).state
    return state


def speed(games: list[Path]) -> dict[str, Any]:
    """Return CPU milliseconds of compiling and of random episodes, with every state new and in groups."""
    rng = random.Random(1)
    compiling, alone, grouped = [], [], []
    for path in games:
        file = load_game(path)
        started = time.process_time()
        game = NativeGame.compile(file)
        compiling.append(time.process_time() - started)
        started = time.process_time()
        _played(game, rng, EPISODE_STEPS)
        alone.append((time.process_time() - started) / EPISODE_STEPS)
        started = time.process_time()
        for _ in range(GROUP):
            _played(game, rng, EPISODE_STEPS)
        grouped.append((time.process_time() - started) / EPISODE_STEPS / GROUP)
    return {
        "compile_ms": round(statistics.mean(compiling) * 1e3, 2),
        "first_episode_step_ms": round(statistics.mean(alone) * 1e3, 4),
        "step_ms": round(statistics.mean(grouped) * 1e3, 4),
        "steps_a_second": round(1 / statistics.mean(grouped)),
    }


def compared(games: list[Path], steps: int, python: str, log: Path | None) -> list[differential.Comparison]:
    """Play every game on both engines, except those that ``log`` has."""
    done: dict[str, differential.Comparison] = {}
    if log and log.exists():
        found = [differential.Comparison(**json.loads(line)) for line in log.read_text().splitlines()]
        done = {comparison.game: comparison for comparison in found}
    with differential.real_engine(python) as engine:
        for number, game in enumerate(games):
            if str(game) in done:
                continue
            comparison = differential.compare_game(engine, game, family_of(game), steps, f"alfworld-{game.parent.name}")
            done[str(game)] = comparison
            if log:
                with log.open("a") as file:
                    file.write(json.dumps(asdict(comparison)) + "\n")
            print(f"{number + 1}/{len(games)} {game.parent}: {comparison.mismatches or 'no difference'}", flush=True)
    return [done[str(game)] for game in games]


def summary(comparisons: list[differential.Comparison]) -> dict[str, Any]:
    """Add up what the games gave."""
    steps = sum((Counter(comparison.steps) for comparison in comparisons), Counter[str]())
    real_steps = [seconds for comparison in comparisons for seconds in comparison.real_steps]
    native_steps = [seconds for comparison in comparisons for seconds in comparison.native_steps]
    return {
        "textworld": {
            "reset_ms": _milliseconds([comparison.real_reset for comparison in comparisons]),
            "step_ms": _milliseconds(real_steps),
            "steps_a_second": round(1 / statistics.mean(real_steps), 1),
        },
        "native_on_the_same_commands": {
            "load_and_reset_ms": _milliseconds([comparison.native_reset for comparison in comparisons]),
            "step_ms": _milliseconds(native_steps),
            "steps_a_second": round(1 / statistics.mean(native_steps)),
        },
        "differential": {
            "games": dict(Counter(comparison.family for comparison in comparisons)),
            "steps": dict(steps) | {"total": steps.total()},
            "steps_that_did_something": sum(comparison.accepted for comparison in comparisons),
            "games_won": sum(comparison.won for comparison in comparisons),
            "mismatches": dict(sum((Counter(comparison.mismatches) for comparison in comparisons), Counter[str]())),
            "examples": [example for comparison in comparisons for example in comparison.examples][:20],
        },
    }


def family_of(game: Path) -> str:
    """Return the task family, which the names of the folders above a game begin with."""
    names = [part for part in game.parts for family in FAMILIES if part.startswith(family.name)]
    return names[-1].split("-")[0] if names else "other"


def _milliseconds(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "mean": round(statistics.mean(ordered) * 1e3, 3),
        "median": round(statistics.median(ordered) * 1e3, 3),
        "p95": round(ordered[int(len(ordered) * 0.95)] * 1e3, 3),
    }


if __name__ == "__main__":
    main()
