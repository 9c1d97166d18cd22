"""Software engineering turns: the kind of tool, its target, and how alike edits and commands are (SWE pivots).

The rule of NeMo-Gym's server ``swe_pivot`` (``resources_servers/swe_pivot/app.py``, August 2026), which belongs to the
SWE pivots that PivotRL's authors published; the paper's own SWE verifier is ``tool_name``. Three things are ours:

- a call with the demonstration's arguments passes (the server refuses equal views of one line or up to line -1);
- texts under ``old_string``, ``new_string`` and ``input`` are compared, where the server sees an empty edit;
- ``linear`` takes off for another length than the demonstration's, the server for length: a demonstration scores 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

from rl_agents.rewards.verifiers.base import Verdict
from rl_agents.rewards.verifiers.tool_calls import message_verdict
from rl_agents.tools.calls import Response
from rl_agents.tools.strict_json import strict_json
from rl_agents.traces.turns import Turn

CATEGORIES: Mapping[str, frozenset[str]] = {
    "edit": frozenset(
        {
            "str_replace_editor", "text_editor", "file_editor", "code_editor", "edit_file", "modify_file",
            "update_file", "file_edit", "edit", "modify", "apply_patch", "patch_file", "apply_diff", "apply_changes",
            "write", "write_file", "save_file", "create_file",
        }
    ),
    "bash": frozenset(
        {
            "execute_bash", "run_bash", "bash_exec", "shell_run", "shell", "bash", "terminal", "shell_command",
            "shell_cmd", "run_shell_cmd", "exec_command", "exec_cmd",
        }
    ),
    "search": frozenset(
        {
            "grep", "search_text", "find_pattern", "text_search", "glob", "find_files", "file_glob", "match_files",
            "grep_files", "search_files", "find_in_files", "code_search", "list_dir", "ls", "show_dir", "ls_dir",
            "list_directory",
        }
    ),
    "read": frozenset(
        {
            "read", "read_file", "view_file", "cat_file", "view", "file_view", "inspect", "show_file",
            "read_file_content",
        }
    ),
    "finish": frozenset({"finish", "submit"}),
    "think": frozenset({"think"}),
    "planning": frozenset(
        {
            "task_tracker", "todo_tracker", "plan_tracker", "todo_read", "todo_write", "update_plan", "list_tasks",
            "update_tasks", "read_todos", "write_todos", "edit_plan", "modify_plan",
        }
    ),
}  # fmt: skip
#: Tool name in lower case, with its underscores or without (``ReadFile``), -> kind.
_KINDS = {form: kind for kind, names in CATEGORIES.items() for name in names for form in (name, name.replace("_", ""))}
PATH_ARGUMENTS = ("path", "file", "file_path", "filename", "file_name")
FULL_FROM, LINEAR_FROM = 0.8, 0.4
#: Below it two commands have the verb in common and nothing else.
BASH_FLOOR = 0.3
VIEW_COVERED = 0.8
SIZE_PENALTY = 0.1
#: Comparing takes time in proportion to the product of the lengths.
MAX_COMPARED = 2000
#: Components at the end of a path that have to be equal.
EDIT_COMPONENTS, OTHER_COMPONENTS = 2, 3

_PATH = re.compile(r"""(?:^|[\s='"(])((?:/[\w._-]+)+|\.\.?/[\w._/-]+|[\w._-]+/[\w._/-]+)""")


@dataclass(frozen=True, slots=True)
class SweVerifier:
    """Kind of operation and target as the expert's; edits and commands alike as well. The first call of each counts.

    - **kind**: the same tool, or one of the same category.
    - **target**, where both name one: edit: sub-command, the last two components of the path, and a view shows at
      least 0.8 of the expert's lines; bash: the first word, a path of which the last three components are the same,
      and similarity of at least 0.3; search and read: the last three components of the path.
    - **similarity**: s = min of the similarities of old and new text, else that of the new text, for edits; that of
      the commands for bash (`alike`). ``binary``: s >= 0.8. ``linear``: 0 below 0.4, from 0.5 there to 1 at 0.8, less
      up to 10 % for an edit of another length.
    """

    edit_credit: Literal["binary", "linear"] = "binary"

    def score(self, turn: Turn, response: Response) -> Verdict:
        if verdict := message_verdict(turn, response):
            return verdict
        gold, found = turn.calls[0], response.calls[0]
        kind, other = category(gold.name), category(found.name)
        if found.name.lower() != gold.name.lower() and (other != kind or not kind):
            return Verdict(0.0, f"{other or found.name} for {kind or gold.name}")
        if gold.arguments == found.arguments:
            return Verdict(1.0, "the same call")
        if problem := target_difference(kind, gold.arguments, found.arguments):
            return Verdict(0.0, problem)
        return self._credit(kind, gold.arguments, found.arguments)

    def _credit(self, kind: str, gold: Mapping[str, Any], found: Mapping[str, Any]) -> Verdict:
        s = similarity(kind, gold, found)
        if self.edit_credit == "binary":
            return Verdict(float(s >= FULL_FROM), f"{s:.2f} alike")
        lengths = (len(edit_text(gold)), len(edit_text(found))) if kind == "edit" else (0, 0)
        return Verdict(linear_credit(s, *lengths), f"{s:.2f} alike")


def category(tool: str) -> str:
    """Return the kind of operation of a tool; empty for an unknown tool."""
    return _KINDS.get(tool.lower(), "")


def target_difference(kind: str, gold: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Return how the targets of two calls of one kind differ; empty when they do not, or when one names none."""
    if kind == "edit":
        return _edit_difference(gold, found)
    if kind == "bash":
        return _bash_difference(command(gold), command(found))
    if kind in ("search", "read"):
        return _path_difference(path(gold), path(found), OTHER_COMPONENTS)
    return ""


def similarity(kind: str, gold: Mapping[str, Any], found: Mapping[str, Any]) -> float:
    """Return how alike the texts of two edits, or two commands, are; 1 where there is nothing to compare."""
    if kind == "edit":
        texts = [(_text(arguments, *OLD), _text(arguments, *NEW)) for arguments in (gold, found)]
        if all(any(pair) for pair in texts):
            return min(alike(one, other) for one, other in zip(*texts, strict=True))
        return alike(edit_text(gold), edit_text(found))
    if kind == "bash" and command(gold) and command(found):
        return alike(command(gold), command(found))
    return 1.0


def alike(one: str, other: str) -> float:
    """2·M/(len_a + len_b), M the characters in common blocks (difflib's ratio); 0 if one is empty, 1 if both are."""
    if not one or not other:
        return float(one == other)
    return SequenceMatcher(None, other[:MAX_COMPARED], one[:MAX_COMPARED]).ratio()


def linear_credit(alike: float, gold_length: int, found_length: int) -> float:
    """0 below 0.4, 0.5 + 0.5·(s - 0.4)/0.4 up to 0.8, then 1; times 1 - 0.1·min(1, |Δlength|/length)."""
    if alike < LINEAR_FROM:
        return 0.0
    credit = min(1.0, 0.5 + 0.5 * (alike - LINEAR_FROM) / (FULL_FROM - LINEAR_FROM))
    return credit * (1.0 - SIZE_PENALTY * min(1.0, abs(found_length - gold_length) / max(gold_length, 1)))


OLD, NEW = ("old_str", "old_string"), ("new_str", "new_string")
WHOLE = ("patch", "diff", "content", "file_text", "input")


def edit_text(arguments: Mapping[str, Any]) -> str:
    """Return all that an edit says: old and new text, or else the patch or the whole file."""
    if any(name in arguments for name in NEW):
        return f"{_text(arguments, *OLD)}\n{_text(arguments, *NEW)}"
    return _text(arguments, *WHOLE)


def path(arguments: Mapping[str, Any]) -> str:
    return _text(arguments, *PATH_ARGUMENTS).strip()


def command(arguments: Mapping[str, Any]) -> str:
    return _text(arguments, "command", "cmd").strip()


def command_paths(text: str) -> frozenset[str]:
    """Return the last components of the paths in a shell command.

    >>> sorted(command_paths("cat /w/src/a/b.py ./tests --x=/tmp/"))
    ['./tests', 'src/a/b.py', 'tmp']
    """
    paths = (found for found in _PATH.findall(text) if not found.startswith("--") and len(found) > 2)
    return frozenset(filter(None, (_suffix(found.rstrip("/"), OTHER_COMPONENTS) for found in paths)))


def _edit_difference(gold: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    one, other = str(gold.get("command", "")), str(found.get("command", ""))
    if one and other and one != other:
        return f"another sub-command: {other}"
    if problem := _path_difference(path(gold), path(found), EDIT_COMPONENTS):
        return problem
    return "other lines" if one == other == "view" and not _shows(found, gold) else ""


def _bash_difference(gold: str, found: str) -> str:
    if not gold or not found:
        return ""
    verb, other = (text.split()[0].rpartition("/")[2] for text in (gold, found))
    if verb and other and verb != other:
        return f"{other}, another command"
    paths, others = command_paths(gold), command_paths(found)
    if paths and others and not paths & others:
        return f"{verb} of {sorted(others)[0]}"
    return f"another use of {verb}" if alike(gold, found) < BASH_FLOOR else ""


def _path_difference(gold: str, found: str, components: int) -> str:
    same = not gold or not found or _suffix(gold, components) == _suffix(found, components)
    return "" if same else f"another file: {found}"


def _suffix(name: str, components: int) -> str:
    return "/".join(name.strip("/").split("/")[-components:])


def _shows(found: Mapping[str, Any], gold: Mapping[str, Any]) -> bool:
    """Whether a view shows most of the lines of another one; without a range it shows the whole file."""
    lines, wanted = _range(found.get("view_range")), _range(gold.get("view_range"))
    if lines is None or wanted is None:
        return True
    shared = max(0, min(lines[1], wanted[1]) - max(lines[0], wanted[0]))
    return shared / max(1, wanted[1] - wanted[0]) >= VIEW_COVERED


def _range(value: Any) -> tuple[int, int] | None:
    """Read ``[first, last]``, or JSON text of it; None for anything else."""
    try:
        lines = strict_json(value) if isinstance(value, str) else value
        return (int(lines[0]), int(lines[1])) if isinstance(lines, list) and len(lines) == 2 else None
    except (TypeError, ValueError):
        return None


def _text(arguments: Mapping[str, Any], *names: str) -> str:
    return str(next((arguments[name] for name in names if name in arguments), ""))
