"""Verifiers of tool calls, by name or by name and arguments, and of commands that agents write as plain text.

Tool calls: conversational tool use and search; values are compared recursively, calls of one turn as an unordered
matching. Commands of text environments: ``search[red mug]``, ``click[ 3 ]``, ``look``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from rl_agents.rewards.verifiers.base import Verdict, demonstrated
from rl_agents.tools.calls import Response, ToolCall, check_call
from rl_agents.traces.turns import Turn

Item = TypeVar("Item")
ParallelMode = Literal["free", "strict", "fractional", "f1"]

FLOAT_TOLERANCE = 1e-6


def word_similarity(first: str, second: str) -> float:
    """Σ_w min(count_a(w), count_b(w))/(n_a + n_b): the public verifier's "Jaccard", 0.5 for identical strings.

    Words are split at whitespace and compared in lower case. If either string has fewer than two words the measure is
    exact equality (1 or 0), capitals included.
    """
    words, other = first.lower().split(), second.lower().split()
    if len(words) < 2 or len(other) < 2:
        return float(first == second)
    shared = sum((Counter(words) & Counter(other)).values())
    return shared / (len(words) + len(other))


def difference(expected: Any, actual: Any, threshold: float, path: str = "arguments") -> str:
    """Return where and how two JSON values differ; empty when they are equivalent.

    Same type (true is no number, 1 is not 1.0), same keys, equally long lists in order, floats within 1e-6, other
    scalars equal. Texts of two or more words: `word_similarity` of at least ``threshold`` (0.5
    for identical ones); shorter texts: equal.
    """
    if type(expected) is not type(actual):
        return f"{path}: {_kind(actual)} for {_kind(expected)}"
    if isinstance(expected, str):
        short = len(expected.split()) < 2 or len(actual.split()) < 2
        same = expected == actual if short else word_similarity(expected, actual) >= threshold
        return "" if same else f"{path}: another text"
    if isinstance(expected, float):
        return "" if abs(expected - actual) < FLOAT_TOLERANCE else f"{path}: {actual} for {expected}"
    if isinstance(expected, Mapping):
        return _mapping_difference(expected, actual, threshold, path)
    if isinstance(expected, list):
        if len(expected) != len(actual):
            return f"{path}: {len(actual)} items for {len(expected)}"
        pairs = enumerate(zip(expected, actual, strict=True))
        return next((found for i, (e, a) in pairs if (found := difference(e, a, threshold, f"{path}[{i}]"))), "")
    return "" if expected == actual else f"{path}: {actual!r} for {expected!r}"


def matched_pairs(expected: Sequence[Item], actual: Sequence[Item], same: Callable[[Item, Item], bool]) -> int:
    """Return the size of a maximum matching between two lists, in any order (augmenting paths)."""
    edges = [[j for j, candidate in enumerate(actual) if same(item, candidate)] for item in expected]
    taken: dict[int, int] = {}

    def augment(item: int, visited: set[int]) -> bool:
        for candidate in edges[item]:
            if candidate not in visited:
                visited.add(candidate)
                if candidate not in taken or augment(taken[candidate], visited):
                    taken[candidate] = item
                    return True
        return False

    return sum(augment(item, set()) for item in range(len(expected)))


def parallel_score(matched: int, expected: int, actual: int, mode: ParallelMode) -> float:
    """Score ``matched`` of ``expected`` calls when ``actual`` were made.

    ``free``: 1 when all are matched, surplus calls cost nothing;  ``strict``: 1 when all are matched and there is no
    surplus;  ``fractional``: matched/expected;  ``f1``: 2·matched/(expected + actual).
    """
    if mode == "fractional":
        return matched / expected
    if mode == "f1":
        return 2 * matched / (expected + actual)
    return float(matched == expected and (mode == "free" or actual == expected))


def _mapping_difference(expected: Mapping[str, Any], actual: Mapping[str, Any], threshold: float, path: str) -> str:
    if missing := sorted(set(expected) - set(actual)):
        return f"{path}: '{missing[0]}' is missing"
    if surplus := sorted(set(actual) - set(expected)):
        return f"{path}: surplus '{surplus[0]}'"
    return next(
        (f for name in expected if (f := difference(expected[name], actual[name], threshold, f"{path}.{name}"))), ""
    )


def _kind(value: Any) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text", dict: "an object"}
    return "null" if value is None else names.get(type(value), "a list")


@dataclass(frozen=True, slots=True)
class ToolNameVerifier:
    """The same tools are called, with any arguments; a message where the expert wrote one.

    The paper's SWE verifier (appendix A.2): deliberately coarse.
    """

    parallel: ParallelMode = "strict"

    def score(self, turn: Turn, response: Response) -> Verdict:
        if verdict := message_verdict(turn, response):
            return verdict
        matched = matched_pairs(turn.calls, response.calls, lambda e, a: e.name == a.name)
        score = parallel_score(matched, len(turn.calls), len(response.calls), self.parallel)
        return Verdict(score, f"{matched} of {len(turn.calls)} tools called")


@dataclass(frozen=True, slots=True)
class ToolCallVerifier:
    """The same tools with equivalent arguments; a message where the expert wrote one, with any text.

    A call that its tool's JSON schema refuses scores 0. Demonstrations that break their own schema show that the tool
    takes such calls, so theirs are not held to it.

    Attributes:
        threshold: see `rl_agents.rewards.verifiers.tool_calls.difference`. Public configurations: 0.1 conversational
            tool use, 0.3 search, 0.0 SWE.
    """

    threshold: float = 0.1
    parallel: ParallelMode = "strict"

    def score(self, turn: Turn, response: Response) -> Verdict:
        if verdict := message_verdict(turn, response):
            return verdict
        matched = matched_pairs(turn.calls, response.calls, lambda e, a: not self._problem(turn, e, a))
        score = parallel_score(matched, len(turn.calls), len(response.calls), self.parallel)
        if score == 1.0:
            return Verdict(1.0, "all calls match")
        problems = [self._problem(turn, expected, actual) for expected in turn.calls for actual in response.calls]
        return Verdict(score, next(filter(None, problems), "calls are missing"))

    def _problem(self, turn: Turn, expected: ToolCall, actual: ToolCall) -> str:
        if expected.name != actual.name:
            return f"{actual.name} for {expected.name}"
        if found := difference(dict(expected.arguments), dict(actual.arguments), self.threshold):
            return found
        return check_call(actual, turn.tools) if turn.tools and not check_call(expected, turn.tools) else ""


def message_verdict(turn: Turn, response: Response) -> Verdict | None:
    """Decide where one of both is a message: two messages are 1, a message for a call or a call for a message is 0."""
    if turn.calls and response.calls:
        return None
    if turn.calls:
        return Verdict(0.0, "a message where a call was expected")
    if response.calls:
        return Verdict(0.0, "a call where a message was expected")
    return Verdict(1.0, "a message as expected")


_TAGGED = re.compile(r"<action>(.*?)</action>", re.DOTALL)
_BRACKETS = re.compile(r"(\w+)\s*\[(.*)\]", re.DOTALL)
#: Commands whose argument is the agent's own words. All others name a thing, and another name is another thing.
FREE_TEXT = frozenset({"search"})


@dataclass(frozen=True, slots=True)
class TextAction:
    """A command and its argument, in lower case with single blanks; ``text`` is empty where there are no brackets."""

    name: str
    text: str = ""


def read_text_action(content: str) -> TextAction:
    """Read the text inside the one ``<action>`` tag, or the whole text where there is none, or more than one.

    >>> read_text_action("<action>search[Red  mug]</action>")
    TextAction(name='search', text='red mug')
    """
    tagged = _TAGGED.findall(content)
    words = " ".join((tagged[0] if len(tagged) == 1 else content).lower().split())
    match = _BRACKETS.fullmatch(words)
    return TextAction(match[1], match[2].strip()) if match else TextAction(words)


@dataclass(frozen=True, slots=True)
class TextActionVerifier:
    """The same command, case and blanks aside; the words of a search need only be similar.

    Tool calls are compared as `ToolCallVerifier` does.

    Attributes:
        threshold: word similarity from which two searches count as equivalent, as for the paper's search steps
            (`rl_agents.rewards.verifiers.tool_calls.difference`).
    """

    threshold: float = 0.3

    def score(self, turn: Turn, response: Response) -> Verdict:
        if turn.calls or response.calls:
            return ToolCallVerifier(self.threshold).score(turn, response)
        expected, actual = read_text_action(demonstrated(turn).content), read_text_action(response.content)
        if expected.name == actual.name and expected.name in FREE_TEXT:
            found = difference(expected.text, actual.text, self.threshold, expected.name)
            return Verdict(float(not found), found or "an equivalent search")
        same = expected == actual
        return Verdict(float(same), "the same command" if same else "another command")
