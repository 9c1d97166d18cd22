"""Clusters as the README and docs/how-to/run-on-a-cluster.md start them, as printed; and what runs on them."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from processes import free_port

from rl_agents.reporting.run_folder import RunFolder

pytestmark = pytest.mark.ray  # starts processes of its own, unlike a unit test

ROOT = Path(__file__).parents[2]
RAY = Path(sys.executable).with_name("ray")
START_S = 120.0


@dataclass(frozen=True)
class Cluster:
    """A head node that was started by the README's lines, with ports of its own.

    Attributes:
        env: of a shell that has just been opened: a new home, ``ray`` and ``scp`` that `shims` wrote.
        lines: what the README says to type there; the last one submits a job.
    """

    env: dict[str, str]
    lines: list[str]
    home: Path
    port: int
    head: subprocess.Popen[bytes]


def shims(folder: Path, start_flags: str, address: str) -> None:
    """Write a `ray` whose `start` takes other ports, and an `scp` from this machine's home.

    The commands themselves are typed as they are printed.
    """
    folder.mkdir()
    ray = f"""#!/bin/sh
[ "$1" = start ] || exec {RAY} "$@"
case "$2" in
  --head) exec {RAY} "$@" --block {start_flags} ;;
  *) exec {RAY} start --address={address} --block --num-cpus=1 --disable-usage-stats {agent_port()} ;;
esac
"""
    for name, text in (("ray", ray), ("scp", '#!/bin/sh\ncp "$HEAD_HOME/${1#*:}" "$2"\n')):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


def agent_port() -> str:
    return f"--dashboard-agent-listen-port={free_port()}"


def lines_after(page: str, words: str) -> list[str]:
    """The indented lines that follow a sentence of a page."""
    text = (ROOT / page).read_text(encoding="utf-8").split(words, 1)[1].lstrip("\n")
    return [line.strip() for line in re.match(r"(?:    .*\n)+", text)[0].splitlines()]  # type: ignore[index]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The README's cluster, up to and including `ray start --head`."""
    folder = tmp_path_factory.mktemp("ray")
    home, port, dashboard = folder / "home", free_port(), free_port()
    home.mkdir()
    flags = f"--port={port} --dashboard-port={dashboard} {agent_port()} --num-cpus=4 --disable-usage-stats"
    shims(folder / "bin", f"{flags} --temp-dir={short_temporary_folder()}", f"127.0.0.1:{port}")
    checkout = folder / "checkout"
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / "run.py").symlink_to(ROOT / "run.py")
    activate = f"export PATH={folder / 'bin'}:{RAY.parent}:$PATH\n"  # a virtual environment's own names another one
    (checkout / ".venv" / "bin" / "activate").write_text(activate)
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    caches = {"XDG_CACHE_HOME": str(Path.home() / ".cache"), "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{dashboard}"}
    env |= {"HOME": str(home), "PWD": str(checkout), **caches}
    lines = lines_after("README.md", "On a Ray cluster, from a new shell in this folder:")
    assert lines_after("docs/how-to/run-on-a-cluster.md", "On the first machine, in the checkout:") == [
        re.sub(r" +#.*", "", line) for line in lines
    ]
    with (folder / "head.log").open("w") as log:
        head = shell(lines[:-1], env, log)
    try:
        await_port(dashboard, head)
        yield Cluster(env, lines, home, port, head)
    finally:
        os.killpg(head.pid, signal.SIGTERM)
        try:
            head.wait(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(head.pid, signal.SIGKILL)


def shell(lines: Sequence[str], env: Mapping[str, str], log: Any) -> subprocess.Popen[bytes]:
    """Type lines into a new shell; the last one stays."""
    script = ["set -e", *lines[:-1], f"exec {lines[-1]}"]
    return subprocess.Popen(
        ["bash", "-c", "\n".join(script)], cwd=env["PWD"], env=env, stdout=log, stderr=log, start_new_session=True
    )


def await_port(port: int, head: subprocess.Popen[bytes]) -> None:
    """Wait for the dashboard: each `ray job submit` that comes too early imports Ray for nothing."""
    deadline = time.monotonic() + START_S
    while head.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)


def short_temporary_folder() -> str:
    """Ray's sockets must not have long paths."""
    import tempfile

    return tempfile.mkdtemp(prefix="ray-", dir="/tmp")


def submit(cluster: Cluster, arguments: str) -> tuple[int, str]:
    """Submit a job from another new shell and wait for it; until the head's job agent is up, ask again.

    Args:
        arguments: in the place of ``--algo 3spo`` of the printed line.
    """
    opening = [line for line in cluster.lines[:-1] if not line.startswith("ray start")]
    script = "\n".join([*opening, cluster.lines[-1].replace("--algo 3spo", arguments)])
    deadline = time.monotonic() + START_S
    while True:
        done = subprocess.run(
            ["bash", "-c", script], env=cluster.env, cwd=cluster.env["PWD"],
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        output = done.stdout + done.stderr
        starting = "No available agent" in output or "Failed to connect" in output
        if not starting or time.monotonic() > deadline:
            return done.returncode, output
        time.sleep(2)


@pytest.mark.timeout(900)
def test_a_job_trains_and_its_log_and_exit_code_can_be_read(cluster: Cluster, beginner_model_dir, tmp_path) -> None:
    keys = "engine=vllm tasks_per_iteration=4 search_steps=64 eval_episodes=4 collapse_monitor=off"
    small = f"env=guess_numbers model={beginner_model_dir} {keys}"
    output = tmp_path / "run"
    assert cluster.lines[-1] == "ray job submit -- python run.py --algo 3spo"
    code, log = submit(cluster, f"--algo 3spo --iterations 1 --output {output} --set {small} eval_interval=0")
    assert code == 0, log
    assert "iter 1/1  search" in log and "success on the test tasks" in log
    assert "\x1b[" not in "".join(line for line in log.splitlines() if line.startswith("iter")), (
        "plain lines under a job"
    )
    assert json.loads((output / "summary.json").read_text())["status"] == "done"
    metrics = RunFolder(output).read_metrics()[-1]  # a search, on vLLM: it samples again after its first update
    assert metrics["search/optimizer_steps"] >= 2 and metrics["rollout_corr/logprob_diff_max"] < 1e-4

    code, log = submit(cluster, "--algo grop")
    assert code != 0
    assert "did you mean 'grpo'?" in log and "exit code 2" in log


def test_a_second_machine_joins_with_the_token(cluster: Cluster, tmp_path: Path) -> None:
    lines = lines_after("docs/how-to/run-on-a-cluster.md", "with `HEAD` the address of the first:")
    home = tmp_path / "second"
    home.mkdir()
    env = {**cluster.env, "HOME": str(home), "HEAD": "127.0.0.1", "HEAD_HOME": str(cluster.home)}
    with (tmp_path / "log").open("w+") as log:
        node = shell(lines, env, log)
        try:
            deadline = time.monotonic() + START_S
            while "Ray runtime started" not in (said := (tmp_path / "log").read_text()):
                assert node.poll() is None and time.monotonic() < deadline, said
                time.sleep(0.2)
        finally:
            os.killpg(node.pid, signal.SIGTERM)
            node.wait(timeout=120)
    assert (home / ".ray" / "auth_token").stat().st_mode & 0o077 == 0, "nobody else reads the token"


DRIVER = """
import os, sys
os.environ["HERE"] = "1"
from rl_agents.trainer.ray_init import check_modules, ensure_ray
from rl_agents.envs.base import env_spec
for name in ("gymnasium:lock:Lock", "gymnasium:choosy:Lock"):
    env_spec(name)
ensure_ray(1)
check_modules("gymnasium:lock:Lock")
print("imported everywhere")
check_modules("gymnasium:choosy:Lock")
"""


def test_the_users_own_module_reaches_the_workers(cluster: Cluster, tmp_path: Path) -> None:
    """The driver finds it on its own path, which no worker has."""
    page = (ROOT / "docs" / "environments" / "gymnasium.md").read_text(encoding="utf-8")
    lock = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert lock
    (tmp_path / "lock.py").write_text(lock[1])
    (tmp_path / "choosy.py").write_text('import os\nos.environ["HERE"]\nfrom lock import Lock\n')
    address = {"RAY_ADDRESS": f"127.0.0.1:{cluster.port}", "RAY_AUTH_MODE": "token"}
    env = {**cluster.env, **address, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER], cwd="/", env=env, capture_output=True, text=True, timeout=400, check=False
    )
    assert "imported everywhere" in done.stdout, done.stderr
    assert "module choosy" in done.stderr and "KeyError: 'HERE'" in done.stderr.splitlines()[-1], done.stderr
