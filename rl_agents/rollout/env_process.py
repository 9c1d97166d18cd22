"""An environment in a process of its own, seen from the runner: an object that is called as the environment would be.

The process is started below `rl_agents.gateway.process_supervisor_child`, which kills all of it when it ends, when it
is let go of, or when the runner dies, however that happens. What is said goes over a pipe that only the two of them
hold: orders pickled, which the process trusts, and answers as plain data (`serialization`), of which the runner runs
nothing.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import Pipe
from typing import Any

from rl_agents.config import Settings
from rl_agents.errors import InputError
from rl_agents.gateway.process_supervisor import CHILD, kill_tree
from rl_agents.rollout.env_calls import EnvFailure
from rl_agents.rollout.env_hosts import EnvFactory, EpisodeState, NoState, ThreadHost
from rl_agents.rollout.serialization import MAX_BYTES, decode, encode

#: What an environment may have beside `reset` and `step`, and what of it is called.
METHODS, WORDS = ("snapshot", "restore", "render_window", "random_action"), ("answer_instruction",)
#: The keys that say how an environment is made.
KEYS = ("plugins", "env", "max_turns", "prompting", "prompting_shots", "prompting_trials")
#: Seconds between the end of the pipe and that of the process.
END_S = 5.0


@dataclass(frozen=True, slots=True)
class EnvRecipe:
    """How a process makes its environment.

    Attributes:
        settings: keys of the run, see `KEYS`, with the environment's own.
        path: where modules are looked for.
        folder: the working directory.
    """

    settings: Mapping[str, Any]
    path: tuple[str, ...]
    folder: str

    @classmethod
    def of(cls, settings: Settings) -> EnvRecipe:
        """Return the recipe of a run's environments."""
        own = {f"env.{name}": value for name, value in settings.env_options.items()}
        keys = {name: getattr(settings, name) for name in KEYS}
        return cls({**keys, **own}, tuple(sys.path), os.getcwd())


@dataclass(frozen=True, slots=True)
class Order:
    """What a process does with its generators before a call.

    Attributes:
        seed: of the episode.
        drawn: where they go on, as `ProcessState.drawn` had it; None: at the seed.
    """

    seed: int
    drawn: Any = None


@dataclass(frozen=True, slots=True)
class Call:
    """What a process is asked: a method of the environment, or one of its `WORDS`.

    Attributes:
        watch: say what it has changed of the process.
    """

    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    order: Order | None = None
    watch: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What it says.

    Attributes:
        failure: why there is no result, as an episode's ``end_cause``; ``user_error``: for the user to mend.
        drawn: where the generators stand, after a snapshot; sealed.
        touched: what the episode has changed of the process, in words.
    """

    result: Any = None
    failure: str = ""
    user_error: bool = False
    drawn: Any = None
    touched: str = ""

    def to_bytes(self) -> bytes:
        """Write it; raises as `encode` does."""
        return encode([self.result, self.failure, self.user_error, self.drawn, self.touched])

    @classmethod
    def from_bytes(cls, data: bytes) -> Answer:
        """Read it.

        Raises:
            ValueError: it is none.
        """
        result, failure, user_error, drawn, touched = decode(data)
        return cls(result, str(failure), user_error is True, drawn, str(touched))


class ProcessEnv:
    """Stands for an environment in a process; all calls block.

    Attributes:
        order: for the next call.
        drawn: where the generators stood at the last snapshot.
        touched: what the environment has changed of its process, in words; seen where ``watches`` says so.
    """

    def __init__(self, recipe: EnvRecipe, watches: bool = False) -> None:
        self._recipe, self._watches = recipe, watches
        self.touched = ""
        self._has: frozenset[str] = frozenset()
        self.order: Order | None = None
        self.drawn: Any = None
        self._pipe, theirs = Pipe()
        with theirs:
            command = [sys.executable, "-m", "rl_agents.rollout.env_child", str(theirs.fileno())]
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", CHILD, "0", *command], stdin=subprocess.PIPE, pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, recipe.path))}, start_new_session=True,
            )  # fmt: skip

    def open(self) -> None:
        """Have the environment made.

        Raises:
            EnvFailure, InputError: as it is said there.
        """
        self._has = frozenset(self._asked(self._recipe))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self._ask("reset", seed=seed, options=options)

    def step(self, action: str) -> Any:
        return self._ask("step", action)

    def __getattr__(self, name: str) -> Any:
        """What only some environments have."""
        if name.startswith("_") or name not in self._has:
            raise AttributeError(name)
        if name in WORDS:
            return self._ask(name)
        return lambda *args: self._ask(name, *args)

    def close(self) -> None:
        """Close the environment and end the process."""
        try:
            self._ask("close")
        finally:
            self.kill()
            self._ended()

    def kill(self) -> None:
        """End the process and all that it has started; returns at once."""
        with contextlib.suppress(OSError, ValueError):
            assert self._process.stdin is not None
            self._process.stdin.write(b"!")
            self._process.stdin.close()

    def _ask(self, name: str, *args: Any, **kwargs: Any) -> Any:
        order, self.order = self.order, None
        return self._asked(Call(name, args, kwargs, order, self._watches))

    def _asked(self, message: Call | EnvRecipe) -> Any:
        name = message.name if isinstance(message, Call) else "start"
        try:
            self._pipe.send(message)
            answer = Answer.from_bytes(self._pipe.recv_bytes(MAX_BYTES))
        except ValueError as error:
            raise EnvFailure(f"env_garbage: {name}: its process sent no answer: {str(error)[:80]!a}") from None
        except (EOFError, OSError):
            raise EnvFailure(f"env_died: {name}: the environment's process {self._ended()}") from None
        if answer.failure:
            raise (InputError if answer.user_error else EnvFailure)(answer.failure)
        self.drawn, self.touched = answer.drawn, self.touched or answer.touched
        return answer.result

    def _ended(self) -> str:
        """Wait for the end of the process, and say how it ended."""
        self._pipe.close()
        try:
            code = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            kill_tree(self._process.pid)
            code = self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        return f"was ended by signal {code - 128}" if code > 128 else f"ended with exit code {code}"


class ChildState(NoState):
    """The generators of an episode whose environment is in a process, which holds them."""

    def __init__(self, env: ProcessEnv, seed: int) -> None:
        super().__init__(seed)
        self._env = env
        self.reset()

    def reset(self) -> None:
        self._env.order = Order(self.seed)

    def drawn(self) -> Any:
        """Return them as they were after the last call, which was that of `snapshot`."""
        return self._env.drawn

    def resume(self, drawn: Any) -> None:
        self._env.order = Order(self.seed, drawn)


class ProcessHost(ThreadHost):
    """One environment in one process, with the thread that calls it."""

    may_die = True

    def __init__(self, recipe: EnvRecipe, watches: bool = False) -> None:
        super().__init__(watches)
        self._recipe = recipe
        self._process: ProcessEnv | None = None

    @property
    def touched(self) -> str:
        """See `ThreadHost`; nobody else is in the process."""
        return self._process.touched if self._process is not None else ""

    def begin(self, seed: int) -> EpisodeState:
        return ChildState(self.env, seed)

    def abandon(self) -> None:
        """See `ThreadHost`; the thread ends with the process."""
        super().abandon()
        if self._process is not None:  # not `env`, which is None while it is closed
            self._process.kill()

    def interrupt(self) -> None:
        """Nothing to interrupt: the thread waits for the process."""

    def start(self, make_env: EnvFactory) -> None:
        """See `ThreadHost`; the environment is made as the recipe says."""
        self.env = self._process = ProcessEnv(self._recipe, self._watches)
        if self.over:  # nobody waited so long
            self._process.kill()
        self._process.open()
