"""What a reader of README, tutorials and how-to pages should see: their commands, run as printed, with three seeds.

    python -m benchmarks.page_figures              # runs what results/page_figures.json lacks
    python -m benchmarks.page_figures shop brief   # only these

`benchmarks.doc_tables` writes the sentence of each command below it, between marks with its name (``figure shop``).
`tests/test_figures.py` compares the pages' commands and one new run with the results.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.report import RESULTS, command_line, load, save
from rl_agents.reporting.statistics import student_interval

ROOT = Path(__file__).parents[1]
NAME = "page_figures"
SEEDS = 3


@dataclass(frozen=True)
class Call:
    """A training command of a page.

    Attributes:
        page: path from the repository's root.
        words: what only this command's line contains.
        before: the words of a line that makes its model; it runs once.
        server: the words of a line that runs until the call has ended.
    """

    page: str
    words: str
    before: str = ""
    server: str = ""


#: A variable of extend.md.
PLUGINS = "--import median_algorithm --import lock_environment --import brief_reward"
TOUR, OWN = "docs/tutorials/first-run.md", "docs/tutorials/your-own-environment.md"
CALLS = {
    "tour": Call(TOUR, "--algo grpo --env guess_numbers --iterations 15"),
    "tour steppo": Call(TOUR, "--config guess_numbers_steppo"),
    "tour chain-gae": Call(TOUR, "--config guess_numbers_chain_gae"),
    "shop": Call(OWN, "--algo chain-gae", "run.py sft"),
    "shop steppo": Call(OWN, "--algo steppo", "run.py sft"),
    "brief": Call("docs/how-to/write-a-reward.md", "--import brief_reward"),
    "recipe": Call("README.md", "--config guess_numbers_grpo"),
    "plugins": Call("docs/how-to/extend.md", "--algo own-median", "run.py sft"),
    "lock": Call("docs/environments/gymnasium.md", "--algo grpo --env gymnasium:lock:Lock", "run.py sft"),
    "coroutine": Call("docs/environments/blackbox.md", "docs.examples.agents.coroutine:agent"),
    "dial": Call("docs/environments/class.md", "--env class:docs/examples/class/dial.py:Dial --local"),
    "openenv": Call("docs/environments/openenv.md", "--env openenv --local", server="openenv/server.py 8000"),
    "sums": Call("docs/environments/verifiers.md", "docs/examples/verifiers/sums.py"),
}


def main() -> None:
    """Run the missing calls."""
    parser = command_line(__doc__)
    parser.add_argument("names", nargs="*", help=", ".join(CALLS))
    for name in parser.parse_args().names or CALLS:
        with tempfile.TemporaryDirectory() as folder:
            checkout(Path(folder))
            runs = on_file().get(name, {}).get("runs", {})
            for seed in range(SEEDS):
                if str(seed) not in runs:
                    runs[str(seed)] = measured(name, seed, Path(folder))
                    save(NAME, {**on_file(), name: {"command": printed(CALLS[name]), "runs": runs}})
        print(f"{name}: {sentence(name)}", flush=True)


def on_file() -> dict[str, Any]:
    return load(NAME) if (RESULTS / f"{NAME}.json").is_file() else {}


def checkout(folder: Path) -> None:
    """Make a folder that has what the commands name, so that they write nothing into the repository."""
    for name in ("docs", "tune_configs", "benchmarks", "run.py", ".venv-clients", ".venv-verifiers", ".venv-openenv"):
        (folder / name).symlink_to(ROOT / name)
    for path in (ROOT / "docs" / "examples").glob("*/*.py"):
        if path.parent.name in ("plugins", "tutorial"):
            shutil.copy(path, folder)
    page = (ROOT / CALLS["lock"].page).read_text(encoding="utf-8")
    (lock,) = re.findall(r"`lock\.py`:\n\n```python\n(.*?)```", page, re.DOTALL)
    (folder / "lock.py").write_text(lock, encoding="utf-8")


def printed(call: Call, words: str = "") -> str:
    """Return the only line of a page with these words, without its comment.

    Raises:
        ValueError: there is none, or more than one.
    """
    page = re.sub(r"\\\n\s*", "", (ROOT / call.page).read_text(encoding="utf-8"))
    lines = [line.strip() for line in page.splitlines() if line.startswith("    ") and (words or call.words) in line]
    (line,) = dict.fromkeys(lines)
    return re.sub(r"\s+#.*", "", line)


def measured(name: str, seed: int, folder: Path) -> dict[str, float]:
    """Run the command with a seed; return what its summary says."""
    call, output = CALLS[name], folder / f"out-{seed}"
    made = folder / f"made for {Path(call.page).name}"
    if call.before and not made.exists():
        shell(printed(call, call.before), folder)
        made.touch()
    line = re.sub(r" --output \S+", "", printed(call)) + f" --seed {seed} --output {output}"
    if call.server:
        server = printed(call, call.server)
        address = f"/dev/tcp/127.0.0.1/{server.rpartition(' ')[2]}"
        started = f"until (exec 3<>{address}) 2>/dev/null; do kill -0 $!; sleep 0.2; done"
        line = f"{server} & trap 'kill $!; wait $! || true' EXIT\n{started}\n{line}"
    shell(line, folder)
    kept = ("success_start", "success_end", "iterations", "seconds", "cpu_seconds")
    summary = json.loads((output / "summary.json").read_text(encoding="utf-8"))
    return {key: summary[key] for key in kept}


def shell(script: str, folder: Path) -> None:
    """Run lines of a page with this Python; ``said`` in the folder gets what they print.

    Raises:
        CalledProcessError: a line failed.
    """
    script = re.sub(r"(^|\n)python ", rf"\1{sys.executable} ", script)
    path = os.pathsep.join([str(folder), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    own = {**os.environ, "RL": str(ROOT), "OWN": PLUGINS, "PYTHONPATH": path}
    with (folder / "said").open("w", encoding="utf-8") as said:
        subprocess.run(["bash", "-ec", script], cwd=folder, env=own, check=True, stdout=said)


def sentence(name: str) -> str:
    """What a page says below the command."""
    runs = list(on_file()[name]["runs"].values())
    start = fmean(run["success_start"] for run in runs)
    end = student_interval([run["success_end"] for run in runs], 0.95)
    cost = fmean(run["cpu_seconds"] for run in runs)
    rise = f"{start:.2f} -> {end.mean:.2f} [{end.low:.2f}, {end.high:.2f}]"
    return f"Success on test tasks, mean of {len(runs)} seeds: {rise}. A run takes {cost:.0f} s of CPU time."


if __name__ == "__main__":
    main()
