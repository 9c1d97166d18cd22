"""Software engineering turns: the kind of operation, its target, and for edits how alike they are (SWE pivots)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal

from rapidfuzz.distance import Indel

from rl_agents.rewards.verifiers.base import Verdict
from rl_agents.rewards.verifiers.tool_calls import message_verdict
from rl_agents.tools.calls import Response, ToolCall
from rl_agents.traces.turns import Turn

CATEGORIES: Mapping[str, frozenset[str]] = {
    "edit": frozenset(
        {
            "str_replace_editor", "str_replace_based_edit_tool", "edit", "edit_file", "multiedit", "multi_edit",
            "write", "write_file", "create_file", "apply_patch", "patch", "replace", "insert",
        }
    ),
    "bash": frozenset(
        {"bash", "execute_bash", "shell", "exec_command", "run_command", "run_shell_command", "execute", "terminal"}
    ),
    "search": frozenset(
        {"grep", "glob", "search", "search_files", "codebase_search", "find", "find_file", "ls", "list_dir", "list"}
    ),
    "read": frozenset({"read", "read_file", "view", "view_file", "open", "open_file", "cat"}),
    "planning": frozenset({"todo_write", "todowrite", "todo_read", "todoread", "update_plan", "task_tracker", "plan"}),
    "finish": frozenset({"finish", "submit", "complete", "attempt_completion"}),
    "think": frozenset({"think"}),
}  # fmt: skip
PATH_ARGUMENTS = ("path", "file_path", "filename", "file", "target_file", "dir_path", "directory")
BINARY_FROM, LINEAR_FROM = 0.8, 0.4
SIZE_PENALTY = 0.1

_RUNNERS = re.compile(r"^(sudo|time|env|nohup|timeout|[A-Za-z_]\w*=.*)$")
_PATH = re.compile(r"[\w.@+~-]*/[\w./@+~*-]*|[\w@+~-]+\.[A-Za-z]\w{0,7}")


@dataclass(frozen=True, slots=True)
class SweVerifier:
    """Kind of operation and target as the expert's; edits alike as well. The first call of each counts.

    - **kind**: the tools' category (edit, bash, search, read, planning, finish, think; another name is its own).
    - **target**: edit and read: basename of the file and sub-command, ranges of lines overlap; bash: the same verb and
      the same basenames of paths; search: the same arguments but for blanks. Planning, finish and think have none.
    - **edit**: s = min of the similarity of old and new text. ``binary``: s >= 0.8. ``linear``: 0 below 0.4, from 0.5
      there to 1 at 0.8, less up to 10 % for a new text of another length.
    """

    edit_credit: Literal["binary", "linear"] = "binary"

    def score(self, turn: Turn, response: Response) -> Verdict:
        """See `rl_agents.rewards.verifiers.base.Verifier.score`."""
        if verdict := message_verdict(turn, response):
            return verdict
        gold, found = turn.calls[0], response.calls[0]
        kind = category(gold.name)
        if category(found.name) != kind:
            return Verdict(0.0, f"{category(found.name)} for {kind}")
        if problem := target_difference(kind, gold, found):
            return Verdict(0.0, problem)
        if kind != "edit" or gold.arguments.get("command") == "view":
            return Verdict(1.0, f"{kind} of the same target")
        return self._score_edit(gold.arguments, found.arguments)

    def _score_edit(self, gold: Mapping[str, Any], found: Mapping[str, Any]) -> Verdict:
        alike = min(_alike(old_text(gold), old_text(found)), _alike(new_text(gold), new_text(found)))
        if self.edit_credit == "binary":
            return Verdict(float(alike >= BINARY_FROM), f"edits {alike:.2f} alike")
        return Verdict(linear_credit(alike, len(new_text(gold)), len(new_text(found))), f"edits {alike:.2f} alike")


def category(tool: str) -> str:
    """Return the kind of operation of a tool; an unknown tool is a kind of its own."""
    name = tool.rpartition(".")[2].lower()
    return next((kind for kind, names in CATEGORIES.items() if name in names), name)


def target_difference(kind: str, gold: ToolCall, found: ToolCall) -> str:
    """Return how the targets of two calls of one kind differ; empty when they do not."""
    if kind == "bash":
        expected, actual = bash_target(_command(gold)), bash_target(_command(found))
        return "" if expected == actual else f"{actual[0] or 'nothing'} {sorted(actual[1])}, another command"
    if kind in ("edit", "read"):
        for what, one, other in (
            ("file", _basename(gold), _basename(found)),
            ("sub-command", gold.arguments.get("command"), found.arguments.get("command")),
        ):
            if one != other:
                return f"another {what}: {other}"
        return "" if _ranges_overlap(gold.arguments, found.arguments) else "other lines"
    if kind == "search":
        return "" if _plain(gold.arguments) == _plain(found.arguments) else "another search"
    return ""


def bash_target(command: str) -> tuple[str, frozenset[str]]:
    """Return verb and basenames of paths of a shell command.

    ``cd`` to where the work is and what only runs another program (sudo, env, timeout, assignments) are skipped;
    ``python -m pytest`` has the verb pytest.

    >>> bash_target("cd /repo && python -m pytest tests/test_a.py -q")
    ('pytest', frozenset({'test_a.py'}))
    """
    part = next((p for p in re.split(r"&&|;|\n", command) if p.strip() and p.split()[0] != "cd"), command)
    try:
        words = shlex.split(part)
    except ValueError:  # an open quote
        words = part.split()
    while len(words) > 1 and (_RUNNERS.match(words[0]) or words[0].isdigit()):
        words = words[1:]
    if len(words) > 2 and re.fullmatch(r"python[\d.]*", words[0]) and words[1] == "-m":
        words = words[2:]
    verb = PurePosixPath(words[0]).name if words else ""
    paths = [match for word in words[1:] if not word.startswith("-") for match in _PATH.findall(word)]
    return verb, frozenset(PurePosixPath(path).name for path in paths)


def linear_credit(alike: float, gold_length: int, found_length: int) -> float:
    """0 below 0.4, 0.5 + 0.5·(s - 0.4)/0.4 up to 0.8, then 1; times 1 - 0.1·min(1, |Δlength|/length)."""
    if alike < LINEAR_FROM:
        return 0.0
    credit = min(1.0, 0.5 + 0.5 * (alike - LINEAR_FROM) / (BINARY_FROM - LINEAR_FROM))
    return credit * (1.0 - SIZE_PENALTY * min(1.0, abs(found_length - gold_length) / max(gold_length, 1)))


def old_text(arguments: Mapping[str, Any]) -> str:
    """Return the text that an edit replaces."""
    return str(arguments.get("old_str", arguments.get("old_string", "")))


def new_text(arguments: Mapping[str, Any]) -> str:
    """Return the text that an edit writes."""
    names = ("new_str", "new_string", "file_text", "content", "patch", "input")
    return str(next((arguments[name] for name in names if name in arguments), ""))


def _alike(one: str, other: str) -> float:
    return Indel.normalized_similarity(one, other)


def _command(call: ToolCall) -> str:
    value = next((call.arguments[name] for name in ("command", "cmd", "script") if name in call.arguments), "")
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _basename(call: ToolCall) -> str:
    path = next((call.arguments[name] for name in PATH_ARGUMENTS if name in call.arguments), "")
    return PurePosixPath(str(path)).name


def _ranges_overlap(gold: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Whether two views show a common line; a view without a range shows the whole file."""
    (low, high), (first, last) = _range(gold), _range(found)
    return low <= last and first <= high


def _range(arguments: Mapping[str, Any]) -> tuple[float, float]:
    value = arguments.get("view_range")
    if not isinstance(value, list) or len(value) != 2 or not all(type(v) in (int, float) for v in value):
        return 1, float("inf")
    return value[0], float("inf") if value[1] == -1 else value[1]


def _plain(arguments: Mapping[str, Any]) -> dict[str, str]:
    return {name: " ".join(str(value).split()) for name, value in arguments.items()}
