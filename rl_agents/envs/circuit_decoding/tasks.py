"""The tasks of CircuitDecoding, such as ``2-10/test/0007``: circuits, candidates, split, number.

A task is a pure function of its id (sha256). A circuit has three binary inputs. As in the puzzles that T3 adapts, AND
and OR gates join two signals into one until one is left, and a NOT gate may precede any gate's input. Every input is
used exactly once, so no circuit is constant. There are 192 such circuits, which compute 64 different functions.

Sources: T3, appendix C.1, tables 2 and 5 (rules, sizes and settings; its tasks are not published), after the Multi-Turn
Puzzles of Badola et al. (arXiv 2508.10142).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from rl_agents.config.options import read_options
from rl_agents.envs.circuit_decoding import CircuitDecodingOptions, SizeKeys
from rl_agents.envs.task_sets import drawn_ids, numbered_ids, shuffled_ids, unknown_task

NUM_INPUTS = 3
INPUTS: tuple[str, ...] = tuple(f"{row:0{NUM_INPUTS}b}" for row in range(2**NUM_INPUTS))
"""All inputs ``x0x1x2``, ascending: ``000`` to ``111``."""

LABELS = "ABCDEFGH"
"""Names of the hidden circuits."""


def _gate(operation: str, left: bool, right: bool) -> bool:
    return left and right if operation == "AND" else left or right


def _negated(text: str, negate: bool) -> str:
    return f"(NOT {text})" if negate else text


@cache
def functions() -> dict[str, tuple[str, ...]]:
    """Return all functions: truth table -> the circuits that compute it, both ascending.

    A truth table lists the outputs for `INPUTS`, such as ``00010111``. A circuit is an expression, such as ``((NOT x0)
    AND x2) OR x1``.
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
    """Return the output of a circuit with truth table ``table`` for the input ``bits``.

    >>> output("00010111", "011")
    1
    """
    return int(table[int(bits, 2)])


def consistent(tables: Sequence[str], candidates: Iterable[int], bits: str, value: int) -> tuple[int, ...]:
    """Keep the candidates (positions in ``tables``) with the output ``value`` for ``bits``."""
    return tuple(c for c in candidates if output(tables[c], bits) == value)


def total(sets: Sequence[Sequence[int]]) -> int:
    """Return T3's size of the hypothesis space: the surviving candidates, summed over the circuits."""
    return sum(len(candidates) for candidates in sets)


def progresses(before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> bool:
    """T3's rule for CircuitDecoding: the query removed a candidate, |H_t| - |H_t+1| > 0."""
    return total(after) < total(before)


def best_input(tables: Sequence[str], candidates: Sequence[int]) -> str:
    """Return the lowest input whose outputs split ``candidates`` most evenly."""
    return min(INPUTS, key=lambda bits: abs(2 * sum(output(tables[c], bits) for c in candidates) - len(candidates)))


SEED = "circuit_decoding-2025"
SIZES = {"train": 1000, "test": 300}
_TASK_ID = re.compile(r"(\d{1,2})-(\d{1,2})/(train|test)/(\d{4})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Task:
    """One instance.

    Attributes:
        tables: truth tables of the candidates, all different.
        expressions: the candidates as expressions.
        hidden: positions of the hidden circuits in the candidate list, in the order of their labels.
    """

    task_id: str
    tables: tuple[str, ...]
    expressions: tuple[str, ...]
    hidden: tuple[int, ...]

    @property
    def labels(self) -> str:
        """Labels of the hidden circuits, such as ``AB``."""
        return LABELS[: len(self.hidden)]

    @property
    def content(self) -> tuple[frozenset[str], tuple[str, ...]]:
        """The candidates in any order, and the hidden circuits."""
        return frozenset(self.tables), tuple(self.tables[position] for position in self.hidden)


def task_ids(split: str, options: CircuitDecodingOptions) -> list[str]:
    different = math.comb(len(functions()), options.candidates) * math.perm(options.candidates, options.circuits)
    return drawn_ids(options.size, split, SIZES, different, lambda name: find_task(name).content)


@lru_cache(maxsize=4096)
def find_task(task_id: str) -> Task:
    match = _TASK_ID.fullmatch(task_id)
    if match is None or int(match[4]) >= SIZES[match[3]]:
        near, form = numbered_ids(SizeKeys().size, "test", SIZES), "<circuits>-<candidates>/<split>/<number>"
        raise unknown_task("circuit_decoding", task_id, near, form)
    given = {"circuits": int(match[1]), "candidates": int(match[2])}
    setting = read_options(SizeKeys, given, prefix="env.", chosen=())
    seed = f"{SEED}/{setting.size}/{match[3]}/{match[4]}"
    tables = tuple(shuffled_ids(functions(), seed)[: setting.candidates])
    expressions = tuple(shuffled_ids(functions()[table], seed)[0] for table in tables)
    hidden = shuffled_ids(tables, f"{seed}/hidden")[: setting.circuits]
    return Task(task_id, tables, expressions, tuple(tables.index(table) for table in hidden))
