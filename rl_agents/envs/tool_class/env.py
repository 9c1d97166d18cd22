"""A class whose typed public methods are tools, as a `gymnasium.Env` over text.

The convention is that of TRL 1.16 (``GRPOTrainer``, ``environment_factory``): all public methods except ``reset`` and
``get_reward`` are tools, described by types and docstrings. ``reset(**row)`` gets a row of the task table and returns
None or a text, which is added to the last message of the row's ``prompt``. A response without a call ends the episode.
Its reward is ``get_reward()`` plus the weighted sum of the reward functions; None counts nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from transformers.utils import get_json_schema

from rl_agents.background import settled
from rl_agents.envs.gymnasium_adapter import LibraryEnv, reached
from rl_agents.envs.stateful import StepResult
from rl_agents.envs.task_sets import TableTasks, table_tasks
from rl_agents.envs.tool_class import PREFIX
from rl_agents.envs.tool_turns import opening
from rl_agents.errors import InputError, defined_at, named, number_from
from rl_agents.plugins import member
from rl_agents.tools.calls import MAX_CALLS, Tool, read_response, read_tool
from rl_agents.tools.toolbox import BoundTool, Toolbox, ToolError, ToolResult, render_results

#: Public methods that are no tools.
OWN_METHODS = ("reset", "get_reward")


def task_ids(split: str, options: Any) -> list[str]:
    """Return the ids of ``train`` or ``test``; raises as `tasks_of` does."""
    return list(tasks_of(options).ids(split))


def tasks_of(options: Any) -> TableTasks:
    """Read the table of tasks; raises `InputError`: there is none, or an invalid row."""
    if not options.tasks:
        raise InputError(f"environment {PREFIX}{options.id} needs env.tasks=FILE, a table with the arguments of reset")
    return table_tasks(f"{PREFIX}{options.id}", options.tasks, options.columns)


class ToolClassEnv(LibraryEnv):
    """Call the methods of an object; see the module. One object plays all episodes, as in TRL.

    ``info`` has ``task_id``, ``success``, ``valid`` (every call could be read and names a tool with its arguments),
    ``query`` (the calls) and ``metrics``: ``turns``, ``calls``, ``failed_calls`` and at the end every reward by name.

    Raises:
        InputError: the class, a reward function or the table does not fit.
    """

    def __init__(self, options: Any, max_turns: int) -> None:
        self.options, self.max_turns, self.name = options, max_turns, f"{PREFIX}{options.id}"
        self._tasks = tasks_of(options)
        with named(f"environment {self.name} cannot be created"):
            self.inner = member(options.id, self.name)(**options.kwargs)
        kind = type(self.inner).__name__
        if not hasattr(self.inner, "reset"):
            raise InputError(f"environment {self.name}: {kind} has no method reset")
        names = [name for name, _ in inspect.getmembers(type(self.inner), inspect.isfunction)]
        self._tools = [self._tool(name) for name in names if name not in OWN_METHODS and name[0] != "_"]
        self._toolbox = Toolbox([self._bound(tool) for tool in self._tools], MAX_CALLS)
        self._rewards = {path: member(path, "env.rewards") for path in options.rewards}
        if not self._rewards and "get_reward" not in names:
            raise InputError(f"environment {self.name}: {kind} has no method get_reward: write it, or set env.rewards")

    def _tool(self, name: str) -> Tool:
        method = getattr(self.inner, name)
        with named(f"environment {self.name}: the tool {name}{defined_at(method)} needs types and a docstring"):
            return read_tool(get_json_schema(method))

    def _bound(self, tool: Tool) -> BoundTool:
        def run(arguments: Mapping[str, Any]) -> str:
            try:
                return str(settled(getattr(self.inner, tool.name)(**arguments)))
            except Exception as error:  # the agent reads it, as in TRL
                raise ToolError(str(error)) from error

        # Only the names of arguments are checked.
        properties = {name: True for name in tool.parameters["properties"]}
        loose = {**tool.parameters, "properties": properties, "additionalProperties": False}
        return BoundTool(replace(tool, parameters=loose), run)

    def player(self, method: str) -> Any:
        """Return a scripted player of the class."""
        return getattr(self.inner, method)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start ``options["task_id"]``, or a train task drawn with ``seed``.

        Raises:
            InputError: unknown task, or one whose columns ``reset`` does not take, or without a text.
        """
        self._task = self.draw(seed, options, lambda: self._tasks.ids("train"))
        self._row = self._tasks.find(self._task)
        with named(f"environment {self.name}: reset{defined_at(self.inner.reset)} and a row of {self.options.tasks}"):
            inspect.signature(self.inner.reset).bind(**self._row)
        text = settled(self.inner.reset(**self._row)) or ""
        prompt = self._row.get("prompt") or ""
        *before, last = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        self._prompt = [*before, {**last, "content": last["content"] + text}]
        self._said: list[dict[str, Any]] = []
        self._metrics: dict[str, float] = {"turns": 0.0, "calls": 0.0, "failed_calls": 0.0}
        if not any(message["content"].strip() for message in self._prompt):
            raise InputError(f"environment {self.name}, task {self._task}: no prompt, and reset returned no text")
        text, chat = opening(self._prompt, [tool.to_openai() for tool in self._tools])
        return text, {**self._info(True), **chat}

    def step(self, action: str) -> StepResult:
        """Run the calls of a response; without one, the episode ends."""
        response = read_response(action, self._tools)
        called = [{"name": call.name, "arguments": call.arguments} for call in response.calls]
        calls = {"tool_calls": [{"type": "function", "function": one} for one in called]} if called else {}
        self._said.append({"role": "assistant", "content": response.content, **calls})
        results = self._toolbox.execute(response)  # one without a call if the response cannot be read
        self._said += map(_message, results)
        ran = [result for result in results if result.fits]
        self._metrics["turns"] += 1
        self._metrics["calls"] += len(ran)
        self._metrics["failed_calls"] += sum(not result.ok for result in ran)
        truncated = bool(results) and self._metrics["turns"] >= self.max_turns
        reward = self._score() if truncated or not results else 0.0
        info = self._info(len(ran) == len(results), reached(reward, self.options.success_reward))
        info["query"] = " ; ".join(str(result.call) for result in ran)
        return render_results(results), reward, not results, truncated, info

    def _info(self, valid: bool, success: bool = False) -> dict[str, Any]:
        return {"task_id": self._task, "success": success, "valid": valid, "metrics": dict(self._metrics)}

    def _score(self) -> float:
        """Return the episode's reward, the sum that TRL trains on, and note its parts as metrics."""
        total = 0.0
        if hasattr(self.inner, "get_reward"):
            total += self._part(type(self.inner).__name__, self.inner.get_reward, [settled(self.inner.get_reward())])
        columns = {name: [value] for name, value in self._row.items() if name not in ("prompt", "completion")}
        columns |= {"prompts": [self._prompt], "completions": [self._said], "environments": [self.inner]}
        logs = {"log_metric": self._metrics.__setitem__, "log_extra": lambda column, values: None}
        for path, function in self._rewards.items():
            values = settled(function(**columns, **logs))
            total += self.options.rewards[path] * self._part(path.rpartition(":")[2], function, values)
        return total

    def _part(self, name: str, function: Callable[..., Any], values: Any) -> float:
        (value,) = values
        if value is None:
            return 0.0
        self._metrics[name] = number_from(function, value)
        return self._metrics[name]


def _message(result: ToolResult) -> dict[str, Any]:
    """Return a result as TRL's reward functions read it."""
    content = result.content if result.ok else str({"error": result.content})
    return {"role": "tool", "name": result.call.name if result.call else "", "content": content}


make = ToolClassEnv
