"""Every command line of the README, the tutorials and the how-to pages is executed, or covered by a test named here.

As printed, by a shell in a folder that looks like a checkout, with words added that only make it small.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from chat_models import save_chat_model
from data.made_tables import HOTPOT, TOOL, dialogue, written
from envs.alfworld.games import write_games
from envs.test_multihop_qa import HOTPOT as OFFICIAL
from envs.test_multihop_qa import MUSIQUE
from envs.test_situation_puzzles import record as puzzle
from envs.test_webshop import official, record
from plugin_folder import as_a_new_process
from processes import free_port
from serving.in_process import Server
from test_doc_commands import commands_in

from benchmarks import gpu_memory, treasure
from rl_agents.cli import main
from rl_agents.config import parse_assignments
from rl_agents.data.hub import hub_files
from rl_agents.envs.harbor.sandbox import sandbox_kind
from rl_agents.errors import InputError
from rl_agents.serving import app
from rl_agents.tuning.trial import SweepTrial

pytestmark = pytest.mark.rllib
ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted((DOCS / "tutorials").glob("*.md")), *sorted((DOCS / "how-to").glob("*.md"))]
#: What the commands of a page print.
PRINTED = [r"^node \d", r"^all processes fit$"]
#: What is no command, either: results of a longer run, a game's text, a line of a recipe.
SHOWN = ["^success on (the test|training) tasks", "^p = ", "^A note says", "^Which key fits", "^# yaml"]
#: The test that executes a line.
ELSEWHERE = {
    r"^\. \.venv|RAY_AUTH_MODE|^\(umask|^ray (start --head|start --address=\$|job)": "integration/test_ray_job.py",
    r"resources|learner_nodes": "integration/test_two_nodes.py",
    r"^make wheel": "test_wheel.py",
    r"run\.py model smollm2": "integration/test_real_model.py",
    r"trackers=\[trackio": "reporting/test_trackers.py",
    r"benchmarks\.airline": "benchmarks/test_airline.py",
    r"one-file/start": "test_one_file.py",
    r"env openenv": "envs/test_openenv.py",
    r"env verifiers": "envs/test_verifiers.py",
    r"c(laude_code|odex)_grpo": "gateway/clients/test_coding_commands.py",
}
#: The reason why no test does.
CANNOT = {
    r"^make test": "it is what runs this",
    r"^make (.*ready|clients|coding-agents)|^pip install|^uv tool": "installs from a package index",
    r"hf download": "downloads from the Hugging Face Hub",
    r"^hf upload": "needs an account of the Hugging Face Hub",
    r"benchmarks\.(real_model|curriculum|self_play)": "trains for minutes or hours",
}
NOT_HERE = [*PRINTED, *SHOWN, *ELSEWHERE, *CANNOT]


def usable(sandbox: str) -> bool:
    try:
        return bool(sandbox_kind(sandbox))
    except InputError:
        return False


#: Whether there is what a line needs.
IF = {
    r"env mcp": find_spec("mcp") is not None,
    r"env harbor": usable("bubblewrap"),
    r"AGENT_KEY": shutil.which("openssl") is not None,
    r"venv-clients/bin": (ROOT / ".venv-clients" / "bin" / "python").exists(),
}
#: The beginnings of all other lines.
KNOWN = r"(\S*python|rl-agents|curl|serve|make|test|export|mkdir|cp|cd|grep) |[A-Z]+="
#: What stands in a line, and what is typed instead.
INSTEAD = [
    (r"(?<!\S)\S*python \S*run\.py\b|^rl-agents(?!.*>)", "run"),
    (r"\.venv/bin/python(?= -m)", "python"),
    (r"runs/sweep-vspo_small-\d\S+", "$(ls -d runs/sweep-vspo_small-* | head -1)"),
    (r"12:13", "0:1"),
    (r"000040|000014", "000001"),
    (r"--output DIR", "--output made"),
    (r"--output runs/tour-sweep", "--output runs/new-sweep"),
]
#: What builds a warm-start model of its own.
OWN = r"(shop|dial|kuhn_poker)\.py|opponent=self|,circuit"
#: Words that are added to the arguments of `run.py`.
SMALLER = [
    (rf"^--(?!resume)(?!.*(model|alfworld|treasure|my_task|tools_agent|{OWN}))", "--model START"),
    (rf"^--.*({OWN})", "--set starter_iterations=1"),
    (r"alfworld_chain_gae_weak|tools_agent", "--model MODEL"),
    (r"^--", "--local --set minibatches=1 eval_episodes=2 max_turns=2"),
    (r"^--.*(DIR|MODEL|weak|my_task|1gpu)", "--set max_response_tokens=8"),
    (r"^--(?!resume)", "--iterations 1 --set tasks_per_iteration=2"),
    (r"^--resume", "--iterations 2"),
    (r"^--.*(my_task|1gpu)", "--set engine=torch num_learners=0 gpus_per_learner=0"),
    (r"env harbor", "--set env.sandbox=bubblewrap"),
    (r"agent_command", "--set tasks_per_iteration=1 group_size=2 max_model_len=2048"),
    (r"^sft", "--iterations 1 --set demonstrations=16 minibatches=1"),
    (r"^eval", "--local --episodes 2"),
    (r"^view(?!.*--export)", "--export NEW"),
    (r"^doctor(?! --c)", "--quick"),
    (r"^tune(?! --resume)", "--local --set tasks_per_iteration=2 minibatches=1 eval_episodes=2"),
    (r"^tune(?! --resume)(?!.*model)", "--iterations 1 --set model=START"),
    (r"^tune.*path/to", "--set iterations=1 max_turns=2 max_response_tokens=8"),
    (r"^serve", "--engine torch --port PORT"),
]
#: Prints its words, each with a zero.
BASH = "".join(f"{name}() {{ printf '%s\\0' {name} \"$@\"; }}\n" for name in ("run", "python", "curl", "make", "serve"))
AGENT = """import json, os, sys, urllib.request
task, url, key = json.loads(sys.argv[1]), os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
body = {"model": "policy", "messages": [{"role": "user", "content": task["question"]}]}
head = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
asked = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), head)
answer = json.load(urllib.request.urlopen(asked))["choices"][0]["message"]["content"]
print(json.dumps({"reward": float(answer == task["answer"])}))
"""


def block(page: str, after: str) -> str:
    """Return the first block of code of a page after some words."""
    return re.search(r"```\w+\n(.*?)```", (DOCS / page).read_text("utf-8").split(after, 1)[1], re.DOTALL)[1]


def many(row: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    return [{**row, "id": f"{name}{number}"} for number in range(20)]


def hub(name: str, file: str) -> str:
    return f"hub/datasets--{name}/snapshots/{'a' * 40}/{file}"


def tables() -> dict[str, Any]:
    """The data of docs/how-to/use-your-data.md, in few rows, by file."""
    traces = [{"messages": dialogue(number), "tools_json": json.dumps([TOOL])} for number in range(3)]
    turns = [("user", "Dry?"), ("assistant", '[get(city="Rome")]'), ("tool", "dry"), ("assistant", "Dry.")]
    asked = {"prompt": [{"role": "user", "content": "1 + 1?"}], "reward_model": {"ground_truth": "2", "style": "rule"}}
    hotpot = {**HOTPOT, "answer": "Oder", "type": "bridge"}
    return {
        hub("hotpotqa--hotpot_qa", "distractor/train-0.parquet"): many(hotpot, "t"),
        hub("hotpotqa--hotpot_qa", "distractor/validation-0.parquet"): many(hotpot, "v"),
        hub("google-research-datasets--nq_open", "nq_open/train-0.parquet"): [{"question": "q", "answer": ["a"]}] * 9,
        hub("Team-ACE--ToolACE", "data.json"): [{"conversations": [{"from": who, "value": t} for who, t in turns]}],
        hub("OWNER--COPY", "data/train-0.parquet"): traces,
        "math.parquet": [asked] * 20,
        "dialogues.parquet": [{"dialogue": trace["messages"], "tools_json": trace["tools_json"]} for trace in traces],
        "expert.parquet": [{"chat": trace["messages"]} for trace in traces],
        "traces.jsonl": [{"messages": trace["messages"]} for trace in traces],
        "train.json": many(OFFICIAL, "t"), "dev.json": many(OFFICIAL, "d"),
        "wiki.jsonl": [{"id": "1", "contents": "Bo"}],
        "musique_ans_v1.0_train.jsonl": many(MUSIQUE, "t"), "musique_ans_v1.0_dev.jsonl": many(MUSIQUE, "d"),
        **{f"AR-Bench/data/sp/{split}.json": [puzzle()] for split in ("train", "test")},
        "gpt-4o-airline.json": [{"task_id": 1, "reward": 1.0, "traj": trace["messages"]} for trace in traces],
    }  # fmt: skip


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory, beginner_model_dir: Path) -> Path:
    """What the pages name: models, a finished run under many names, data, and the files of their own blocks."""
    folder = tmp_path_factory.mktemp("made") / "checkout"
    save_chat_model(folder / "DIR")
    for name in ("docs", "tune_configs", "benchmarks", "run.py", "Makefile", ".venv-clients"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "START").symlink_to(beginner_model_dir)
    for name in ("MODEL", "models/qwen2.5-1.5b", "path/to/model", "runs/demo-llm/smollm2"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(folder / "DIR")
    for name, rows in tables().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".parquet"):
            written(folder / name, rows)
        else:
            (folder / name).write_text(json.dumps(rows) if name.endswith(".json") else "\n".join(map(json.dumps, rows)))
    for home in (folder / "hub").iterdir():
        (home / "refs").mkdir()
        (home / "refs" / "main").write_text("a" * 40)
    for split in ("train", "valid_seen"):
        write_games(folder / "DIR" / "json_2.1.1" / split, ["small/pick/bedroom-1/1", "small/heat/kitchen-1/1"])
    wish = {"instruction": "i need a red chair.", "instruction_attributes": ["easy wash"], "instruction_options": []}
    official(folder / "DIR", [record("B1")], {}, {"B1": [wish] * 2000})
    for path in (*(DOCS / "examples").glob("plugins/*.py"), *(DOCS / "examples").glob("mcp/*.json*")):
        shutil.copy(path, folder)
    (folder / "FILE").symlink_to("servers.json")
    shutil.copy(DOCS / "examples" / "tutorial" / "shop.py", folder)
    (folder / "lock.py").write_text(block("environments/gymnasium.md", "`lock.py`"))
    (folder / "my_task.yaml").write_text(block("how-to/scale.md", "`my_task.yaml`"))
    (folder / "my_sweep.yaml").write_text(block("how-to/tune.md", "## The sweep file"))
    (folder / "agent.py").write_text(AGENT)
    small = ["--local", "--iterations", "1", "--set", "tasks_per_iteration=2", "eval_episodes=4", "max_turns=3"]
    assert main(["--model", str(beginner_model_dir), "--output", str(folder / "runs" / "NAME"), *small]) == 0
    for name in ("runs/demo", "runs/a", "runs/b", "runs/c", "runs/tour-sweep/trials/a"):
        shutil.copytree(folder / "runs" / "NAME", folder / name)
    return folder


def overridden(argv: list[str], more: list[str]) -> list[str]:
    """Return the words with the flags and keys of ``more`` instead of their own."""
    flags = {word for word in more if word.startswith("--")} - {"--set", "--local", "--quick"}
    keys, kept, words = {word.partition("=")[0] for word in more if "=" in word}, list[str](), iter(argv)
    for word in words:
        if word in flags:
            next(words)
        elif word.startswith("--") or word.partition("=")[0] not in keys:
            kept.append(word)
    pairs = zip(kept, [*kept[1:], "--"], strict=True)
    return [*(word for word, after in pairs if word != "--set" or not after.startswith("--")), *more]


class Shell:
    """Types the lines of a page, one after the other.

    Attributes:
        done: the calls so far; the recipe of a target and a page may name the same ones.
        servers: of every `serve`, without Ray.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder, patch
        self.done: list[list[str]] = []
        self.servers: list[Server] = []

    def type(self, line: str) -> None:
        """Let bash read a line, and keep the variables and the folder that it leaves; then make the call in it."""
        assert re.match(KNOWN, line), line
        for pattern, new in INSTEAD:
            line = re.sub(pattern, new, line)
        script, left = f"{BASH}set -ea\n{line}\nenv -0 >$LEFT", self.folder / "left"
        read = subprocess.run(
            ["bash", "-c", script], env={**os.environ, "LEFT": str(left)}, capture_output=True, text=True, check=False
        )
        assert read.returncode == 0, (line, read.stderr)
        for name, value in (item.split("=", 1) for item in left.read_text().split("\0")[:-1]):
            self.patch.setenv(name, value)
        self.patch.chdir(os.environ["PWD"])
        words = read.stdout.split("\0")[:-1]
        if words and words not in self.done:
            self.done.append(words)
            getattr(self, words[0])(*words[1:])

    def run(self, *argv: str) -> None:
        small, port, new = list(argv), str(free_port()), tempfile.mkdtemp(dir=self.folder)
        for pattern, more in SMALLER:
            if re.search(pattern, " ".join(argv)):
                small = overridden(small, more.replace("PORT", port).replace("NEW", new).split())
        with as_a_new_process(self.folder):
            code = main(small)
        # A server ends by Ctrl-C, and of a sweep only the first run is made.
        assert code == {"serve": 130, "tune": 1}.get(argv[0], 0), (argv, small)
        for flag, name in pairwise(argv):
            assert flag not in ("--output", "--export") or any(Path(name).iterdir())

    def make(self, target: str) -> None:
        asked = ["make", "-n", "--no-print-directory", "-o", ".venv/.ready", target]  # `make test` runs this
        recipe = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
        for line in re.sub(r"\\\n\s*", "", recipe).splitlines():
            self.type(line)

    def python(self, *words: str) -> None:
        if words == ("-m", "benchmarks.gpu_memory"):
            return gpu_memory.main()
        assert words[:2] == ("-m", "benchmarks.treasure")
        treasure.main(list(words[2:]))

    def serve(self, _: str, place: str, *keys: str) -> None:
        """Ray Serve's own command."""
        assert place == "rl_agents.serving.app:build"
        app.build({**parse_assignments(keys), "engine": "torch"})

    def curl(self, *words: str) -> None:
        parser = argparse.ArgumentParser()
        for flag in ("-X", "-H", "-d"):
            parser.add_argument(flag)
        args, (url,) = parser.parse_known_args(words)
        assert args.H == "Content-Type: application/json"
        server, body = self.servers[-1], json.loads(args.d)
        answer = server.request(args.X or "POST", "/" + url.split("/", 3)[3], body)
        assert answer.status_code == 200, answer.text
        assert "model" not in body or body["model"] == server.service.model()["id"]


@pytest.fixture
def shell(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A shell in a copy of the folder; servers and sweeps start neither Ray nor other processes."""
    folder = shutil.copytree(checkout, tmp_path / "checkout", symlinks=True)
    shell = Shell(tmp_path, monkeypatch)
    cache = checkout.with_name("cache")  # what one page's commands have built need not be built for the next
    for name, value in (("HOME", tmp_path), ("RL", folder), ("RL_AGENTS_CACHE", cache)):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder / "hub"))
    hub_files.cache_clear()
    monkeypatch.chdir(folder)
    build = app.build

    def built(keys: Mapping[str, Any]) -> Any:
        application = build(keys)  # with all that it checks
        shell.servers.append(Server(**{name: value for name, value in keys.items() if value}))
        return application

    monkeypatch.setattr(app, "build", built)
    for name in ("_start", "_wait", "_stop"):
        monkeypatch.setattr(f"rl_agents.cli.serve.{name}", lambda *_: None)
    for name in ("ensure_ray", "join_cluster"):
        monkeypatch.setattr(f"rl_agents.trainer.ray_init.{name}", lambda *_: None)
    monkeypatch.setattr("rl_agents.resources.cluster_nodes", lambda: [{"CPU": 16.0}, {"CPU": 96.0, "GPU": 8.0}])
    monkeypatch.setattr("rl_agents.tuning.driver.run_sweep", first_run)
    yield shell
    for server in shell.servers:
        server.close()


def first_run(sweep: Any, folder: Any, settings: Any, interrupts: Any) -> str:
    """Of a sweep, in this process."""
    folder.begin(sweep)
    spec = folder.left(sweep)[0]
    trial = {"name": spec.name, "bundles": [], "settings": settings[spec.name]}
    running = SweepTrial({"sweep": sweep, "output": str(folder.path), "trial": trial})
    while not running.train()["done"]:
        pass
    running.stop()
    assert folder.is_done(spec)
    return ""


def entries(line: str, table: Sequence[str] | Mapping[str, Any]) -> list[str]:
    return [pattern for pattern in table if re.search(pattern, line)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_run_in_their_order(page: Path, shell: Shell, capsys) -> None:
    lines = commands_in(page.read_text(encoding="utf-8"))
    for line in lines:
        if not entries(line, NOT_HERE) and all(IF[entry] for entry in entries(line, IF)):
            shell.type(line)
    said = capsys.readouterr().out.splitlines()
    assert [line for line in lines if entries(line, PRINTED) and line not in said] == []


def test_every_line_is_executed_once_and_every_entry_is_used() -> None:
    lines = [line for page in PAGES for line in commands_in(page.read_text(encoding="utf-8"))]
    assert [line for line in lines if len(entries(line, NOT_HERE)) > 1] == []
    assert [line for line in lines if not entries(line, NOT_HERE) and not re.match(KNOWN, line)] == []
    assert [entry for entry in [*NOT_HERE, *IF] if not any(re.search(entry, line) for line in lines)] == []
    assert [file for file in ELSEWHERE.values() if not (ROOT / "tests" / file).is_file()] == []
