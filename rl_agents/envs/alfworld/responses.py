"""How a response becomes a command: where the command stands in it, and which command of the game is meant."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rl_agents.envs.alfworld.compact import full_command
from rl_agents.tools.calls import read_response
from rl_agents.tools.thoughts import read_thoughts

TOOL = "env_step"
#: Longer texts are no command of any game.
MAX_COMMAND = 1000

_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL)
_PUT = re.compile(r"(?:put|move|place) (.+?) (?:in/on|into|onto|in|on|to) (.+)")


def read_command(response: str, bare: bool) -> str | None:
    """Return the text of the command in a response, or None when it holds none or more than one.

    Thoughts do not count (`rl_agents.tools.thoughts`). A command is the inside of exactly one
    ``<action>...</action>``, or the argument ``command`` of exactly one call of the tool ``env_step``
    (``<tool_call>{"name": "env_step", "arguments": {"command": ...}}</tool_call>``), or else, where ``bare`` texts
    count, the last line that is not blank.
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
    return _clean(command)[:MAX_COMMAND] or None if command is not None else None


def _clean(text: str) -> str:
    """One line of valid Unicode: commands are repeated in prompts."""
    return " ".join(text.encode("utf-8", "replace").decode().split())


def _called(spoken: str) -> str | None:
    calls = read_response(spoken).calls
    if len(calls) != 1 or calls[0].name != TOOL:
        return None
    command = calls[0].arguments.get("command")
    return command if isinstance(command, str) else None


def find_command(text: str, admissible: Sequence[str]) -> str | None:
    """Return the admissible command that ``text`` means, or None.

    Capitals, white space and quotation marks around it do not matter. Putting down is ``move X to Y`` in some games
    and ``put X in/on Y`` in others: both are understood in all, and so are the short forms of the compact style.
    """
    if text in admissible:
        return text
    plain = _plain(text)
    if short := full_command(plain, admissible):
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
