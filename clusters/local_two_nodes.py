"""A Ray cluster of two nodes with addresses of their own, on this machine: two network namespaces and a cable.

    sudo -E .venv/bin/python -m clusters.local_two_nodes -- .venv/bin/python run.py --algo grpo \
        --set num_learners=1 rollout_nodes=head learner_nodes=worker

starts the cluster, runs the command on the head node, and takes everything down again. The head has the Ray resource
``head``, the worker ``worker``, so that a run's ``rollout_nodes`` and ``learner_nodes`` can name them. ``--cut 20:20``
pulls the cable 20 seconds after the command began, for 20 seconds. Network namespaces need root.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RAY = Path(sys.executable).with_name("ray")
PORT = 6379
START_S = 120.0


@dataclass(frozen=True)
class Node:
    """A host: its name is that of its Ray resource, too."""

    name: str
    address: str
    namespace: str
    cable: str

    def run(self, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Start a command inside."""
        return subprocess.Popen(["ip", "netns", "exec", self.namespace, *command], **options)

    def pids(self) -> list[int]:
        """Return every process inside."""
        found = subprocess.run(["ip", "netns", "pids", self.namespace], capture_output=True, text=True, check=False)
        return [int(pid) for pid in found.stdout.split()]


@dataclass(frozen=True)
class TwoNodes:
    """A running cluster."""

    head: Node
    worker: Node
    cpus: int
    folder: Path
    env: Mapping[str, str]
    head_only: Path | None = None
    raylets: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def run(self, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Start a command on the head node that finds the cluster."""
        address = f"{self.head.address}:{PORT}"
        return self.head.run(command, env={**self.env, "RAY_ADDRESS": address}, **options)

    def start(self, node: Node) -> None:
        """Start the raylet of a node, of the head first."""
        role = ["--head", f"--port={PORT}", "--include-dashboard=false"]
        if node is not self.head:
            role = [f"--address={self.head.address}:{PORT}"]
        command = [
            str(RAY), "start", "--block", *role, f"--node-ip-address={node.address}", f"--num-cpus={self.cpus}",
            f'--resources={{"{node.name}": 1}}', f"--temp-dir={self.folder}", "--disable-usage-stats",
        ]  # fmt: skip
        if node is self.worker and self.head_only:  # `ip netns exec` has given it mounts of its own
            hide = 'mount -t tmpfs none "$0" && exec "$@"'
            command = ["sh", "-c", hide, str(self.head_only), *command]
        with (self.folder / f"{node.name}.log").open("ab") as log:
            self.raylets[node.name] = node.run(command, stdout=log, stderr=log, env=self.env, start_new_session=True)

    def cut(self, seconds: float) -> None:
        """Pull the cable for so long."""
        _ip("-n", self.worker.namespace, "link", "set", self.worker.cable, "down")
        try:
            time.sleep(seconds)
        finally:
            _ip("-n", self.worker.namespace, "link", "set", self.worker.cable, "up")


@contextlib.contextmanager
def two_nodes(cpus: int = 4, subnet: str = "10.77.5", head_only: Path | None = None) -> Iterator[TwoNodes]:
    """Start the cluster, and remove every trace of it.

    Args:
        cpus: CPUs that each node claims to have.
        subnet: the first three numbers of the nodes' addresses.
        head_only: a folder that is empty on the worker, as it would be on another machine; None: they share all.

    Raises:
        RuntimeError: no root, no ``ip``, or Ray does not start.
    """
    tag = f"rla{os.getpid() % 100_000}"
    head, worker = (
        Node(name, f"{subnet}.{number}", f"{tag}{name[0]}", f"{tag}{name[0]}")
        for number, name in ((1, "head"), (2, "worker"))
    )
    # Ray's sockets must not have long paths.
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    env = _with_token(folder / "token")
    cluster = TwoNodes(head, worker, cpus, folder, env, head_only)
    try:
        _lay_cable(head, worker)
        cluster.start(head)
        cluster.start(worker)
        await_nodes(cluster)
        yield cluster
    finally:
        for raylet in cluster.raylets.values():
            _end(raylet)
        for node in (head, worker):
            _remove(node)
        shutil.rmtree(folder, ignore_errors=True)


def _lay_cable(head: Node, worker: Node) -> None:
    if os.geteuid() or not shutil.which("ip"):
        raise RuntimeError("two nodes on one machine need root and the program `ip` (package iproute2)")
    for node in (head, worker):
        _ip("netns", "add", node.namespace)
    _ip("link", "add", head.cable, "netns", head.namespace, "type", "veth",
        "peer", "name", worker.cable, "netns", worker.namespace)  # fmt: skip
    for node in (head, worker):
        _ip("-n", node.namespace, "addr", "add", f"{node.address}/24", "dev", node.cable)
        for device in ("lo", node.cable):
            _ip("-n", node.namespace, "link", "set", device, "up")


def _with_token(file: Path) -> dict[str, str]:
    """Write the secret that Ray asks of everybody once a node listens on more than loopback; return who knows it."""
    file.touch(mode=0o600)
    file.write_text(secrets.token_hex(32))
    known = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(file)}
    return {"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0", **os.environ, **known}


def await_nodes(cluster: TwoNodes) -> None:
    """Ask Ray until both nodes are there.

    Raises:
        RuntimeError: they are not there in time.
    """
    # Asks the GCS alone: a driver would start workers on both nodes.
    probe = f"""
import sys, time
from ray._raylet import GcsClient
from ray.core.generated.gcs_pb2 import GcsNodeInfo
deadline = time.monotonic() + {START_S}
alive = 0
while alive < 2 and time.monotonic() < deadline:
    try:
        nodes = GcsClient(address="{cluster.head.address}:{PORT}").get_all_node_info(timeout=5).values()
        alive = sum(node.state == GcsNodeInfo.ALIVE for node in nodes)
    except Exception as error:
        print(error, file=sys.stderr)
    time.sleep(0.2)
sys.exit(alive < 2)
"""
    with (cluster.folder / "probe.log").open("wb") as log:
        asking = cluster.run([sys.executable, "-c", probe], stdout=log, stderr=log)
    while asking.poll() is None:
        if cluster.raylets["worker"].poll() is not None:  # it gave up before the head was there
            cluster.start(cluster.worker)
        time.sleep(0.2)
    if asking.returncode:
        logs = "\n".join((cluster.folder / f"{name}.log").read_text()[-500:] for name in ("head", "worker", "probe"))
        raise RuntimeError(f"the nodes did not find each other within {START_S:g} s:\n{logs}")


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=15)
            return


def _remove(node: Node) -> None:
    """Kill what still runs inside, and remove the namespace, its end of the cable with it."""
    for pid in node.pids():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    subprocess.run(["ip", "netns", "del", node.namespace], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def main() -> int:
    """Run the command line; return the exit code of the command that ran on the head node."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpus", type=int, default=4, help="CPUs that each node claims to have")
    parser.add_argument("--cut", metavar="AFTER:SECONDS", help="pull the cable")
    parser.add_argument("command", nargs="+", help="after --: what runs on the head node")
    args = parser.parse_args()
    with two_nodes(args.cpus) as cluster:
        job = cluster.run(args.command)
        if args.cut:
            after, seconds = (float(part) for part in args.cut.split(":"))
            threading.Timer(after, cluster.cut, [seconds]).start()
        return job.wait()


if __name__ == "__main__":
    sys.exit(main())
