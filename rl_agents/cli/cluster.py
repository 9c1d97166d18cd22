"""What a run would find on the Ray cluster that is there: ``python run.py doctor --cluster``."""

from __future__ import annotations

import os
from dataclasses import dataclass

from rl_agents.errors import InputError
from rl_agents.settings import Settings


@dataclass(frozen=True)
class Cluster:
    """What a run would find on a Ray cluster.

    Attributes:
        nodes: CPU and GPU of every node, used or not.
        needs: what the run asks for.
        obstacle: why it can never start there; empty when it can.
        most: by key, how many actors of the kind fit while the other keys stay.
    """

    nodes: list[dict[str, float]]
    needs: str
    obstacle: str
    most: dict[str, int]

    def as_text(self) -> list[str]:
        """Render it for people."""
        nodes = "; ".join(", ".join(f"{amount:g} {name}" for name, amount in node.items()) for node in self.nodes)
        verdict = "does not fit" if self.obstacle else "fits"
        most = " ".join(f"{key}={count}" for key, count in self.most.items())
        return [f"nodes     {nodes}", f"a run     needs {self.needs}: {verdict}", f"at most   {most} (one at a time)"]


def examine_cluster(settings: Settings) -> Cluster:
    """Look at the Ray cluster that runs and at what fits on it.

    Raises:
        InputError: none answers.
    """
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # the exception says it all
    import ray

    from rl_agents.tuning.resources import cluster_nodes, most, needs, obstacle, set_engine_gpus

    try:
        ray.init(address="auto", logging_level="ERROR", log_to_driver=False)
    except (ConnectionError, RuntimeError):
        raise InputError("--cluster: no Ray cluster answers; start one (ray start --head) or set RAY_ADDRESS") from None
    nodes: list[dict[str, float]] = [
        {name: node[name] for name in ("CPU", "GPU") if name in node} for node in cluster_nodes()
    ]
    ray.shutdown()
    set_engine_gpus(settings, sum(node.get("GPU", 0.0) for node in nodes))
    keys = ("num_env_runners", "num_engines", "num_learners")
    found = {key: most(settings, nodes, key) for key in keys}
    return Cluster(nodes, needs(settings), obstacle(settings, nodes, "a run"), found)
