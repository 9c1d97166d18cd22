"""The two engines behind one interface: one episode at a time, played by commands.

Both answer with the same `Observation`; a position is a small value that can be pickled and gone back to.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from rl_agents.envs.alfworld.native import NativeGame, State
from rl_agents.envs.alfworld.spec import AlfworldOptions
from rl_agents.envs.alfworld.tasks import compiled_game, find_game
from rl_agents.envs.alfworld.textworld_backend import PYTHON_VARIABLE, TextWorldBackend
from rl_agents.envs.alfworld.textworld_client import BranchPoint, Observation

#: What `make alfworld` sets up: an interpreter with the real engine, beside the project's own.
SEPARATE_VENV = Path(__file__).parents[3] / ".venv-alfworld"

Position = State | BranchPoint


class Backend(Protocol):
    """An engine that plays one episode at a time."""

    def reset(self, task_id: str) -> Observation:
        """Start the game of a task.

        Raises:
            InputError: no such task, its game cannot be used, or the engine cannot be started.
        """
        ...

    def step(self, command: str) -> Observation:
        """Play a command; one that is not admissible is answered ``Nothing happens.``"""
        ...

    def snapshot(self) -> Position:
        """Return where the episode is."""
        ...

    def restore(self, task_id: str, position: Position) -> None:
        """Go on from a position in the game of a task.

        Raises:
            ValueError: the position is one of another engine or game.
        """
        ...

    def close(self) -> None:
        """End the episode."""
        ...


class NativeBackend:
    """The native engine; games are compiled once per process and shared."""

    def __init__(self, data: str = "") -> None:
        self._data = data
        self._game: NativeGame | None = None
        self._state: State | None = None

    def reset(self, task_id: str) -> Observation:
        game = compiled_game(task_id, self._data)
        self._game, self._state = game, game.start()
        return Observation(game.intro(self._state), game.admissible(self._state), game.won(self._state))

    def step(self, command: str) -> Observation:
        game, state = self._running()
        result = game.step(state, command)
        self._state = result.state
        return Observation(result.feedback, game.admissible(result.state), result.won)

    def snapshot(self) -> Position:
        return self._running()[1]

    def restore(self, task_id: str, position: Position) -> None:
        if not isinstance(position, State):
            raise ValueError("a state of the textworld backend, given to the native one")
        self._game, self._state = compiled_game(task_id, self._data), position

    def close(self) -> None:
        self._game = self._state = None

    def _running(self) -> tuple[NativeGame, State]:
        if self._game is None or self._state is None:
            raise RuntimeError("no episode is running: reset first")
        return self._game, self._state


class RealBackend:
    """The real TextWorld engine, in processes of its own (`textworld_backend`)."""

    def __init__(self, data: str = "", python: str = "") -> None:
        self._data = data
        self._engine = TextWorldBackend(textworld_python(python))

    def reset(self, task_id: str) -> Observation:
        return self._engine.reset(_game_file(task_id, self._data))

    def step(self, command: str) -> Observation:
        return self._engine.step(command)

    def snapshot(self) -> Position:
        return self._engine.snapshot()

    def restore(self, task_id: str, position: Position) -> None:
        if not isinstance(position, BranchPoint):
            raise ValueError("a state of the native backend, given to the textworld one")
        self._engine.restore(_game_file(task_id, self._data), position)

    def close(self) -> None:
        self._engine.close()


_game_file = lru_cache(maxsize=32)(find_game)


def textworld_python(named: str = "") -> str:
    """Return the interpreter of the real engine.

    That is ``named``, else what $RL_AGENTS_TEXTWORLD_PYTHON names, else that of `make alfworld` where it exists, else
    the one that runs.
    """
    found = str(SEPARATE_VENV / "bin" / "python") if (SEPARATE_VENV / ".ready").exists() else sys.executable
    return named or os.environ.get(PYTHON_VARIABLE) or found


def make_backend(options: AlfworldOptions) -> Backend:
    """Return the backend that the options name."""
    if options.backend == "native":
        return NativeBackend(options.data)
    return RealBackend(options.data, options.textworld_python)
