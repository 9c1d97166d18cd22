"""Two hosts with addresses of their own: rollouts on one, learning on the other."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from clusters.local_two_nodes import two_nodes

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="network namespaces need root and `ip`"),
]


@pytest.mark.timeout(900)
def test_a_run_on_two_nodes_outlives_a_cut_cable(beginner_model_dir: Path, tmp_path: Path) -> None:
    """Its algorithm and its reward are modules of the user's own, in a folder that the second machine lacks."""
    output, own = tmp_path / "run", tmp_path / "own"
    own.mkdir()
    for name in ("median_algorithm.py", "brief_reward.py"):
        shutil.copy(ROOT / "docs" / "examples" / "plugins" / name, own)
    flags = [
        "--import", "median_algorithm", "--import", "brief_reward.py", "--algo", "own-median", "--iterations", "3",
        "--output", str(output), "--set", f"model={beginner_model_dir}", "engine=torch", "reward=own-brief",
        "rollout_nodes=head", "learner_nodes=worker", "tasks_per_iteration=4", "group_size=4", "eval_episodes=4",
        "eval_interval=0",
    ]  # fmt: skip
    with two_nodes(head_only=own) as cluster, (tmp_path / "log").open("wb") as log:
        command = [sys.executable, str(ROOT / "run.py"), *flags, "num_learners=1"]
        job = cluster.run(command, cwd=own, stdout=log, stderr=log)
        cable = threading.Thread(target=lambda: _reached(job, output, 1) and cluster.cut(3.0))
        cable.start()
        code = job.wait(timeout=600)
        cable.join()
    text = (tmp_path / "log").read_text()
    assert code == 0, text[-2000:]
    assert "node 0 (4 CPU and head): engine, env runner" in text or "node 1 (4 CPU and head): engine" in text
    assert "(4 CPU and worker): learner" in text
    records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    assert [record["iteration"] for record in records] == [0, 1, 2, 3]
    assert json.loads((output / "summary.json").read_text())["episodes"] == 3 * 16


def _reached(job: subprocess.Popen[bytes], output: Path, iteration: int) -> bool:
    """Wait for an iteration, or for the run's early end."""
    file = output / "metrics.jsonl"
    while not (file.exists() and f'"iteration": {iteration},' in file.read_text()):
        if job.poll() is not None:
            return False
        time.sleep(0.05)
    return True
