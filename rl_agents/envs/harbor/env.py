"""Harbor's tasks as a `gymnasium.Env` over text: an agent with the tool ``bash``, and the task's own tests.

A response without a call ends the episode, as do the limits of turns and of time. Then the tests run, in the sandbox.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from rl_agents.envs.gymnasium_adapter import LibraryEnv, named_player
from rl_agents.envs.harbor import PAGE, SPEC, HarborOptions
from rl_agents.envs.harbor.sandbox import Sandbox, sandbox_kind
from rl_agents.envs.harbor.tasks import Task, load_tasks
from rl_agents.envs.spec import cut_text
from rl_agents.envs.stateful import StepResult
from rl_agents.envs.task_sets import unknown_task
from rl_agents.envs.tool_turns import opening, text_tool
from rl_agents.errors import InputError, unknown
from rl_agents.tools.calls import read_response
from rl_agents.tools.strict_json import strict_json
from rl_agents.tools.toolbox import BoundTool, Toolbox, ToolError, render_results

#: Characters of a command's output; longer ones lose their middle.
MAX_OUTPUT = 8000
BASH = text_tool("bash", "Run a command in a new bash shell. Files are kept.", "command", "the command")


def tasks_of(options: HarborOptions) -> Mapping[str, Mapping[str, Task]]:
    """Return the tasks of both sets by name; raises as `load_tasks` and `sandbox_kind` do."""
    if not options.path:
        raise InputError(f"environment harbor needs env.path=FOLDER, a folder of Harbor tasks ({PAGE})")
    return load_tasks(options, sandbox_kind(options.sandbox))


def task_ids(split: str, options: HarborOptions) -> list[str]:
    """Return the names of the tasks' folders; raises as `tasks_of` does."""
    return list(tasks_of(options)[split])


starter_of = partial(named_player, SPEC)


def read_rewards(said: str) -> dict[str, float]:
    """Return the rewards by name from what `Sandbox.verify` says; raises `ValueError`."""
    name, _, text = said.partition("\n")
    if not name:
        raise ValueError(f"tests/test.sh wrote neither reward.txt nor reward.json; it said: {ascii(text)[-200:]}")
    try:
        found = {"reward": float(text)} if name == "reward.txt" else strict_json(text)
        rewards = {key: float(value) for key, value in found.items() if isinstance(value, int | float)}
        if rewards and len(rewards) == len(found) and all(map(math.isfinite, rewards.values())):
            return rewards
    except (ValueError, AttributeError):
        pass
    raise ValueError(f"{name} of tests/test.sh is {ascii(text)[:80]}: no finite number, or object of such")


class HarborEnv(LibraryEnv):
    """See the module. ``metrics``: ``turns``, ``invalid_actions``, ``timeouts``, and at the end the rewards by name.

    Raises:
        InputError: see `tasks_of`; or no reward has the name ``env.reward``.
        RuntimeError: the tests wrote no reward, or not in time.
    """

    def __init__(self, options: HarborOptions, max_turns: int) -> None:
        self.options, self.max_turns, self._tasks = options, max_turns or SPEC.max_turns, tasks_of(options)
        self._sandbox: Sandbox | None = None
        self._toolbox = Toolbox([BoundTool(BASH, self._bash)])

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:  # type: ignore[override]
        """Start ``options["task_id"]``, or a train task drawn with ``seed``, in a new sandbox."""
        name = self.draw(seed, options, lambda: [*self._tasks["train"]])
        await asyncio.to_thread(self.close)
        if (task := {**self._tasks["train"], **self._tasks["test"]}.get(name)) is None:
            raise unknown_task("harbor", name[:80], [*self._tasks["train"], *self._tasks["test"]], "a folder's name")
        self._task, self._left_s = task, task.agent_s
        self._metrics = {"turns": 0.0, "invalid_actions": 0.0, "timeouts": 0.0}
        self._sandbox = Sandbox(task, sandbox_kind(self.options.sandbox), self.options)
        await self._sandbox.open()
        text, chat = opening([{"role": "user", "content": task.instruction}], self._toolbox.definitions)
        return text, {**self._info(True), **chat}

    async def step(self, action: str) -> StepResult:  # type: ignore[override]
        """Run the commands of a response; without one, or after the last turn, run the tests."""
        response = read_response(action, self._toolbox.tools)
        results = await self._toolbox.run(response)
        valid = all(result.fits for result in results)
        self._metrics["turns"] += 1
        self._metrics["invalid_actions"] += not valid
        truncated = bool(results) and (self._metrics["turns"] >= self.max_turns or self._left_s <= 0)
        reward = await self._verify() if truncated or not results else 0.0
        return render_results(results), reward, not results, truncated, self._info(valid, reward)

    def close(self) -> None:
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            sandbox.close()

    def _info(self, valid: bool, reward: float = -math.inf) -> dict[str, Any]:
        success = reward >= self.options.success_reward
        return {"task_id": self._task.folder.name, "success": success, "valid": valid, "metrics": dict(self._metrics)}

    async def _bash(self, arguments: Mapping[str, Any]) -> str:
        limit_s = min(self.options.command_timeout_s, self._left_s)
        if self._sandbox is None or limit_s <= 0:
            raise ToolError("not run: the time of the episode is over")
        since = time.monotonic()
        code, said = await self._sandbox.run(str(arguments["command"]), limit_s)
        self._left_s -= min(time.monotonic() - since, limit_s)  # without the work of a container engine
        self._metrics["timeouts"] += code is None
        shown, note = cut_text(said.strip(), MAX_OUTPUT), f"exit code {code}"
        if code is None:
            note = f"killed: more than {limit_s:g} s, or too much output"
        return shown if code == 0 else f"{shown}\n[{note}]".lstrip("\n")

    async def _verify(self) -> float:
        if self._sandbox is None:
            raise RuntimeError("call reset before step")
        where, (code, said) = f"harbor task {self._task.folder}", await self._sandbox.verify()
        if code is None:
            raise RuntimeError(f"{where}: tests/test.sh did not end within {self._task.verifier_s:g} s")
        try:
            rewards = read_rewards(said)
        except ValueError as error:
            raise RuntimeError(f"{where}: {error}") from None
        if self.options.reward not in rewards:
            raise InputError(f"{where}: env.reward: {unknown('reward', self.options.reward, rewards)}")
        self._metrics |= rewards
        return rewards[self.options.reward]


make = HarborEnv
