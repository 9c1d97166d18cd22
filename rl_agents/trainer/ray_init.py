"""The Ray session of a run: an existing cluster, or Ray on this machine."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psutil
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rl_agents.config import Settings
from rl_agents.envs.base import env_spec
from rl_agents.errors import InputError
from rl_agents.plugins import OWN_MODULES, load
from rl_agents.resources import actors, cluster_nodes, describe_placement, obstacle
from rl_agents.startup import leave_out_sklearn
from rl_agents.trainer.ray_address import cluster_address, takes_tokens

#: Seconds for a node's answer whether it can import an environment's module.
IMPORT_TIMEOUT_S = 60.0
#: Processes that all of Ray's calls need, and seconds between checks of them.
HELPERS, LOOK_S = ("gcs_server", "raylet"), 1.0
#: Where `ray job submit` leaves the job's configuration for its driver.
JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"


def quiet_libraries() -> None:
    leave_out_sklearn()
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    for name in ("ray._common.deprecation", "ray.tune.utils.util", "ray.tune.trainable.trainable"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # It logs twelve lines about every actor that dies; ours is one line.
    logging.getLogger("ray.rllib.utils.actor_manager").setLevel(logging.CRITICAL)


def ensure_ray(actors: int) -> None:
    """Join the cluster of `cluster_address`, or start Ray on this machine for this process alone.

    A session started here has CPUs for ``actors`` one-thread actors even on a small machine, where they share cores.

    Args:
        actors: number of engines, env runners and learners of the run.

    Raises:
        InputError: there is a cluster that cannot be joined.
    """
    if ray.is_initialized():
        return
    if cluster_address():
        join_cluster()
        return
    cpus = max(os.cpu_count() or 1, actors + 1)
    ray.init(address="local", num_cpus=cpus, include_dashboard=False, **_quiet())


@contextmanager
def ends_with_ray(hint: str) -> Iterator[None]:
    """End this process with exit code 1 and one line if a process of its own Ray dies within the block.

    Ray's calls would wait for minutes in places that exceptions do not reach. A cluster that was joined is not watched:
    its head may be restarted.

    Args:
        hint: how to continue.
    """
    helpers = {child.name(): child for child in psutil.Process().children() if child.name() in HELPERS}
    over = threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_S):
            if dead := [name for name, process in helpers.items() if not _lives(process)]:
                print(f"error: Ray's process {dead[0]} died (killed for memory?). {hint}", file=sys.stderr, flush=True)
                os._exit(1)

    threading.Thread(target=watch, name="ends with ray", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def join_cluster() -> None:
    """Connect to the cluster of `cluster_address`.

    Raises:
        InputError: there is none, it does not answer, or it rejects this driver.
    """
    address, named = cluster_address(), os.environ.get("RAY_ADDRESS")
    where = f"RAY_ADDRESS={named}" if named else "that runs on this machine"
    if not address:
        where = f"RAY_ADDRESS={named}" if named else "RAY_ADDRESS is not set, and Ray is not running on this machine"
        raise InputError(f"no Ray cluster found ({where}); start one with: ray start --head")
    # Without an address, Ray finds the same head and sends this machine's token.
    known = {"address": "auto"} if named else {} if takes_tokens(address) else {"address": address}
    try:
        ray.init(**known, **_quiet(), **shipped_modules())
    except (ConnectionError, RuntimeError, ray.exceptions.RayError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"no connection to the Ray cluster {where} ({reason}): start it, or set RAY_ADDRESS=local to run without "
            "one; where it asks for a token: export RAY_AUTH_MODE=token (docs/how-to/run-on-a-cluster.md)"
        ) from error


def _quiet() -> dict[str, Any]:
    """Options that keep actors' output in Ray's log folder; tracebacks reach the driver with exceptions."""
    return {"logging_level": "ERROR", "log_to_driver": bool(os.environ.get("RL_AGENTS_ACTOR_LOGS"))}


def shipped_modules() -> dict[str, Any]:
    """Return options that send the users' modules imported here to a cluster's workers; see `OWN_MODULES`.

    A job that was submitted with a folder or modules has sent them, and Ray rejects them a second time.
    """
    job = json.loads(os.environ.get(JOB_CONFIG) or "{}").get("runtime_env") or {}
    if not OWN_MODULES or job.keys() & {"working_dir", "py_modules"}:
        return {}
    return {"runtime_env": {"py_modules": [str(path) for path in OWN_MODULES.values()]}}


def check_modules(env: str, plugins: Sequence[str] = ()) -> None:
    """Import plugins and the environment's module on every node, before anything starts there.

    Raises:
        InputError: a node cannot import them.
    """
    if not OWN_MODULES:
        return
    imported = ray.remote(num_cpus=0)(_import_problem)
    problems = {
        node["NodeManagerAddress"]: imported.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)
        ).remote(env, plugins)
        for node in ray.nodes()
        if node["Alive"]
    }
    ready, _ = ray.wait([*problems.values()], num_returns=len(problems), timeout=IMPORT_TIMEOUT_S)
    for address, answer in problems.items():
        try:
            problem = ray.get(answer) if answer in ready else ""
        except ray.exceptions.RuntimeEnvSetupError as error:
            problem = f"the files of {', '.join(OWN_MODULES)} did not reach it: {error}"
        if problem:
            raise InputError(f"on node {address}: {problem}")


def _import_problem(env: str, plugins: Sequence[str]) -> str:
    try:
        load(plugins)
        env_spec(env)
    except InputError as error:
        return str(error)
    return ""


def join_session(settings: Settings) -> None:
    """Connect to Ray if the run has actors; inside a placement group (a Tune trial) they are placed already."""
    if not settings.num_env_runners and not settings.num_learners:
        return
    ensure_ray(settings.num_engines + settings.num_env_runners + settings.num_learners)
    if ray.util.get_current_placement_group() is None:
        for own in settings.each.values():
            check_modules(own.env, settings.plugins)
        show_placement(settings)


def show_placement(settings: Settings) -> None:
    """Print the placement on a cluster's nodes, or missing resources; nothing on a single node.

    The run waits for missing resources, because an autoscaler may add them. Engines, env runners and learners have
    timeouts with errors of their own.
    """
    nodes, wanted = cluster_nodes(), actors(settings)
    if missing := obstacle(wanted, nodes, "this run"):
        print(f"[rl_agents] {missing}; waiting for more", flush=True)
    elif len(nodes) > 1:
        print("\n".join(f"[rl_agents] {line}" for line in describe_placement(wanted, nodes)), flush=True)
