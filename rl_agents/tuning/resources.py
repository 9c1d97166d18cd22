"""What a run needs of a Ray cluster, as placement group bundles, and whether a cluster can ever hold it.

A trial of Tune starts actors of its own. Unless their resources are part of the trial's placement group, trials that
have started take the CPUs for which the actors of others wait, and all wait for ever (ray issue 25239). So a trial
asks for everything at once and is queued until all of it is free.

Bundles, in the order that actors are pinned to:

    0                     driver of the run (and its learner, when num_learners=0)
    1 .. R                env runners; RLlib pins runner i to bundle i
    R+1 .. R+L            learners; RLlib gives them no index, they take what the others leave
    R+L+1 .. R+L+E        engines, see `first_engine_bundle`
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rl_agents.engines.settings import EngineSettings
from rl_agents.settings import Settings

if TYPE_CHECKING:
    from ray.tune import PlacementGroupFactory

Bundle = dict[str, float]

DRIVER_CPUS = 1.0
#: Nobody looks for more actors of a kind than this.
MOST_ACTORS = 256
#: What `AgentConfig` asks for: several small actors share a core.
RUNNER_CPUS = LEARNER_CPUS = 0.5


def run_bundles(settings: Settings) -> list[Bundle]:
    """Return the bundles of a run; the first holds its driver."""
    return [bundle for _, bundle in named_bundles(settings)]


def named_bundles(settings: Settings) -> list[tuple[str, Bundle]]:
    """Return (whose, bundle) for every process of a run."""
    gpus = settings.gpus_per_learner
    learner = _bundle(0 if gpus else LEARNER_CPUS, gpus)
    engine = _bundle(EngineSettings(model_dir="").threads, settings.gpus_per_engine)
    return [
        ("driver", _bundle(DRIVER_CPUS, 0 if settings.num_learners else gpus)),
        *[("env runner", _bundle(RUNNER_CPUS, 0))] * settings.num_env_runners,
        *[("learner", learner)] * settings.num_learners,
        *[("engine", engine)] * (settings.num_engines if settings.num_env_runners else 0),
    ]


def first_engine_bundle(settings: Settings) -> int:
    """Return the index of engine 0's bundle."""
    return 1 + settings.num_env_runners + settings.num_learners


def placement(bundles: Sequence[Bundle]) -> PlacementGroupFactory:
    """Return the request of a trial: its processes close together, though on several nodes if need be."""
    from ray.tune import PlacementGroupFactory

    return PlacementGroupFactory([dict(bundle) for bundle in bundles], strategy="PACK")


def set_engine_gpus(settings: Settings, cluster_gpus: float) -> None:
    """Say how many GPUs an engine actor takes when nobody did: ``tensor_parallel`` in a cluster that has any.

    Outside Tune an engine group looks for itself; the driver of a trial may sit on a node without GPUs.
    """
    if cluster_gpus and settings.num_env_runners and not settings.gpus_per_engine:
        settings.gpus_per_engine = float(settings.tensor_parallel)


def cluster_nodes() -> list[Bundle]:
    """Return the resources of every node that is alive, used or not."""
    import ray

    return [dict(node["Resources"]) for node in ray.nodes() if node["Alive"]]


def obstacle(settings: Settings, nodes: Sequence[Mapping[str, float]], what: str = "a trial") -> str:
    """Say in one sentence why ``what`` can never start on these nodes; nothing when it can.

    Bundles go, the largest first, to the first node with room, like Ray's own packing.
    """
    room = [dict(node) for node in nodes]
    named = named_bundles(settings)
    for whose, bundle in sorted(named, key=lambda item: (-item[1].get("GPU", 0), -item[1].get("CPU", 0))):
        node = next((node for node in room if all(node.get(name, 0) >= n for name, n in bundle.items())), None)
        if node is None:
            return f"{what} needs {_needed(named)}; {_available(nodes)}, which leaves no room for its {whose}"
        for name, amount in bundle.items():
            node[name] -= amount
    return ""


def most(settings: Settings, nodes: Sequence[Mapping[str, float]], key: str) -> int:
    """Return the largest value of ``key`` (a number of actors) with which a run fits, the other keys unchanged.

    Returns:
        0 when it does not fit with one either; `MOST_ACTORS` at most.
    """
    count = 0
    while count < MOST_ACTORS and not obstacle(replaced(settings, key, count + 1), nodes):
        count += 1
    return count


def replaced(settings: Settings, key: str, value: int) -> Settings:
    """Return a copy of ``settings`` with one key changed."""
    other = copy.deepcopy(settings)
    setattr(other, key, value)
    return other


def needs(settings: Settings) -> str:
    """Say what a run asks the cluster for."""
    return _needed(named_bundles(settings))


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
    return " and ".join(shown) or "no CPU"
