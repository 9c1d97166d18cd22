"""What the agent reads, in four styles.

- ``3spo``: the prompt of 3SPO, appendix C.3, word for word; the action stands in ``<action>``. Without history the two
  sentences about it are left out. ``{action_history}`` is not printed in the paper; here it is one line an observation
  and one an action.
- ``steppo``: the prompt of StepPO, appendix C, word for word with its tool definition; the command is an argument of a
  tool call. The printed prompt has no place for the task, so that every observation ends with the task's sentence.
- ``plain``: a few lines of our own; the command is the last line of the response.
- ``compact``: words of one token each for small models; see `compact`.

The papers rebuild the prompt at every step from the last observations (``context=window(n)``; StepPO lists actions
only). With ``context=append`` the first turn is that prompt without history, and the further ones its parts that
change. In all styles but ``compact`` the agent is shown the admissible commands, without ``help``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from rl_agents.envs.alfworld.compact import compact_command, compact_goal, compact_text
from rl_agents.envs.alfworld.responses import TOOL
from rl_agents.tools.calls import ToolCall

HIDDEN_COMMANDS = ("help",)
_WELCOME = "-= Welcome to TextWorld, ALFRED! =-"
_TASK = "Your task is to:"


@dataclass(frozen=True, slots=True)
class View:
    """What a prompt is written from.

    Attributes:
        room: the game's first text, with the task.
        text: the current one.
        admissible: commands.
        history: earlier (text, command) pairs, all of them.
    """

    room: str
    text: str
    admissible: tuple[str, ...]
    history: tuple[tuple[str, str], ...] = ()

    @property
    def task(self) -> str:
        """The task's sentence, without the full stop."""
        return task_sentence(self.room)

    @property
    def commands(self) -> list[str]:
        """The commands that are shown."""
        return [command for command in self.admissible if command not in HIDDEN_COMMANDS]

    def recent(self, count: int) -> list[tuple[int, str, str]]:
        """Return the last ``count`` steps as (number from 1, text, command)."""
        first = len(self.history) - min(count, len(self.history))
        return [(number, *step) for number, step in enumerate(self.history[first:], start=first + 1)]


class Style(Protocol):
    """How a style writes."""

    def window(self, view: View, steps: int) -> str:
        """Return a whole prompt with the last ``steps`` steps; without any, the first observation."""
        ...

    def turn(self, view: View) -> str:
        """Return a later observation of a growing dialogue."""
        ...

    def response(self, command: str, thought: str = "") -> str:
        """Return a response that says ``command``, as demonstrations do; with a thought where the style has them."""
        ...


def task_sentence(room: str) -> str:
    """Return the task of a first text, without the full stop."""
    return room.rpartition(_TASK)[2].strip().rstrip(".")


_3SPO_TASK = "You are an expert agent operating in the ALFRED Embodied Environment. Your task is to: {task}"
_3SPO_HISTORY = """
Prior to this step, you have already taken {count} step(s). Below are the most recent {length} observations and the \
corresponding actions you took:
{history}"""
_3SPO_NOW = """\
You are now at step {step} and your current observation is: {text}
Your admissible actions of the current situation are: [{commands}].
Now it's your turn to take an action."""
_3SPO_FORM = """
You should first reason step-by-step about the current situation. This reasoning process MUST be enclosed within \
<think> </think> tags. Once you've finished your reasoning, you should choose an admissible action for current step \
and present it within <action> </action> tags."""


class ThreeSpo:
    """3SPO, appendix C.3."""

    def window(self, view: View, steps: int) -> str:
        recent = view.recent(steps)
        lines = [f"[Observation {n}: {text}]\n[Action {n}: {command}]" for n, text, command in recent]
        past = _3SPO_HISTORY.format(count=len(view.history), length=len(recent), history="\n".join(lines))
        task = _3SPO_TASK.format(task=view.task)
        return task + (past if recent else "") + "\n" + self.turn(view) + _3SPO_FORM

    def turn(self, view: View) -> str:
        commands = ", ".join(f"'{command}'" for command in view.commands)
        return _3SPO_NOW.format(step=len(view.history) + 1, text=view.text, commands=commands)

    def response(self, command: str, thought: str = "") -> str:
        return f"<think>{thought or ' '}</think> <action>{command}</action>"


_STEPPO = """\
You are acting in ALFWorld TextWorld. Choose exactly one command from the provided admissible commands each turn. You \
may reason briefly inside <think></think> before acting. Call the env_step tool with a exact command. Do not output a \
final answer.
{now}
Instructions
- Think briefly about the current state inside `<think>...</think>` tags.
- Use exactly one command through the `env_step` tool.
- The command must exactly match one item from `Admissible Commands`.
- Follow ALFWorld TextWorld command style such as `go to dresser 1`, `take mug 1 from cabinet 3`, `use desklamp 1`.
- Use the official observation text as the source of truth.
- Do not output explanations or a final natural-language answer.
Output Format
<think>
[Your brief reasoning about the current state and next command.]
</think>
<tool_call>
{{"name": "env_step", "arguments": {{"command": "[one admissible command]"}}}}
</tool_call>
Tool Definition
{{
  "type": "function",
  "function": {{
    "name": "env_step",
    "description": "Execute one ALFWorld TextWorld command and return the next official observation.",
    "parameters": {{
      "type": "object",
      "properties": {{
        "command": {{
          "type": "string",
          "description": "A single ALFWorld TextWorld command such as `go to dresser 1`, `open cabinet 3`, `take mug 1 \
from cabinet 3`, `use desklamp 1`. It must exactly match one currently admissible command."
        }}
      }},
      "required": ["command"]
    }}
  }}
}}"""


class StepPo:
    """StepPO, appendix C."""

    def window(self, view: View, steps: int) -> str:
        actions = [f"{number}. {command}" for number, _, command in view.recent(steps)]
        return _STEPPO.format(now=self._now(view, "\nHistory Actions\n" + ("\n".join(actions) or "None")))

    def turn(self, view: View) -> str:
        return self._now(view, "")

    def _now(self, view: View, actions: str) -> str:
        text = view.text if _TASK in view.text else f"{view.text}\n{_TASK} {view.task}."
        return f"Current Observation\n{text}{actions}\nAdmissible Commands\n" + "\n".join(view.commands)

    def response(self, command: str, thought: str = "") -> str:
        return f"<think>{thought or ' '}</think> <tool_call>{ToolCall(TOOL, {'command': command})}</tool_call>"


_PLAIN = "You act in a house by typing commands, one a turn. The last line of your answer is the command."


class Plain:
    """A few lines of our own."""

    def window(self, view: View, steps: int) -> str:
        recent = view.recent(steps)
        room = view.room.removeprefix(_WELCOME).strip()
        past = [line for n, text, command in recent for line in ([text] if n > 1 else []) + [f"> {command}"]]
        if past:
            past = ["", f"You took {len(view.history)} steps. The last {len(recent)}:", *past]
        now = [view.text] if view.history else []
        return "\n".join([_PLAIN, "", room, *past, *now, self._commands(view)])

    def turn(self, view: View) -> str:
        return f"{view.text}\n{self._commands(view)}"

    def _commands(self, view: View) -> str:
        return f"You can: {', '.join(view.commands)}"

    def response(self, command: str, thought: str = "") -> str:
        return command


class Compact:
    """Few words; the places of the room stand after the task."""

    def window(self, view: View, steps: int) -> str:
        goal = compact_goal(view.task)
        places = compact_text(view.room.rpartition(_TASK)[0].removeprefix(_WELCOME))
        words = [goal, ":", places]
        for number, text, command in view.recent(steps):
            words += ([compact_text(text)] if number > 1 else []) + [">", compact_command(command)]
        return " ".join([*words, *([":", compact_text(view.text)] if view.history else [])])

    def turn(self, view: View) -> str:
        return compact_text(view.text)

    def response(self, command: str, thought: str = "") -> str:
        return compact_command(command)


STYLES: Mapping[str, Style] = {"3spo": ThreeSpo(), "steppo": StepPo(), "plain": Plain(), "compact": Compact()}

#: Styles whose responses may be the bare text of a command.
BARE_STYLES = ("plain", "compact")
