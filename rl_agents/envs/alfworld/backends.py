"""The two engines behind one interface: one episode at a time, played by commands.

Both answer with the same `Observation`; a position is a small value that can be pickled and gone back to.

The real TextWorld engine as a backend: games are played by processes of their own (`textworld_worker`).

A root process imports the engine once per Python process that plays. Every game is loaded by a copy of it, and every
episode is a copy (a fork) of a process that has loaded its game: a reset costs milliseconds after the first. Copies of
processes in the middle of an episode make `TextWorldBackend.snapshot` and `TextWorldBackend.restore` cheap, which the
engine alone cannot do. The processes kept for copying are few and the least recently used one goes first; what is gone
is made again by replaying the commands, for the games have no chance in them.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from rl_agents.envs.alfworld import AlfworldOptions
from rl_agents.envs.alfworld.game_file import GameFile
from rl_agents.envs.alfworld.native import NativeGame, State
from rl_agents.envs.alfworld.tasks import compiled_game, find_game
from rl_agents.errors import InputError
from rl_agents.installation import pip_install

MAX_ANSWER = 4_000_000


class WorkerError(RuntimeError):
    """A worker was killed, ended or did not answer in time: this episode is over, the next one gets a new worker."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What the engine says.

    Attributes:
        text: the feedback; of a reset the room and the task.
        admissible: the commands that do something now, sorted.
        won: whether the goal holds.
    """

    text: str
    admissible: tuple[str, ...]
    won: bool


@dataclass(frozen=True, slots=True)
class BranchPoint:
    """A state of a game that can be returned to, in this process or another: the commands that led to it."""

    game: str
    commands: tuple[str, ...]


class Worker:
    """The client's end of one worker process."""

    def __init__(self, sock: socket.socket, pid: int = 0) -> None:
        self._sock = sock
        self._lock = threading.Lock()
        self.pid = pid

    def request(
        self,
        message: dict[str, Any],
        timeout_s: float,
        doing: str,
        attach: int | None = None,
        refused: type[Exception] = WorkerError,
    ) -> Any:
        """Send a request and return the answer.

        Raises:
            WorkerError: the process is gone or did not answer in time (it is killed then).
            refused: the process could not do it.
        """
        data = json.dumps(message).encode() + b"\n"
        try:
            with self._lock:
                deadline = time.monotonic() + timeout_s
                self._sock.settimeout(timeout_s)
                if attach is None:
                    self._sock.sendall(data)
                else:
                    socket.send_fds(self._sock, [data], [attach])
                answer = self._read(deadline)
        except TimeoutError:
            self.kill()
            raise WorkerError(f"TextWorld worker {self.pid}: no answer within {timeout_s:g} s to: {doing}") from None
        except OSError as error:
            self.close()
            raise WorkerError(f"TextWorld worker {self.pid} ended during: {doing} ({error})") from None
        if "error" in answer:
            raise refused(f"TextWorld worker {self.pid}: {doing}: {answer['error']}")
        return answer

    def _read(self, deadline: float) -> Any:
        buffer = bytearray()
        while not buffer.endswith(b"\n"):
            self._sock.settimeout(max(1e-3, deadline - time.monotonic()))
            data = self._sock.recv(1 << 16)
            if not data:
                raise OSError("killed, or crashed")
            buffer += data
            if len(buffer) > MAX_ANSWER:
                raise OSError(f"its answer is longer than {MAX_ANSWER} bytes")
        return json.loads(buffer)

    def hello(self, timeout_s: float) -> Any:
        """Return the first line of a root process."""
        try:
            return self._read(time.monotonic() + timeout_s)
        except TimeoutError:
            raise OSError(f"no sign of life within {timeout_s:g} s") from None

    def fork(self, timeout_s: float) -> Worker:
        """Return a copy of the process as it is now."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                answer = self.request({"op": "fork"}, timeout_s, "fork", attach=theirs.fileno())
            except BaseException:
                ours.close()
                raise
        return Worker(ours, answer["pid"])

    def kill(self) -> None:
        """End the process at once. Its socket is still open, so that the id is still its own."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """Let the process end."""
        self._sock.close()


def step(worker: Worker, command: str, timeout_s: float) -> Observation:
    """Play ``command`` in a worker."""
    return observation(worker.request({"op": "step", "command": command}, timeout_s, f"step '{command[:80]}'"))


def observation(answer: Any) -> Observation:
    """Read what a worker answers to ``load`` and ``step``."""
    return Observation(answer["text"], tuple(answer["admissible"]), answer["won"])


PYTHON_VARIABLE = "RL_AGENTS_TEXTWORLD_PYTHON"
WORKER = Path(__file__).with_name("textworld_worker.py")
#: Longer commands are cut: no game has one, so that they do nothing either way.
MAX_COMMAND = 1000
START_TIMEOUT_S = 120.0


@dataclass
class Server:
    """The root process, and the processes kept to be copied: for a game and for states in the middle of it.

    Attributes:
        python: interpreter that has textworld and alfworld.
        kept: most processes kept; each needs about 7 MB of its own.
    """

    python: str
    kept: int = 16
    _root: Worker | None = None
    _process: subprocess.Popen[bytes] | None = None
    _templates: OrderedDict[BranchPoint, tuple[Worker, Observation]] = field(default_factory=OrderedDict)
    _loading: dict[str, threading.Lock] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def branch(self, game: GameFile, point: BranchPoint, timeout_s: float) -> tuple[Worker, Observation]:
        """Return a process of its own at ``point``, copied from the nearest process kept, and its observation.

        Raises:
            WorkerError: a process was killed or did not answer in time.
            InputError: the engine cannot load the game, or cannot be started.
        """
        # A second try, for what is kept may have been killed, or given up for another just now.
        copied = self._copy_nearest(game, point, timeout_s) or self._copy_nearest(game, point, timeout_s)
        if copied is None:
            raise WorkerError(f"TextWorld: the processes that have loaded {game.path} end at once")
        known, worker, seen = copied
        try:
            for command in point.commands[len(known.commands) :]:
                seen = step(worker, command, timeout_s)
        except BaseException:
            worker.close()
            raise
        return worker, seen

    def keep(self, point: BranchPoint, worker: Worker, seen: Observation, timeout_s: float) -> None:
        """Keep a copy of ``worker``, which is at ``point``."""
        if point not in self._templates:
            self._keep(point, worker.fork(timeout_s), seen)

    def _copy_nearest(
        self, game: GameFile, point: BranchPoint, timeout_s: float
    ) -> tuple[BranchPoint, Worker, Observation] | None:
        """Return a copy of the process nearest before ``point``, and where it is; None if that process is gone."""
        with self._lock:
            loading = self._loading.setdefault(point.game, threading.Lock())
        with loading:  # members of a group start the same game at the same time: it is loaded once
            nearest = self._nearest(point)
            if nearest is None:
                nearest = (BranchPoint(point.game, ()), *self._load(game, timeout_s))
                self._keep(*nearest)
        known, template, seen = nearest
        try:
            return known, template.fork(timeout_s), seen
        except WorkerError:
            with self._lock:
                self._templates.pop(known, None)
            return None

    def _nearest(self, point: BranchPoint) -> tuple[BranchPoint, Worker, Observation] | None:
        with self._lock:
            for length in range(len(point.commands), -1, -1):
                known = BranchPoint(point.game, point.commands[:length])
                if known in self._templates:
                    self._templates.move_to_end(known)
                    return (known, *self._templates[known])
        return None

    def _keep(self, point: BranchPoint, worker: Worker, seen: Observation) -> None:
        with self._lock:
            self._templates[point] = (worker, seen)
            while len(self._templates) > self.kept:
                _, (oldest, _) = self._templates.popitem(last=False)
                oldest.close()

    def _load(self, game: GameFile, timeout_s: float) -> tuple[Worker, Observation]:
        message = {"pddl_domain": game.domain, "grammar": game.grammar, "pddl_problem": game.problem}
        worker = self._fork_root(timeout_s)
        try:
            answer = worker.request({"op": "load", "game": message}, timeout_s, f"load {game.path}", refused=InputError)
        except BaseException:
            worker.close()
            raise
        return worker, observation(answer)

    def _fork_root(self, timeout_s: float) -> Worker:
        with self._lock:
            try:
                return (self._root or self._start()).fork(timeout_s)
            except WorkerError:  # it was killed: once more with a new one
                self._forget_root()
                return self._start().fork(timeout_s)

    def _start(self) -> Worker:
        ours, theirs = socket.socketpair()
        one_thread = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
        environment = {**os.environ, **one_thread, "ALFWORLD_DATA": tempfile.gettempdir()}
        with theirs, tempfile.TemporaryFile() as errors:
            try:
                self._process = subprocess.Popen(
                    [self.python, "-I", str(WORKER), str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    env=environment,
                    start_new_session=True,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                )
            except OSError as error:
                raise InputError(f"env.textworld_python={self.python}: cannot be run: {error.strerror}") from None
            theirs.close()
            self._root = Worker(ours, self._process.pid)
            try:
                answer = self._root.hello(START_TIMEOUT_S)
            except OSError as error:
                errors.seek(0)
                said = errors.read(10_000).decode(errors="replace").strip().rpartition("\n")[2]
                answer = {"error": said or str(error)}
        if "error" in answer:
            self._forget_root()
            raise InputError(
                f"env.textworld_python={self.python}: the TextWorld engine does not start: {answer['error']}; "
                f"pip install {pip_install('alfworld')} there, or use env.backend=native"
            )
        return self._root

    def _forget_root(self) -> None:
        if self._root is not None:
            self._root.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._root = self._process = None

    def close(self) -> None:
        """End all processes, those of running episodes too."""
        with self._lock:
            for worker, _ in self._templates.values():
                worker.close()
            self._templates.clear()
            if self._root is not None and self._process is not None:
                self._root.close()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(10)
            self._forget_root()


_servers: dict[tuple[int, str], Server] = {}
_servers_lock = threading.Lock()


def server(python: str | None = None) -> Server:
    """Return this process's server for an interpreter; None: $RL_AGENTS_TEXTWORLD_PYTHON, else the one that runs."""
    python = python or os.environ.get(PYTHON_VARIABLE) or sys.executable
    key = (os.getpid(), python)  # a forked process must not share its parent's sockets
    with _servers_lock:
        if key not in _servers:
            _servers[key] = Server(python)
        return _servers[key]


@atexit.register
def close_servers() -> None:
    """End the processes that this process started."""
    for (pid, _), each in _servers.items():
        if pid == os.getpid():
            each.close()


class TextWorldBackend:
    """One episode at a time on the real engine.

    Args:
        python: see `server`.
        timeout_s: longest wait for one answer; the first reset of a big game takes about 2 s.
    """

    def __init__(self, python: str | None = None, timeout_s: float = 60.0) -> None:
        self._server = server(python)
        self._timeout_s = timeout_s
        self._worker: Worker | None = None
        self._point = BranchPoint("", ())
        self._seen: Observation | None = None

    def reset(self, game: GameFile) -> Observation:
        """Start an episode.

        Raises:
            WorkerError: the worker was killed or did not answer in time.
            InputError: the engine cannot load the game, or cannot be started.
        """
        return self.restore(game, BranchPoint(game_key(game), ()))

    def step(self, command: str) -> Observation:
        """Play a command.

        Raises:
            WorkerError: see `reset`; the episode is over.
            RuntimeError: there is no episode.
        """
        worker = self._running()
        command = command.strip()[:MAX_COMMAND]
        try:
            self._seen = step(worker, command, self._timeout_s)
        except WorkerError:
            self.close()
            raise
        self._point = BranchPoint(self._point.game, (*self._point.commands, command))
        return self._seen

    def snapshot(self) -> BranchPoint:
        """Return the state of the episode, small and picklable. A copy of the process is kept for `restore`."""
        worker = self._running()
        assert self._seen is not None
        self._server.keep(self._point, worker, self._seen, self._timeout_s)
        return self._point

    def restore(self, game: GameFile, point: BranchPoint) -> Observation:
        """Go on from a state of ``game`` and return what was seen there.

        Raises:
            ValueError: the state is one of another game.
            WorkerError, InputError: see `reset`.
        """
        if point.game != game_key(game):
            raise ValueError(f"a state of another game than {game.path}")
        self.close()
        self._worker, self._seen = self._server.branch(game, point, self._timeout_s)
        self._point = point
        return self._seen

    @property
    def pid(self) -> int | None:
        """Process id of the episode's worker."""
        return self._worker.pid if self._worker else None

    def _running(self) -> Worker:
        if self._worker is None:
            raise RuntimeError("no episode is running: reset first")
        return self._worker

    def close(self) -> None:
        """End the episode's process."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def __del__(self) -> None:
        if getattr(self, "_worker", None) is not None:
            self.close()


def game_key(game: GameFile) -> str:
    """Return the sha256 of what the engine reads of a game."""
    return hashlib.sha256("\0".join((game.domain, game.grammar, game.problem)).encode()).hexdigest()


#: What `make alfworld` sets up: an interpreter with the real engine, beside the project's own.
SEPARATE_VENV = Path(__file__).parents[3] / ".venv-alfworld"

Position = State | BranchPoint


class NativeBackend:
    """The native engine; games are compiled once per process and shared.

    A backend plays one episode at a time. `reset` raises `InputError` for a task that there is not, a game that cannot
    be used or an engine that cannot be started, `restore` `ValueError` for a position of another engine or game.
    """

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
    """The real TextWorld engine, in processes of its own."""

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


Backend = NativeBackend | RealBackend


def make_backend(options: AlfworldOptions) -> Backend:
    if options.backend == "native":
        return NativeBackend(options.data)
    return RealBackend(options.data, options.textworld_python)
