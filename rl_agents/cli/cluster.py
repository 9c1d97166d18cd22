"""``python run.py doctor --cluster``: on which nodes of a Ray cluster a run would be placed."""

from __future__ import annotations

import argparse
import json
import os

from rl_agents.algorithms import Settings
from rl_agents.errors import InputError
from rl_agents.settings import parse_assignments, validate
from rl_agents.settings.presets import load_preset


def examine_cluster(args: argparse.Namespace) -> int:
    """Print where the processes of the described run would go; return 1 when something has no room.

    Raises:
        InputError: bad flags, or no cluster answers.
    """
    from rl_agents.core.resources import actors, cluster_nodes, describe_placement, obstacle, set_engine_gpus

    settings = Settings()
    settings.update({**(load_preset(args.config) if args.config else {}), **parse_assignments(args.set)})
    validate(settings)
    connect()
    nodes = cluster_nodes()
    set_engine_gpus(settings, sum(node.get("GPU", 0) for node in nodes))
    wanted = actors(settings)
    missing = obstacle(wanted, nodes, "this run")
    lines = describe_placement(wanted, nodes)
    if args.json:
        print(json.dumps({"nodes": nodes, "plan": lines, "missing": missing, "fits": not missing}))
    else:
        print("\n".join([*lines, f"does not fit: {missing}" if missing else "fits"]))
    return 1 if missing else 0


def connect() -> None:
    """Connect to the cluster that ``RAY_ADDRESS`` or `ray start` on this machine names.

    Raises:
        InputError: none answers.
    """
    import ray

    try:
        ray.init(address="auto", logging_level="ERROR", log_to_driver=False)
    except ConnectionError:
        named = os.environ.get("RAY_ADDRESS")
        where = f"RAY_ADDRESS={named}" if named else "RAY_ADDRESS is not set, and Ray is not running on this machine"
        raise InputError(f"no Ray cluster found ({where}); start one with: ray start --head") from None
