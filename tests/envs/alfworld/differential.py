"""The native ALFWorld engine held against the real one: same commands to both, every answer compared.

The real engine runs in a process of its own (``textworld_server.py``), started with the interpreter that
``RL_AGENTS_TEXTWORLD_PYTHON`` names, or with this one if it has TextWorld.
"""

import importlib.util
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_agents.envs.alfworld.native import NOTHING_HAPPENS, NativeGame, State
from rl_agents.envs.alfworld.official import load_game

SERVER = Path(__file__).with_name("textworld_server.py")
KEPT_MISMATCHES = 20


def textworld_python() -> str | None:
    """Return an interpreter that has TextWorld and ALFWorld; None if there is none."""
    named = os.environ.get("RL_AGENTS_TEXTWORLD_PYTHON")
    if named:
        return named
    both = all(importlib.util.find_spec(name) is not None for name in ("textworld", "alfworld"))
    return sys.executable if both else None


class RealEngine:
    """The other end of the pipe."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._receive()

    def load(self, game: Path) -> dict[str, Any]:
        return self._ask({"load": str(game)})

    def step(self, command: str) -> dict[str, Any]:
        return self._ask({"step": command})

    def _ask(self, request: dict[str, str]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._receive()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the TextWorld process ended with code {self._process.wait(10)}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"TextWorld: {answer['error']}")
        return answer


@contextmanager
def real_engine(python: str) -> Iterator[RealEngine]:
    """Start the real engine; it ends with the block."""
    command = [python, str(SERVER)]
    pipe = subprocess.PIPE
    # stderr takes what the planner prints.
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield RealEngine(process)
        finally:
            process.kill()


@dataclass
class Comparison:
    """One game on both engines: what was played, and what differed (the first 20 in full). Times are CPU seconds."""

    game: str
    family: str
    steps: dict[str, int] = field(default_factory=dict)
    accepted: int = 0
    won: bool = False
    mismatches: dict[str, int] = field(default_factory=dict)
    examples: list[dict[str, Any]] = field(default_factory=list)
    real_reset: float = 0.0
    real_steps: list[float] = field(default_factory=list)
    native_reset: float = 0.0
    native_steps: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Answer:
    """What is compared after every command."""

    feedback: str
    admissible: tuple[str, ...]
    won: bool
    reward: float


def compare_game(engine: RealEngine, game: Path, family: str, steps: int, seed: str) -> Comparison:
    """Play ``steps`` commands on both engines: the expert's, random admissible ones, and malformed ones.

    The play goes on after a win, which the following commands may undo.
    """
    rng = random.Random(seed)
    style = rng.choice(("expert", "random", "mixed"))
    result = Comparison(str(game), family)
    real = engine.load(game)
    result.real_reset = real["cpu"]
    started = time.process_time()
    native = NativeGame.compile(load_game(game))
    state = native.start()
    ours = Answer(native.intro(state), native.admissible(state), native.won(state), 0.0)
    result.native_reset = time.process_time() - started
    _compare(real, ours, [], result)
    seen: set[str] = set(ours.admissible)
    played: list[str] = []
    for _ in range(steps):
        kind, command = _next_command(rng, style, real, sorted(seen))
        real = engine.step(command)
        result.real_steps.append(real["cpu"])
        state, ours = _native_step(native, state, command, result)
        played.append(command)
        result.steps[kind] = result.steps.get(kind, 0) + 1
        result.accepted += ours.feedback != NOTHING_HAPPENS
        result.won = result.won or ours.won
        _compare(real, ours, played[-30:], result)
        seen.update(ours.admissible)
    return result


def _native_step(native: NativeGame, state: State, command: str, result: Comparison) -> tuple[State, Answer]:
    started = time.process_time()
    step = native.step(state, command)
    admissible = native.admissible(step.state)
    result.native_steps.append(time.process_time() - started)
    return step.state, Answer(step.feedback, admissible, step.won, float(step.won))


def _compare(real: dict[str, Any], ours: Answer, played: list[str], result: Comparison) -> None:
    theirs = Answer(real["feedback"], tuple(sorted(set(real["admissible"]))), real["won"], float(real["reward"]))
    for name in ("feedback", "admissible", "won", "reward"):
        expected, found = getattr(theirs, name), getattr(ours, name)
        if expected != found:
            result.mismatches[name] = result.mismatches.get(name, 0) + 1
            if len(result.examples) < KEPT_MISMATCHES:
                if name == "admissible":
                    expected, found = sorted({*expected} - {*found}), sorted({*found} - {*expected})
                example = {"game": result.game, "after": played, "what": name, "textworld": expected, "native": found}
                result.examples.append(example)


def _next_command(rng: random.Random, style: str, real: dict[str, Any], seen: Sequence[str]) -> tuple[str, str]:
    draw = rng.random()
    if draw < 0.15:
        return "malformed", malformed(rng, real["admissible"], seen)
    expert = real["expert"]
    if expert is not None and (style == "expert" or (style == "mixed" and draw < 0.6)):
        return "expert", expert
    # Two times in three something else than going away, so that the play gets to the rarer actions.
    stay = [command for command in real["admissible"] if not command.startswith("go to ")]
    return "random", rng.choice(stay if stay and rng.random() < 0.67 else real["admissible"])


def malformed(rng: random.Random, admissible: Sequence[str], seen: Sequence[str]) -> str:
    """Return a command that is wrong in some way; a few, with white space around a good one, are right."""
    command = rng.choice(list(admissible))
    words = command.split(" ")
    place = rng.randrange(len(command))
    return rng.choice(
        [
            "", "   \t\n", command.upper(), command.title(), f"  {command}\n", f"\u00a0{command}\u2003",
            command.replace(" ", "  "), command.replace(" ", "\t"), command[:-1], command + ".",
            command[:place] + chr(rng.choice((0, 0xE9, 0x3B1, 0x4E2D, 0x1F600, 0x200B))) + command[place:],
            command * 500, "go to " + "cabinet " * 4000 + "1", " ".join(reversed(words)), " ".join(words[:-1]),
            f"{words[0]} unicorn {rng.randrange(100)}", f"take unicorn 7 from {' '.join(words[-2:])}",
            f"put {' '.join(words[1:])}", f"<action>{command}</action>", "{r.name} #intro# [x]", rng.choice(list(seen)),
            rng.choice(list(seen)), rng.choice(list(seen)),
        ]
    )  # fmt: skip
