"""Verifiers of tool calls, of messages that a judge compares, and of commands of text environments.

Tool calls (conversational tool use, search): values are compared recursively, and the calls of one turn are matched in
any order. Commands of text environments: ``search[red mug]``, ``click[ 3 ]``, ``look``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from rl_agents.rewards.verifiers.base import EquivalenceJudge, Scored, Verdict, demonstrated
from rl_agents.tools.calls import Response, ToolCall, check_call
from rl_agents.tools.strict_json import json_type
from rl_agents.traces.turns import Turn

Item = TypeVar("Item")
ParallelMode = Literal["free", "strict"]

FLOAT_TOLERANCE = 1e-6


def word_similarity(first: str, second: str) -> float:
    """Σ_w min(count_a(w), count_b(w))/(n_a + n_b): the public verifier's "Jaccard", 0.5 for identical strings.

    Words are split at white space and compared in lower case. If either string has fewer than two words, the measure
    is exact equality (1 or 0), with capitals.
    """
    words, other = first.lower().split(), second.lower().split()
    if len(words) < 2 or len(other) < 2:
        return float(first == second)
    shared = sum((Counter(words) & Counter(other)).values())
    return shared / (len(words) + len(other))


def difference(expected: Any, actual: Any, threshold: float, path: str = "arguments") -> str:
    """Return where and how two JSON values differ; empty when they are equivalent.

    Equivalent values have the same type (true is not a number, 1 is not 1.0), the same keys, and lists of equal length
    in the same order. Floats are within 1e-6, and other scalars are equal. Texts of two or more words have a
    `word_similarity` of at least ``threshold`` (identical ones have 0.5), and shorter texts are equal.
    """
    if json_type(expected) is not json_type(actual):
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
    return "null" if value is None else names.get(json_type(value), "a list")


@dataclass(frozen=True, slots=True)
class ToolNameVerifier:
    """The same tools are called, with any arguments; a message where the expert wrote one.

    The paper's SWE verifier (appendix A.2), deliberately coarse.

    Attributes:
        parallel: ``strict`` accepts no surplus calls in a turn, ``free`` accepts any number.
    """

    parallel: ParallelMode = "strict"

    def score(self, turn: Turn, response: Response) -> Verdict:
        if verdict := message_verdict(turn, response):
            return verdict
        matched = matched_pairs(turn.calls, response.calls, lambda e, a: e.name == a.name)
        reason = f"{matched} of {len(turn.calls)} tools called"
        return Verdict(_all_matched(matched, turn, response, self.parallel), reason)


@dataclass(frozen=True, slots=True)
class ToolCallVerifier:
    """The same tools with equivalent arguments; a message with any text where the expert wrote one.

    A call that its tool's JSON schema rejects scores 0. If the demonstration breaks the schema, the tool accepts such
    calls, and the schema is not checked.

    Attributes:
        threshold: see `difference`. Public configurations: 0.1 conversational tool use, 0.3 search, 0.0 SWE.
        parallel: see `ToolNameVerifier`.
    """

    threshold: float = 0.1
    parallel: ParallelMode = "strict"

    def score(self, turn: Turn, response: Response) -> Verdict:
        if verdict := message_verdict(turn, response):
            return verdict
        matched = matched_pairs(turn.calls, response.calls, lambda e, a: not self._problem(turn, e, a))
        if _all_matched(matched, turn, response, self.parallel):
            return Verdict(1.0, "all calls match")
        problems = [self._problem(turn, expected, actual) for expected in turn.calls for actual in response.calls]
        return Verdict(0.0, next(filter(None, problems), "calls are missing"))

    def _problem(self, turn: Turn, expected: ToolCall, actual: ToolCall) -> str:
        if expected.name != actual.name:
            return f"{actual.name} for {expected.name}"
        if found := difference(dict(expected.arguments), dict(actual.arguments), self.threshold):
            return found
        return check_call(actual, turn.tools) if turn.tools and not check_call(expected, turn.tools) else ""


def _all_matched(matched: int, turn: Turn, response: Response, mode: ParallelMode) -> float:
    surplus = mode == "strict" and len(response.calls) > len(turn.calls)
    return float(matched == len(turn.calls) and not surplus)


def message_verdict(turn: Turn, response: Response) -> Verdict | None:
    """Decide if one of both is a message: two messages are 1, and a message and a call are 0."""
    if turn.calls and response.calls:
        return None
    if turn.calls:
        return Verdict(0.0, "a message where a call was expected")
    if response.calls:
        return Verdict(0.0, "a call where a message was expected")
    return Verdict(1.0, "a message as expected")


MESSAGE_PROMPT = """\
Two assistants continue the same dialogue. Decide whether their messages do the same for the user: the same decision, \
the same request or question, the same facts. Wording, order and politeness do not matter.

[End of the dialogue]
{state}

[Message A]
{first}

[Message B]
{second}

Does message B do the same as message A? Reply with one word, yes or no."""


@dataclass(frozen=True)
class DialogueVerifier:
    """Calls by name and arguments, messages by a judge. An equal message needs no judge."""

    calls: ToolCallVerifier
    judge: EquivalenceJudge

    def score(self, turn: Turn, response: Response) -> Scored:
        verdict = message_verdict(turn, response)
        if verdict is None:
            return self.calls.score(turn, response)
        expected = demonstrated(turn).content
        if verdict.score == 0.0 or response.content.split() == expected.split():
            return verdict
        return self.judge.equivalent(MESSAGE_PROMPT, turn, response.content, expected)


_TAGGED = re.compile(r"<action>(.*?)</action>", re.DOTALL)
_BRACKETS = re.compile(r"(\w+)\s*\[(.*)\]", re.DOTALL)
#: Command whose argument is in the agent's own words. The arguments of all others name a thing.
SEARCH = "search"


def read_text_action(content: str) -> tuple[str, str]:
    """Return a command and its argument, in lower case with single blanks. The argument may be empty.

    Read is the text inside the one ``<action>`` tag, or the whole text if there is no such tag, or more than one.

    >>> read_text_action("<action>search[Red  mug]</action>")
    ('search', 'red mug')
    """
    tagged = _TAGGED.findall(content)
    words = " ".join((tagged[0] if len(tagged) == 1 else content).lower().split())
    match = _BRACKETS.fullmatch(words)
    return (match[1], match[2].strip()) if match else (words, "")


@dataclass(frozen=True, slots=True)
class TextActionVerifier:
    """The same command, ignoring case and blanks. The words of a search only have to be similar.

    Tool calls are compared as in `ToolCallVerifier`.

    Attributes:
        threshold: word similarity from which two searches are equivalent, as for the paper's search steps
            (`difference`).
    """

    threshold: float = 0.3

    def score(self, turn: Turn, response: Response) -> Verdict:
        if turn.calls or response.calls:
            return ToolCallVerifier(self.threshold).score(turn, response)
        expected, actual = read_text_action(demonstrated(turn).content), read_text_action(response.content)
        if expected[0] == actual[0] == SEARCH:
            found = difference(expected[1], actual[1], self.threshold, SEARCH)
            return Verdict(float(not found), found or "an equivalent search")
        same = expected == actual
        return Verdict(float(same), "the same command" if same else "another command")
