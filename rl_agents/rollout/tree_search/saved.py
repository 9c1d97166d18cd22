"""Searches as plain data, so that a run can stop in the middle of them and continue.

Snapshots of environments are not saved. After a resume a state is reached by replaying its actions. Of a tree, the
states that may still be expanded are saved, with the paths to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rl_agents.data.trajectory import Step, plain
from rl_agents.rollout.env_calls import EnvReply
from rl_agents.rollout.tree_search.explorer import Explorer
from rl_agents.rollout.tree_search.tree import Node, Search

#: Fields of a `Search` that are written as they are.
PLAIN = ("number", "task_id", "seed", "finished", "ends", "expansions", "opened")


def explorer_to_json(explorer: Explorer) -> dict[str, Any]:
    return {
        "position": explorer.position,
        "requests": explorer.requests,
        "overdraft": explorer.overdraft,
        "statistics": {"iteration": explorer.iteration, **explorer.states.to_json()},
        "searches": [_search_to_json(search) for search in explorer.searches],
    }


def load_explorer(explorer: Explorer, data: Mapping[str, Any]) -> None:
    """Restore a saved explorer into one of the same settings and tasks."""
    explorer.position, explorer.requests = int(data["position"]), int(data["requests"])
    explorer.overdraft = int(data["overdraft"])
    explorer.iteration = int(data["statistics"]["iteration"])
    explorer.states.load_json(data["statistics"])
    explorer.searches = [_search_from_json(search) for search in data["searches"]]


def _search_to_json(search: Search) -> dict[str, Any]:
    ends = [*([search.current] if search.current else []), *search.frontier]
    nodes = list(dict.fromkeys(node for end in ends for node in end.path()))
    number = {id(node): index for index, node in enumerate(nodes)}
    return {
        **{name: getattr(search, name) for name in PLAIN},
        "nodes": [_node_to_json(node, number) for node in nodes],
        "current": number[id(search.current)] if search.current else None,
        "frontier": [number[id(node)] for node in search.frontier],
    }


def _search_from_json(data: Mapping[str, Any]) -> Search:
    nodes: list[Node] = []
    for node in data["nodes"]:
        nodes.append(_node_from_json(node, nodes))
    return Search(
        **{name: data[name] for name in PLAIN},
        current=None if data["current"] is None else nodes[data["current"]],
        frontier=[nodes[index] for index in data["frontier"]],
    )


def _node_to_json(node: Node, number: Mapping[int, int]) -> dict[str, Any]:
    return {
        "parent": None if node.parent is None else number[id(node.parent)],
        "step": None if node.step is None else plain(node.step),
        "answer": plain(node.answer),
        "key": node.key,
        "score": node.score,
        "rollouts": node.rollouts,
    }


def _node_from_json(data: Mapping[str, Any], earlier: Sequence[Node]) -> Node:
    answer = EnvReply(**data["answer"])
    if data["parent"] is None:
        node = Node.start(answer, data["key"])
    else:
        node = earlier[data["parent"]].after(Step.from_json(data["step"]), answer, data["key"])
    node.score, node.rollouts = data["score"], data["rollouts"]
    return node
