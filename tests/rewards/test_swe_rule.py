"""The SWE verifier against the published rule: what NeMo-Gym's ``swe_pivot`` gives, case by case (August 2026)."""

from __future__ import annotations

from typing import Any

import pytest

from rl_agents.chat.messages import assistant_message
from rl_agents.rewards.verifiers import VerifierOptions, assess, make_verifier
from rl_agents.rewards.verifiers.swe import category, command_paths, linear_credit
from rl_agents.tools.calls import ToolCall, write_response
from rl_agents.traces.turns import Turn

Call = tuple[str, dict[str, Any]]


def score(gold: Call, found: Call, **options: Any) -> float:
    action = assistant_message("", [ToolCall(*gold)], ["0"])
    turn = Turn("00", "t", 0, "f:1", ({"role": "user", "content": "please"},), (), action, "")
    verifier = make_verifier(VerifierOptions(verifier="swe_target", **options))
    return assess(verifier, turn, write_response("", [ToolCall(*found)])).score


def bash(command: str, name: str = "execute_bash") -> Call:
    return name, {"command": command}


def view(path: str = "/w/a/foo.py", lines: Any = None, name: str = "str_replace_editor") -> Call:
    return name, {"command": "view", "path": path, **({} if lines is None else {"view_range": lines})}


def edit(old: str, new: str, path: str = "/w/a/foo.py", name: str = "str_replace_editor") -> Call:
    return name, {"command": "str_replace", "path": path, "old_str": old, "new_str": new}


GREP, TEST = bash("grep -rn 'def total' src/a.py"), bash("python -m pytest tests/test_a.py -q")
FIX = edit("return None", "return sum(values)")


@pytest.mark.parametrize(
    ("gold", "found", "expected"),
    [
        # commands: the first word, a path in common, similarity of at least 0.8
        (GREP, GREP, 1.0),
        (GREP, bash("grep -rn 'def totals' src/a.py"), 1.0),
        (GREP, bash("grep -rn 'class Invoice' src/a.py"), 0.0),
        (GREP, bash("grep -rn 'def total' src/b.py"), 0.0),
        (GREP, bash("cd src && grep -rn 'def total' src/a.py"), 0.0),
        (TEST, bash("pytest tests/test_a.py -q"), 0.0),
        (TEST, bash("python -m pytest tests/test_a.py"), 1.0),
        (TEST, bash("python -m pytest tests/test_a.py -q --maxfail=1 --durations=20 -p no:cacheprovider"), 0.0),
        (TEST, bash("python -m pytest tests/test_b.py -q"), 0.0),
        (TEST, bash("sudo python -m pytest tests/test_a.py -q"), 0.0),
        (bash("cat /w/one/two/three/x.py"), bash("cat /v/one/two/three/x.py"), 1.0),
        (bash("cat /w/one/x.py"), bash("cat /w/two/x.py"), 0.0),
        (bash("ls"), bash("ls", "terminal"), 1.0),
        (bash("ls"), ("shell", {"cmd": "ls"}), 1.0),
        (bash("cd /w/one/two/three"), bash("cd /a"), 0.0),
        (bash("ls"), ("execute_bash", {}), 1.0),
        # views: the last two components of the path, 0.8 of the demonstrated lines
        (view(), view("/elsewhere/a/foo.py"), 1.0),
        (view(), view("/w/b/foo.py"), 0.0),
        (view(), view("foo.py"), 0.0),
        (view(lines=[40, 80]), view(lines=[40, 72]), 1.0),
        (view(lines=[40, 80]), view(lines=[49, 80]), 0.0),
        (view(lines=[40, 80]), view(lines=[1, 200]), 1.0),
        (view(lines=[40, 80]), view(), 1.0),
        (view(), view(lines=[1, 2]), 1.0),
        (view(lines=[40, 80]), view(lines=[40, -1]), 0.0),
        (view(lines="[40, 80]"), view(lines=[40, 80]), 1.0),
        (view(), edit("x", "y"), 0.0),
        (view(), ("str_replace_editor", {"command": "create", "path": "/w/a/foo.py", "file_text": "x"}), 0.0),
        # edits: old and new text at least 0.8 alike each, or the whole text
        (FIX, edit("return None", "return sum(value)"), 1.0),
        (FIX, edit("return None", "pass"), 0.0),
        (FIX, edit("if x:", "return sum(values)"), 0.0),
        (FIX, edit("return None", "return sum(values)", "/v/a/foo.py"), 1.0),
        (FIX, edit("return None", "return sum(values)", "/w/b/foo.py"), 0.0),
        (FIX, edit("return None", "return sum(values)", name="text_editor"), 1.0),
        (FIX, edit("return None", "return sum(values)", name="file_editor"), 1.0),
        (FIX, edit("return None", "return sum(values)", name="TextEditor"), 1.0),
        (FIX, edit("return None", "return sum(values)", name="my_editor"), 0.0),
        (("write_file", {"file": "a/x", "content": "one two three"}),
         ("write", {"path": "a/x", "file_text": "one two three"}), 1.0),
        (("write_file", {"file": "a/x", "content": "one two three"}),
         ("write", {"path": "a/x", "content": "four"}), 0.0),
        (("apply_patch", {"patch": "+ one line"}), ("apply_patch", {"patch": "- another thing"}), 0.0),
        # search and read: the last three components, and no argument besides
        (("grep", {"pattern": "total", "path": "/w/src"}), ("grep", {"pattern": "price", "path": "/w/src"}), 1.0),
        (("grep", {"pattern": "total", "path": "/w/src"}),
         ("search_files", {"pattern": "total", "path": "/w/lib"}), 0.0),
        (("read", {"path": "/a/b/c/d.py"}), ("read_file", {"file_path": "/z/b/c/d.py"}), 1.0),
        (("read", {"path": "/a/b/c/d.py"}), ("read_file", {"file_path": "/a/z/c/d.py"}), 0.0),
        (("read", {"path": "/a/b.py"}), ("grep", {"path": "/a/b.py"}), 0.0),
        # others: the tool
        (("think", {"thought": "a"}), ("think", {"thought": "b"}), 1.0),
        (("finish", {"message": "done"}), ("submit", {}), 1.0),
        (("task_tracker", {"x": 1}), ("update_plan", {}), 1.0),
        (("browse", {"url": "a"}), ("browse", {"url": "b"}), 1.0),
        (("browse", {"url": "a"}), ("fetch", {"url": "a"}), 0.0),
        (("browse", {"url": "a"}), ("Browse", {"url": "a"}), 1.0),
    ],
)  # fmt: skip
def test_the_published_rule(gold: Call, found: Call, expected: float) -> None:
    assert score(gold, found) == expected


@pytest.mark.parametrize("gold", [view(lines=[81, 81]), view(lines=[40, -1])])
def test_a_demonstration_passes_where_the_published_rule_refuses_it(gold: Call) -> None:
    assert score(gold, gold) == 1.0


@pytest.mark.parametrize(("old", "new"), [("old_string", "new_string"), ("none", "input")])
def test_edits_that_the_published_rule_cannot_read_are_compared(old: str, new: str) -> None:
    gold = ("edit", {"file_path": "a/x.py", old: "return None", new: "return sum(values)"})
    far = ("edit", {"file_path": "a/x.py", old: "return None", new: "pass"})
    assert score(gold, gold) == 1.0 and score(gold, far) == 0.0


def test_only_the_first_call_counts() -> None:
    action = assistant_message("", [ToolCall(*GREP)], ["0"])
    turn = Turn("00", "t", 0, "f:1", ({"role": "user", "content": "please"},), (), action, "")
    shotgun = write_response("", [ToolCall(*TEST), ToolCall(*GREP)])
    assert assess(make_verifier(VerifierOptions(verifier="swe_target")), turn, shotgun).score == 0.0


def test_linear_credit() -> None:
    near = score(FIX, edit("return None", "return sum(value)"), edit_credit="linear")
    assert near == pytest.approx(1 - 0.1 / 30)  # one of 30 characters of old and new text is missing
    assert linear_credit(0.39, 10, 10) == 0.0
    assert linear_credit(0.4, 10, 10) == pytest.approx(0.5)
    assert linear_credit(0.6, 10, 10) == pytest.approx(0.75)
    assert linear_credit(0.8, 10, 10) == 1.0
    assert linear_credit(1.0, 10, 15) == pytest.approx(0.95)
    assert linear_credit(1.0, 10, 40) == pytest.approx(0.9)


def test_kinds_and_paths() -> None:
    assert category("ReadFile") == "read" and category("STR_REPLACE_EDITOR") == "edit" and category("browse") == ""
    assert command_paths("ls") == frozenset() and command_paths("cat 'a/b.py'") == {"a/b.py"}
