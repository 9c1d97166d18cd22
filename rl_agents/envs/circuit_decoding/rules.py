"""The rules of CircuitDecoding, as pure functions over truth tables.

A circuit has three binary inputs x0, x1, x2 and one output. It is built as in the puzzles that T3 adapts: an AND or OR
gate joins two signals into one until a single signal is left, and a NOT gate may stand before any gate's input. Every
input is used exactly once, so no circuit is constant. That makes 192 circuits, which compute 64 different functions.

Source: T3, appendix C.1 (CircuitDecoding), after the Multi-Turn Puzzles of Badola et al. (arXiv 2508.10142).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from functools import cache

NUM_INPUTS = 3
INPUTS: tuple[str, ...] = tuple(f"{row:0{NUM_INPUTS}b}" for row in range(2**NUM_INPUTS))
"""All inputs ``x0x1x2``, ascending: ``000`` to ``111``."""

LABELS = "ABCDEFGH"
"""Names of the hidden circuits."""

Query = tuple[int, str, int]
"""Which hidden circuit was asked, with which input, and its output."""


def _gate(operation: str, left: bool, right: bool) -> bool:
    return left and right if operation == "AND" else left or right


def _negated(text: str, negate: bool) -> str:
    return f"(NOT {text})" if negate else text


@cache
def functions() -> dict[str, tuple[str, ...]]:
    """Return every computable function: truth table to the circuits that compute it, both ascending.

    A truth table lists the outputs for `INPUTS`, such as ``00010111``. A circuit is written as an expression, such as
    ``((NOT x0) AND x2) OR x1``.
    """
    circuits: dict[str, set[str]] = {}
    signs = itertools.product((False, True), repeat=4)
    for outer, inner, alone, (n0, n1, n2, n3) in itertools.product(("AND", "OR"), ("AND", "OR"), range(3), signs):
        i, j = (k for k in range(NUM_INPUTS) if k != alone)
        pair = f"({_negated(f'x{i}', n0)} {inner} {_negated(f'x{j}', n1)})"
        expression = f"{_negated(pair, n3)} {outer} {_negated(f'x{alone}', n2)}"
        table = ""
        for bits in itertools.product((False, True), repeat=NUM_INPUTS):
            joined = _gate(inner, bits[i] != n0, bits[j] != n1) != n3
            table += str(int(_gate(outer, joined, bits[alone] != n2)))
        circuits.setdefault(table, set()).add(expression)
    return {table: tuple(sorted(circuits[table])) for table in sorted(circuits)}


def output(table: str, bits: str) -> int:
    """Return what a circuit with truth table ``table`` puts out for the input ``bits``.

    >>> output("00010111", "011")
    1
    """
    return int(table[int(bits, 2)])


def consistent(tables: Sequence[str], candidates: Iterable[int], bits: str, value: int) -> tuple[int, ...]:
    """Keep the candidates (positions in ``tables``) that would have put out ``value`` for ``bits``."""
    return tuple(c for c in candidates if output(tables[c], bits) == value)


def survivors(tables: Sequence[str], circuits: int, history: Sequence[Query]) -> tuple[tuple[int, ...], ...]:
    """Return the oracle's hypothesis sets: for every hidden circuit the candidates that agree with all outputs.

    >>> survivors(["00010111", "00000001", "01111111"], 2, [(0, "011", 1), (0, "001", 0)])
    ((0,), (0, 1, 2))
    """
    remaining: list[tuple[int, ...]] = [tuple(range(len(tables)))] * circuits
    for circuit, bits, value in history:
        remaining[circuit] = consistent(tables, remaining[circuit], bits, value)
    return tuple(remaining)


def total(sets: Sequence[Sequence[int]]) -> int:
    """Return the size of the hypothesis space as T3 counts it: surviving candidates, summed over the circuits."""
    return sum(len(candidates) for candidates in sets)


def progresses(before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> bool:
    """T3's rule for CircuitDecoding: the query removed a candidate, |H_t| - |H_t+1| > 0."""
    return total(after) < total(before)


def best_input(tables: Sequence[str], candidates: Sequence[int]) -> str:
    """Return the input whose outputs split ``candidates`` most evenly; the lowest of several."""
    return min(INPUTS, key=lambda bits: abs(2 * sum(output(tables[c], bits) for c in candidates) - len(candidates)))


def best_query(tables: Sequence[str], sets: Sequence[Sequence[int]]) -> tuple[int, str]:
    """Return the circuit and input that are sure to remove the most candidates; the first of several."""

    def surely_removed(query: tuple[int, str]) -> int:
        circuit, bits = query
        ones = sum(output(tables[c], bits) for c in sets[circuit])
        return min(ones, len(sets[circuit]) - ones)

    return max(itertools.product(range(len(sets)), INPUTS), key=surely_removed)
