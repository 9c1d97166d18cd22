"""Commands while `ray start --head` runs on the machine: they join it, or say that they do not, and print no alarms."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import yaml
from processes import free_port

from rl_agents.cli import main

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]  # starts processes of its own, unlike a unit test

ROOT = Path(__file__).parents[2]
RAY = Path(sys.executable).with_name("ray")
LIMIT_S = 300.0
ALARMS = re.compile(r"warning|error|fail|traceback|\.cc:", re.IGNORECASE)
SMALL = [
    "env=guess_numbers", "engine=torch", "tasks_per_iteration=2", "group_size=4",
    "eval_episodes=4",
]  # fmt: skip


@dataclass(frozen=True)
class Head:
    """A head node that `ray start --head` started, with a temporary folder and a home of its own.

    Attributes:
        env: of a shell on its machine in which nothing was exported.
        folder: Ray's, with one folder for each session.
    """

    env: dict[str, str]
    folder: Path
    address: str

    def sessions(self) -> int:
        return len([path for path in self.folder.glob("session_2*") if not path.is_symlink()])


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    short = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # Ray's sockets must not have long paths
    (short / "home").mkdir()
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    env |= {"HOME": str(short / "home"), "XDG_CACHE_HOME": str(Path.home() / ".cache"), "RAY_TMPDIR": str(short)}
    ports = f"--port={free_port()} --dashboard-agent-listen-port={free_port()}".split()
    command = [str(RAY), "start", "--head", "--block", *ports, "--num-cpus=4", "--include-dashboard=false"]
    noted = short / "ray" / "ray_current_cluster"
    with (short / "log").open("w") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + LIMIT_S
        while "Ray runtime started" not in (said := (short / "log").read_text()):
            assert process.poll() is None and time.monotonic() < deadline, said
            time.sleep(0.1)
        yield Head(env, noted.parent, noted.read_text())
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(short, ignore_errors=True)


def start(head: Head, arguments: list[str], address: str = "") -> subprocess.Popen[str]:
    env = {**head.env, **({"RAY_ADDRESS": address} if address else {})}
    command = [sys.executable, str(ROOT / "run.py"), *arguments]
    return subprocess.Popen(
        command, cwd=head.folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def said_until(process: subprocess.Popen[str], words: str) -> str:
    """What it says up to the line that begins with ``words``."""
    assert process.stdout
    said = ""
    for line in process.stdout:
        said += line
        if line.startswith(words):
            break
    return said


def assert_ray_named(head: Head, said: str, address: str) -> None:
    first = "\n".join(said.splitlines()[:3])
    if address == "local":
        assert "Ray starts on this machine" in first
    else:
        assert f"joins the Ray cluster {head.address}" in first, said


def test_training(head: Head, beginner_model_dir: Path, tmp_path: Path) -> None:
    before = head.sessions()
    flags = ["--iterations", "1", "--output", str(tmp_path / "run"), "--set", f"model={beginner_model_dir}", *SMALL]
    process = start(head, ["--algo", "grpo", *flags])
    said, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, said
    assert_ray_named(head, said, "")
    assert "iter 1/1" in said and head.sessions() == before
    assert not [line for line in said.splitlines() if ALARMS.search(line)]


def write_sweep(folder: Path, model: Path, iterations: int) -> str:
    keys = {"env": "guess_numbers", "model": str(model), "tasks_per_iteration": 2, "group_size": 4}
    sweep = {"set": {**keys, "eval_episodes": 4, "iterations": iterations}, "space": {"lr": [1e-4]}, "local": True}
    (folder / "sweep.yaml").write_text(yaml.safe_dump(sweep))
    return str(folder / "sweep.yaml")


def test_a_sweep_whose_own_ray_is_killed_says_so_and_can_be_resumed(head: Head, beginner_model_dir, tmp_path) -> None:
    """A session of its own only where that was asked for; the kernel kills its helpers where memory is short."""
    before, output = head.sessions(), tmp_path / "out"
    run = start(head, ["tune", write_sweep(tmp_path, beginner_model_dir, 100_000), "--output", str(output)], "local")
    said = said_until(run, "trial 1/1 ")
    assert_ray_named(head, said, "local")
    assert head.sessions() == before + 1
    (helper,) = (child for child in psutil.Process(run.pid).children() if child.name() == "gcs_server")
    helper.kill()
    rest, _ = run.communicate()  # without the watch: after Ray's own minutes, with a message of Ray's
    assert run.returncode == 1 and rest.splitlines()[-1] == (
        f"error: Ray's process gcs_server died (killed for memory?). Resume with: python run.py tune --resume {output}"
    ), rest
    assert (output / "sweep.yaml").is_file(), "what --resume needs"


def test_serving(head: Head, beginner_model_dir: Path) -> None:
    port, before = free_port(), head.sessions()
    arguments = ["--checkpoint", str(beginner_model_dir), "--port", str(port), "--engine", "torch"]
    process = start(head, ["serve", *arguments])
    said = said_until(process, "  stop")
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130 and f"http://127.0.0.1:{port}/v1" in said, said + rest
    assert_ray_named(head, said, "")
    assert head.sessions() == before


@pytest.mark.parametrize("named", ["", "local"])
def test_the_doctor_says_what_a_run_will_do(head: Head, named: str, monkeypatch, capsys) -> None:
    monkeypatch.setenv("RAY_TMPDIR", head.env["RAY_TMPDIR"])
    monkeypatch.setenv("RAY_ADDRESS", named)
    main(["doctor", "--quick"])
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("ray "))
    assert ("starts on this machine" if named else f"joins the Ray cluster {head.address}") in line


def test_the_demo_prints_no_alarms(head: Head, tmp_path: Path) -> None:
    """The command of `make demo` with fewer, smaller iterations, in one process, where nothing hides what is said."""
    recipe = "tune_configs/recipes/alfworld_chain_gae_weak.yaml"
    assert f"--config {recipe}" in (ROOT / "Makefile").read_text().split("\ndemo:", 1)[1].split("\n\n")[0]
    small = ["tasks_per_iteration=8", "eval_episodes=4", "max_turns=10", "starter_iterations=1"]
    arguments = ["--config", str(ROOT / recipe), "--local", "--iterations", "1", "--output", str(tmp_path / "run")]
    process = start(head, [*arguments, "--set", *small])
    said, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0 and "iter 1/1" in said, said
    assert not [line for line in said.splitlines() if ALARMS.search(line)]
