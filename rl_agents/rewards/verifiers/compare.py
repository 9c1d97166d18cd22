"""Comparing tool calls: values recursively, calls of one turn as an unordered matching."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

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
    """Return the size of a maximum matching between two lists, whatever their order (augmenting paths)."""
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
