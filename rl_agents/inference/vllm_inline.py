"""vLLM stepped by the event loop of those who ask it: for the process of an env runner.

There is no thread. While anybody waits for an answer, a task of the loop makes one step after the other, and between
two of them lets whoever was answered go on: the next prompt of an episode joins the next step, and no thread waits for
the interpreter. Environments that run on the loop, and everything else there, wait while a step is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rl_agents.inference.base import EngineError
from rl_agents.inference.vllm_engine import CLOSED, VLLMInProcessEngine

#: Passes of the event loop between two steps: in the first futures are resolved, in the second those who waited for
#: them go on, and have two more for what else they await before they ask again.
PASSES = 4


class VLLMInlineEngine(VLLMInProcessEngine):
    """See the module docstring. Only one event loop at a time may use it; it stands still while that does."""

    def _begin(self) -> None:
        self._stepping: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Stop vLLM; whoever waits gets an `EngineError`."""
        self._die(CLOSED)
        self._engine.engine_core.shutdown()

    def _post(self, job: Callable[[], None]) -> None:
        if self.dead is not None:
            raise EngineError(self.dead)
        self._inbox.append(job)
        loop = asyncio.get_running_loop()
        if self._stepping is None or self._stepping.done() or self._stepping.get_loop() is not loop:
            self._stepping = loop.create_task(self._steps())

    async def _steps(self) -> None:
        """Take turns as long as there is work."""
        try:
            while self.dead is None and (self._inbox or self._busy()):
                jobs, self._inbox = self._inbox, []
                self._turn(jobs)
                for _ in range(PASSES):
                    await asyncio.sleep(0)
        except asyncio.CancelledError:  # the loop ends; another one may go on
            raise
        except BaseException as error:
            self._die_of(error)
            if not isinstance(error, Exception):
                raise
