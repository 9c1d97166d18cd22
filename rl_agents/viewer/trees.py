"""The trees of a search, reconstructed from the pool: sampled actions, scores and outcomes.

A state is named by the call that led to it (0: the start). Its children are the calls that were sampled there: those of
samples (siblings that the learner compares) and of episodes (finished paths). The facts of both contain the scores
S(s); the score of a state without samples is known once a path through it has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_agents.store.reader import TAKEN_BACK, PoolReader, Stored, StoreQuery, marks, parts
from rl_agents.store.schema import load_text
from rl_agents.viewer.query_params import Params
from rl_agents.viewer.step_values import excerpt, worth_of
from rl_agents.web.errors import ApiError

#: Most searches in the list, characters of an action or an observation, and rows after the last known call that are
#: searched for open calls.
LISTED, TEXT, AFTER = 300, 400, 20_000
#: Parents without a call: of the start and of unresolved nodes; of calls that are not in the pool.
UNKNOWN, LOST = -1, -2


@dataclass(slots=True)
class ReachedState:
    """A state that was reached.

    Attributes:
        parent: the call that led to the state before; 0: the start.
        order: number of the call in the pool.
        outcome: ``success``, ``failure`` (ends), or ``open``.
        score: S(s) at its expansion.
    """

    parent: int
    order: int = 0
    action: str = ""
    observation: str = ""
    reward: float | None = None
    advantage: float | None = None
    session: str = ""
    version: int | None = None
    outcome: str = "open"
    score: float | None = None
    iteration: int | None = None


def searches(params: Params) -> dict[str, Any]:
    """Return the searches of a run, newest first; a search is named by its seed."""
    query = (
        f"SELECT seed, min(task_id), min(iteration), max(iteration), {_count('sample')}, {_count('episode')}, "
        f"{_count('episode', 'AND success = 1')}, max(number) AS newest FROM sessions "
        f"WHERE kind IN ('sample', 'episode') AND NOT EXISTS ({TAKEN_BACK}) GROUP BY seed "
        f"HAVING {_count('sample')} > 0 ORDER BY newest DESC LIMIT {LISTED}"
    )
    names = ("seed", "task", "first", "last", "samples", "finished", "solved", "newest")
    with params.run.reader() as reader:
        if reader.one("SELECT 1 FROM sessions WHERE kind = 'sample' LIMIT 1") is None:
            return {"run": params.run.name, "rows": []}
        rows = [dict(zip(names, row, strict=True)) for row in reader.rows(query)]
    for row in rows:
        row.update(seed=str(row["seed"]), task=load_text(row["task"]))
    return {"run": params.run.name, "rows": rows}


def _count(kind: str, test: str = "") -> str:
    return f"sum(CASE WHEN kind = '{kind}' {test} THEN 1 ELSE 0 END)"


def tree(params: Params) -> dict[str, Any]:
    """Return a search's tree: nodes after their parents, in the order in which they were reached."""
    seed = params.whole("seed")
    with params.run.reader() as reader:
        ids = reader.rows(f"SELECT id FROM sessions WHERE seed = ? AND NOT EXISTS ({TAKEN_BACK})", seed)
        stored = list(reader.stored(StoreQuery(ids=[load_text(row[0]) for row in ids])))
        if not stored:
            raise ApiError(404, f"no search with seed {seed}", "unknown_search", "seed")
        nodes = {0: ReachedState(parent=UNKNOWN)}
        for one in stored:
            _take(reader, nodes, one)
        _adopt(reader, nodes)
        _credit(reader, nodes, [one.session.id for one in stored])
        _open_calls(reader, nodes)
    first = stored[0].session
    return {
        "run": params.run.name, "seed": str(seed), "task": first.task_id, "nodes": _listed(nodes),
        "scores": any(node.score is not None for node in nodes.values()),
        "finished": sum(one.session.kind == "episode" for one in stored),
        "solved": sum(one.session.kind == "episode" and one.session.success for one in stored),
    }  # fmt: skip


def _take(reader: PoolReader, nodes: dict[int, ReachedState], stored: Stored) -> None:
    session, sample = stored.session, stored.session.kind == "sample"
    outcomes = reader.outcomes(session.id)
    facts: Mapping[str, Any] = session.facts.get("search") or {}
    before = 0
    known = _heads(reader, [outcome.call for outcome in outcomes])
    for number, outcome in enumerate(outcomes):
        order, parent, version = known.get(outcome.call, (0, before, 0))
        before = parent if sample else before
        node = nodes.setdefault(outcome.call, ReachedState(before))
        node.order, node.version, node.action = order, version, excerpt(outcome.action, TEXT)
        origin = nodes.setdefault(before, ReachedState(UNKNOWN))
        origin.observation = origin.observation or outcome.observation[:TEXT]
        origin.score = _score(facts, number, sample) if origin.score is None else origin.score
        if sample:
            node.reward, node.session, node.iteration = outcome.reward, session.id, session.iteration
        before = outcome.call
    last = nodes[outcomes[-1].call] if outcomes else None
    if last is not None and session.end_cause != "branched":
        last.outcome = "success" if session.success else "failure"
        last.session = last.session or session.id
        last.iteration = session.iteration if last.iteration is None else last.iteration


def _score(facts: Mapping[str, Any], number: int, sample: bool) -> float | None:
    """Return S(s) of a step's state from a session's facts."""
    if sample:
        return facts.get("score")
    scores = facts.get("scores") or ()
    return scores[number] if number < len(scores) else None


def _heads(reader: PoolReader, ids: Sequence[int]) -> dict[int, tuple[int, int, int]]:
    """Return call -> (number in the pool, parent, policy version)."""
    found: dict[int, tuple[int, int, int]] = {}
    for part in parts(ids):
        query = f"SELECT id, number, parent, policy_version FROM calls WHERE id IN ({marks(part)})"
        found.update({row[0]: (row[1], row[2], row[3]) for row in reader.rows(query, *part)})
    return found


def _adopt(reader: PoolReader, nodes: dict[int, ReachedState]) -> None:
    """Resolve the ancestors of states that are only known as parents."""
    while unknown := [call for call, node in nodes.items() if node.parent == UNKNOWN and call != 0]:
        heads = _heads(reader, unknown)
        for call in unknown:
            node = nodes[call]
            node.order, node.parent, node.version = heads.get(call, (node.order, LOST, node.version))
            if node.parent != LOST:
                nodes.setdefault(node.parent, ReachedState(UNKNOWN))


def _credit(reader: PoolReader, nodes: Mapping[int, ReachedState], sessions: Sequence[str]) -> None:
    worth = worth_of(reader, sessions)
    for node in nodes.values():
        if (found := worth.get(node.session)) and 0 in found and node.reward is not None:
            node.advantage = found[0].advantage


def _open_calls(reader: PoolReader, nodes: dict[int, ReachedState]) -> None:
    """Add calls that are not yet part of a path or a sample."""
    orders = [node.order for node in nodes.values() if node.order]
    if not orders:
        return
    query = "SELECT id, number, parent, policy_version FROM calls WHERE number BETWEEN ? AND ? ORDER BY number"
    for call, order, parent, version in reader.rows(query, min(orders), max(orders) + AFTER):
        if parent and parent in nodes and call not in nodes:
            nodes[call] = ReachedState(parent, order, version=version)


def _listed(nodes: Mapping[int, ReachedState]) -> list[dict[str, Any]]:
    ordered = sorted(nodes, key=lambda call: (call != 0, nodes[call].order))
    children: dict[int, list[int]] = {}
    for call in ordered:
        if nodes[call].parent >= 0 and call != 0:
            children.setdefault(nodes[call].parent, []).append(call)
    depth, listed, waiting = {0: 1}, list[dict[str, Any]](), [0]
    expanded = sorted(
        children.keys() & nodes.keys(), key=lambda call: min(nodes[child].order for child in children[call])
    )
    ticks = {call: number for number, call in enumerate(expanded, start=1)}
    while waiting:
        call = waiting.pop(0)
        node, below = nodes[call], children.get(call, [])
        depth.update({child: depth[call] + 1 for child in below})
        waiting += below
        listed.append(
            {
                "id": str(call), "parent": None if call == 0 else str(node.parent), "depth": depth[call],
                "n": len(below), "tick": ticks.get(call), "outcome": node.outcome, "score": node.score,
                "action": node.action, "observation": node.observation, "reward": node.reward,
                "advantage": node.advantage, "session": node.session, "version": node.version,
                "iteration": node.iteration,
            }
        )  # fmt: skip
    return listed
