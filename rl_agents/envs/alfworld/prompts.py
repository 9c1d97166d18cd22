"""The agent's prompts, in three styles, and how a response becomes a command.

- ``3spo``: 3SPO, appendix C.3, word for word; without history its two sentences are excluded. The paper does not print
  ``{action_history}``; here it has one line for each observation and one for each action.
- ``steppo``: StepPO, appendix C, word for word with its tool definition. The printed prompt has no place for the task,
  so that every observation ends with the task's sentence.
- ``compact``: for the warm-start model, in words of one token each. A text keeps the names of things and the few words
  that tell the result; a command is its verb and its first thing, because the agent is where the second thing is:

    You arrive at fridge 1. The fridge 1 is closed.        fridge-1 closed
    You pick up the mug 1 from the desk 1.                 pick mug-1 desk-1

With ``context=append`` the first turn is the prompt without history, and later turns have its parts that change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rl_agents.envs.alfworld.families import read_goal
from rl_agents.errors import InputError
from rl_agents.tools.calls import ToolCall, read_response
from rl_agents.tools.thoughts import read_thoughts

#: Words of the games' texts that the compact style keeps besides names.
KEPT_WORDS = (
    "empty", "nothing", "facing", "closed", "open", "close", "pick", "move", "clean", "heat", "cool", "hot", "cold",
    "turn", "sliced", "carrying", "not", "special",
)  # fmt: skip
#: Verbs of commands; the first word of ``go to`` stands for both.
VERBS = (
    "go", "open", "close", "take", "move", "clean", "heat", "cool", "use", "slice", "examine", "look", "inventory",
    "help",
)  # fmt: skip
#: Stands for a text without any of these words.
SILENCE = "nothing"

_NAME = re.compile(r"\b([a-z]+) (\d+)\b")
_WORD = re.compile(r"[a-z]+-\d+|[a-z]+")
_COMPACT_NAME = re.compile(r"\b([a-z]+)-(\d+)\b")


@lru_cache(maxsize=4096)  # the same few texts repeat
def compact_text(text: str) -> str:
    """Return a text of the game in compact words; never empty."""
    text = text.lower().replace(" next to it, you see nothing", "").replace("you see nothing", "empty")
    kept: list[str] = []
    for word in _WORD.findall(_NAME.sub(r"\1-\2", text)):
        if ("-" in word or word in KEPT_WORDS) and word not in kept[-1:]:
            kept.append(word)
    return " ".join(kept) or SILENCE


def compact_goal(sentence: str) -> str:
    """Return the task: family, object and target, such as ``heat potato sinkbasin``."""
    try:
        goal = read_goal(f"Your task is to: {sentence}")
    except InputError:
        return " ".join(_WORD.findall(sentence.lower()))
    return f"{goal.family.short} {goal.object_type} {goal.target_type}"


@lru_cache(maxsize=4096)
def compact_command(command: str) -> str:
    """Return the short form of a command: its verb and its first thing."""
    words = _NAME.sub(r"\1-\2", command).split()
    things = [word for word in words if _COMPACT_NAME.fullmatch(word)]
    return " ".join([*words[:1], *things[:1]])


TOOL = "env_step"
#: Longer texts are no command of any game.
MAX_COMMAND = 1000

_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL)
_PUT = re.compile(r"(?:put|move|place) (.+?) (?:in/on|into|onto|in|on|to) (.+)")


def read_command(response: str, bare: bool) -> str | None:
    """Return the text of the command in a response, or None when it holds none or more than one.

    Thoughts are ignored (`rl_agents.tools.thoughts`). A command is the inside of exactly one ``<action>...</action>``,
    or the argument ``command`` of exactly one call of the tool ``env_step``
    (``<tool_call>{"name": "env_step", "arguments": {"command": ...}}</tool_call>``), or with ``bare`` the last line
    that is not blank.
    """
    spoken = read_thoughts(response).words
    if "<tool_call>" in spoken:
        command = _called(spoken)
    elif "<action>" in spoken or not bare:
        actions = _ACTION.findall(spoken)
        command = actions[0] if len(actions) == 1 else None
    else:
        lines = [line for line in spoken.splitlines() if line.strip()]
        command = lines[-1] if lines else None
    if command is None:
        return None
    # One line of valid Unicode, because prompts repeat commands.
    return " ".join(command.encode("utf-8", "replace").decode().split())[:MAX_COMMAND] or None


def _called(spoken: str) -> str | None:
    calls = read_response(spoken).calls
    if len(calls) != 1 or calls[0].name != TOOL:
        return None
    command = calls[0].arguments.get("command")
    return command if isinstance(command, str) else None


def find_command(text: str, admissible: Sequence[str]) -> str | None:
    """Return the admissible command that ``text`` means, or None.

    Capitals, white space and quotation marks around it do not matter. Some games have ``move X to Y`` and others
    ``put X in/on Y``. Both forms are understood in all games, as are the short forms of the compact style.
    """
    if text in admissible:
        return text
    plain = _plain(text)
    if short := next((command for command in admissible if compact_command(command) == " ".join(plain.split())), None):
        return short
    commands = {_plain(command): command for command in admissible}
    if plain in commands:
        return commands[plain]
    if match := _PUT.fullmatch(plain):
        for form in ("move {} to {}", "put {} in/on {}"):
            if (command := form.format(*match.groups())) in commands:
                return commands[command]
    return None


def _plain(text: str) -> str:
    return " ".join(text.lower().split()).strip("\"'`. ")


HIDDEN_COMMANDS = ("help",)
_WELCOME = "-= Welcome to TextWorld, ALFRED! =-"
_TASK = "Your task is to:"


@dataclass(frozen=True, slots=True)
class View:
    """The contents of a prompt.

    Attributes:
        room: the game's first text, with the task.
        text: the current text.
        admissible: commands.
        history: all earlier (text, command) pairs.
    """

    room: str
    text: str
    admissible: tuple[str, ...]
    history: tuple[tuple[str, str], ...] = ()

    @property
    def task(self) -> str:
        """The task's sentence, without the full stop."""
        return self.room.rpartition(_TASK)[2].strip().rstrip(".")

    @property
    def commands(self) -> list[str]:
        return [command for command in self.admissible if command not in HIDDEN_COMMANDS]

    def recent(self, count: int) -> list[tuple[int, str, str]]:
        """Return the last ``count`` steps as (number from 1, text, command)."""
        first = len(self.history) - min(count, len(self.history))
        return [(number, *step) for number, step in enumerate(self.history[first:], start=first + 1)]


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


class Compact:
    """Few words: the task, the places of the room, then the steps."""

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


#: ``window`` writes a whole prompt with the last steps (with 0 steps, the first observation), ``turn`` a later
#: observation of a growing dialogue, ``response`` a demonstration, with a thought if the style has thoughts.
Style = ThreeSpo | StepPo | Compact
STYLES: Mapping[str, Style] = {"3spo": ThreeSpo(), "steppo": StepPo(), "compact": Compact()}
