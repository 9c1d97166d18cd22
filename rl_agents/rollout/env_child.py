"""The process of one environment: ``python -m rl_agents.rollout.env_child PIPE``, started by `env_worker`.

Its main thread calls the environment like a runner's (`EnvGuard`), so that the environment behaves the same, with the
global generators of each episode. It has its own working directory and signals. The process ends with its pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

from rl_agents.config import Settings
from rl_agents.errors import InputError
from rl_agents.gateway.process_supervisor_child import PR_SET_PDEATHSIG, on_linux
from rl_agents.rollout.env_calls import EnvFailure, call_env
from rl_agents.rollout.env_worker import EnvGuard, Generators
from rl_agents.rollout.prompting import env_factory
from rl_agents.rollout.serialization import ATTRIBUTES, MAX_BYTES, METHODS, Answer, Call, EnvRecipe, Sealed, opened


class Served:
    def __init__(self, env: Any) -> None:
        self.env, self._folder = env, os.getcwd()  # in which each episode begins
        self._begin(0)

    def _begin(self, seed: int) -> None:
        with contextlib.suppress(OSError):
            os.chdir(self._folder)
        self.guard = EnvGuard("", seed, 0.0)
        self.guard.process = Generators(seed, keep_folder=False)

    @property
    def has(self) -> list[str]:
        methods = [name for name in METHODS if callable(getattr(self.env, name, None))]
        # A property may fail before an episode begins.
        return [*methods, *(name for name in ATTRIBUTES if _has(self.env, name))]

    async def answer(self, call: Call) -> Answer:
        if call.order is not None:
            self._begin(call.order.seed)
            self.guard.process.resume(opened(call.order.drawn))
        if call.name in ATTRIBUTES:
            return Answer(await self.guard.call(getattr, self.env, call.name))
        result = await self.guard.call(getattr(self.env, call.name), *map(opened, call.args), **(call.kwargs or {}))
        if call.name != "snapshot":
            return Answer(result)
        try:
            return Answer(Sealed.of(result), drawn=Sealed.of(self.guard.process.drawn()))
        except Exception as error:  # the object's own methods may raise anything
            return Answer(failure=f"env_garbage: its snapshot cannot be pickled: {type(error).__name__}: {error}")


def _has(env: Any, name: str) -> bool:
    try:
        getattr(env, name)
    except AttributeError:
        return False
    except Exception:  # it exists, but has no value yet
        return True
    return True


def main(pipe: Connection) -> None:
    """Create the environment and answer calls until the pipe or the environment is closed."""
    recipe: EnvRecipe = pipe.recv()
    sys.path[:] = recipe.path
    with contextlib.suppress(OSError):
        os.chdir(recipe.folder)
    with asyncio.Runner() as runner:
        served: Served | None = None
        answer = Answer()
        try:
            make_env = env_factory(Settings.from_dict(recipe.settings))
            served = Served(call_env(0.0, make_env))
            answer = Answer(served.has)
        except (InputError, EnvFailure) as error:
            answer = Answer(failure=str(error), user_error=isinstance(error, InputError))
        send(pipe, answer)
        while served is not None:
            call: Call = pipe.recv()
            try:
                answer = runner.run(served.answer(call))
            except (InputError, EnvFailure) as error:
                answer = Answer(failure=str(error), user_error=isinstance(error, InputError))
            send(pipe, answer)
            if call.name == "close":
                return


def send(pipe: Connection, answer: Answer) -> None:
    """Send an answer, or why it cannot be sent, because an environment may put anything into ``info``."""
    try:
        data = answer.to_bytes()
    except Exception as error:  # its objects' own methods may raise anything
        data = Answer(failure=f"env_garbage: its answer cannot be sent to the runner: {error}").to_bytes()
    if len(data) > MAX_BYTES:
        data = Answer(failure=f"env_garbage: its answer has {len(data)} bytes, more than {MAX_BYTES}").to_bytes()
    pipe.send_bytes(data)


if __name__ == "__main__":
    on_linux(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runner handles Ctrl-C and ends this process
    os.set_inheritable(int(sys.argv[1]), False)  # programs that the environment starts must not have it
    with contextlib.suppress(EOFError, OSError):
        main(Connection(int(sys.argv[1])))
