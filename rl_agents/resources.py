"""The resources of a run as placement group bundles, and whether a cluster can ever hold them.

A Tune trial starts its own actors. If their resources were not part of the trial's placement group, started trials
could take the CPUs that the actors of others wait for, and all would wait forever (ray issue 25239). So a trial
requests all of its resources at once and is queued until they are free.

Bundles, in the order in which actors are pinned:

    0                     driver of the run (and its learner, when num_learners=0)
    1 .. R                env runners; RLlib pins runner i to bundle i
    R+1 .. R+L            learners; RLlib gives them no index, so they take the remaining ones
    R+L+1 .. R+L+E        engines, see `first_engine_bundle`
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rl_agents.config import Settings
from rl_agents.inference.base import EngineSettings

if TYPE_CHECKING:
    from ray.tune import PlacementGroupFactory

Bundle = dict[str, float]

DRIVER, LEARNER = "driver", "learner"
DRIVER_CPUS = 1.0
#: CPUs that `AgentConfig` requests: several small actors share a core.
RUNNER_CPUS = LEARNER_CPUS = 0.5
#: Amount of the resource that marks nodes (``rollout_nodes``, ``learner_nodes``) per actor, so small that all fit.
NODE_SHARE = 0.0001
#: Resources that Ray sets on every node, besides those with a colon.
BUILTIN_RESOURCES = ("memory", "object_store_memory")


def run_bundles(settings: Settings) -> list[Bundle]:
    """Return the bundles of a run; the first holds its driver."""
    return [bundle for _, bundle in named_bundles(settings)]


def named_bundles(settings: Settings) -> list[tuple[str, Bundle]]:
    """Return (owner, bundle) for every process of a run that Tune starts."""
    gpus = settings.gpus_per_learner
    rollouts, learning = node_share(settings.rollout_nodes), node_share(settings.learner_nodes)
    learner = _bundle(0 if gpus else LEARNER_CPUS, gpus) | learning
    engine = _bundle(EngineSettings(model_dir="").threads, settings.gpus_per_engine) | rollouts
    return [
        (DRIVER, _bundle(DRIVER_CPUS, 0 if settings.num_learners else gpus)),
        *[("env runner", _bundle(RUNNER_CPUS, 0) | rollouts)] * settings.num_env_runners,
        *[(LEARNER, learner)] * settings.num_learners,
        *[("engine", engine)] * (settings.num_engines if settings.num_env_runners else 0),
    ]


def node_share(resource: str) -> Bundle:
    """Return the request that places an actor on a node with ``resource``; nothing for an empty name."""
    return {resource: NODE_SHARE} if resource else {}


def first_engine_bundle(settings: Settings) -> int:
    return 1 + settings.num_env_runners + settings.num_learners


def placement(bundles: Sequence[Bundle]) -> PlacementGroupFactory:
    """Return the request of a trial: its processes on as few nodes as possible."""
    from ray.tune import PlacementGroupFactory

    return PlacementGroupFactory([dict(bundle) for bundle in bundles], strategy="PACK")


def set_engine_gpus(settings: Settings, cluster_gpus: float) -> None:
    """Set the GPUs of an engine actor, unless the user did: ``tensor_parallel`` in a cluster with GPUs.

    Outside of Tune, engine groups check this themselves; the driver of a trial may be on a node without GPUs.
    """
    if cluster_gpus and settings.num_env_runners and not settings.gpus_per_engine:
        settings.gpus_per_engine = float(settings.tensor_parallel)


def cluster_nodes() -> list[Bundle]:
    """Return the total resources of every live node."""
    import ray

    return [dict(node["Resources"]) for node in ray.nodes() if node["Alive"]]


@dataclass(frozen=True)
class Placement:
    """Possible nodes of a run's processes.

    Attributes:
        places: names of processes as in `named_bundles`, for each node.
        unplaced: a process for which no node has room; None: all fit.
    """

    places: list[list[str]]
    unplaced: str | None


def place(processes: Sequence[tuple[str, Bundle]], nodes: Sequence[Mapping[str, float]]) -> Placement:
    """Pack the processes, the largest first, each on the first node with room, as Ray's own packing does."""
    room = [dict(node) for node in nodes]
    places: list[list[str]] = [[] for _ in nodes]
    for whose, bundle in sorted(processes, key=lambda item: (-item[1].get("GPU", 0), -item[1].get("CPU", 0))):
        chosen = next((i for i, node in enumerate(room) if all(node.get(k, 0) >= n for k, n in bundle.items())), None)
        if chosen is None:
            return Placement(places, whose)
        places[chosen].append(whose)
        for name, amount in bundle.items():
            room[chosen][name] -= amount
    return Placement(places, None)


def free_resources() -> list[Bundle]:
    """Return the free resources of every live node, as known by the cluster's head."""
    from ray._private.state import available_resources_per_node

    return [dict(node) for node in available_resources_per_node().values()]


def actors(settings: Settings) -> list[tuple[str, Bundle]]:
    """Return (owner, bundle) for every actor of a run; outside of Tune, Ray does not count the driver."""
    return [process for process in named_bundles(settings) if process[0] != DRIVER]


def room_for_all(settings: Settings) -> bool:
    """Return whether all actors of a run fit now, so that they may start concurrently.

    Otherwise engines start first, because a late engine could find its resources taken. The same holds inside of a
    placement group (a Tune trial), where learners take any free bundle.
    """
    import ray

    if ray.util.get_current_placement_group() is not None:
        return False
    asked = copy.copy(settings)
    set_engine_gpus(asked, sum(node.get("GPU", 0) for node in cluster_nodes()))
    return place(actors(asked), free_resources()).unplaced is None


def obstacle(processes: Sequence[tuple[str, Bundle]], nodes: Sequence[Mapping[str, float]], what: str) -> str:
    """Return why ``what`` can never start on these nodes, in one sentence; empty if it can."""
    unplaced = place(processes, nodes).unplaced
    if unplaced is None:
        return ""
    return f"{what} needs {_needed(processes)}; {_available(nodes)}, which leaves no room for its {unplaced}"


def describe_placement(processes: Sequence[tuple[str, Bundle]], nodes: Sequence[Mapping[str, float]]) -> list[str]:
    """Return one line per node: its resources and processes."""
    lines = []
    for number, (node, whose) in enumerate(zip(nodes, place(processes, nodes).places, strict=True)):
        counts = Counter(whose)
        processes_there = ", ".join(f"{f'{n} x ' if n > 1 else ''}{name}" for name, n in counts.items())
        lines.append(f"node {number} ({_amounts(node)}): {processes_there or '-'}")
    return lines


def _bundle(cpus: float, gpus: float) -> Bundle:
    return {name: float(amount) for name, amount in (("CPU", cpus), ("GPU", gpus)) if amount}


def _needed(named: Sequence[tuple[str, Bundle]]) -> str:
    counts = Counter(whose for whose, _ in named)
    sizes = dict(named)
    total: Counter[str] = Counter()
    for _, bundle in named:
        total.update(bundle)
    parts = [f"{f'{n} x ' if n > 1 else ''}{whose} {_amounts(sizes[whose])}" for whose, n in counts.items()]
    return f"{_amounts(total)} ({', '.join(parts)})"


def _available(nodes: Sequence[Mapping[str, float]]) -> str:
    sizes = Counter(_amounts(node) for node in nodes)
    parts = [f"{n} node{'s' if n > 1 else ''} with {size}" for size, n in sizes.items()]
    return f"the cluster has {', '.join(parts) or 'no node'}"


def _amounts(resources: Mapping[str, float]) -> str:
    shown = [f"{resources[name]:g} {name}" for name in ("CPU", "GPU") if resources.get(name)]
    shown += [name for name in resources if name not in ("CPU", "GPU", *BUILTIN_RESOURCES) and ":" not in name]
    return " and ".join(shown) or "no CPU"
