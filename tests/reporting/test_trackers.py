"""Trackers: the real library, offline, with a run and its resumption; a failing one; a user's own."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rl_agents.cli import main
from rl_agents.errors import InputError
from rl_agents.reporting import trackers
from rl_agents.reporting.trackers import TRACKERS, TrackedRun, TrackerEntry, Trackers, check_trackers, shown_config
from tests.cli.coin_agent import CoinAgent

ROOT = Path(__file__).parents[2]
#: `make clients` installs wandb into a separate environment.
PYTHON = ROOT / ".venv-clients" / "bin" / "python"
#: Prints the records of .wandb files: seven bytes, then chunks within blocks of 32 KiB, as in LevelDB's log.
READ_WANDB = """
import struct, sys
from wandb.proto.wandb_internal_pb2 import Record
for path in sys.argv[1:]:
    data, at, parts = open(path, "rb").read(), 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        parts, at = parts + data[at + 7 : at + 7 + length], at + 7 + length
        if kind in (1, 4):
            record, parts = Record.FromString(parts), b""
            items = [(item.key or "/".join(item.nested_key), item.value_json) for item in record.history.item]
            print(record.WhichOneof("record_type"), items)
"""
#: Print what a page holds as JSON: settings, points of two curves, rows of the table, its state.
READ_MLFLOW = """
import json
from mlflow import MlflowClient, artifacts
client = MlflowClient()
experiment = client.get_experiment_by_name("project").experiment_id
[run] = client.search_runs([experiment])
curves = {n: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, n)] for n in run.data.metrics}
table = client.load_table(experiment, "eval/trajectories.json", [run.info.run_id]).to_dict("records")
config = artifacts.load_dict(run.info.artifact_uri + "/config.json")
print(json.dumps([run.data.params, config, curves, table, run.info.status]))
"""
READ_TRACKIO = """
import json, trackio
from trackio.sqlite_storage import SQLiteStorage
[run] = trackio.Api().runs("project")
logs = SQLiteStorage.get_logs("project", run.name)
curves = {n: [(log["step"], log[n]) for log in logs if n in log] for n in ("actor/loss", "eval/episodes")}
table = [row for log in logs for row in log.get("eval/trajectories", {"_value": []})["_value"]]
print(json.dumps([run.config, run.config, curves, table, ""]))
"""
LOSSES = [(i, i * 0.5) for i in range(5)]
ROWS = [{"iteration": i, "return": 0.5, "episode": f"# {kind}: <b>"} for i in (0, 2, 4) for kind in "ab"]


def python_with(name: str) -> str:
    """Return an interpreter that has a tracker's library."""
    if PYTHON.is_file() and list(PYTHON.parents[1].glob(f"lib/*/site-packages/{name}/__init__.py")):
        return str(PYTHON)
    if find_spec(name) is None:
        pytest.skip(f"no {name} here (make clients)")
    return sys.executable


def run_python(name: str, folder: Path, *command: str, **env: str) -> str:
    """Return the output of a program that may use a tracker's library, with its files in a folder."""
    files = {
        "WANDB_MODE": "offline", "PYTHONPATH": str(ROOT), "TRACKIO_DIR": str(folder / "trackio"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db", "MLFLOW_DISABLE_TELEMETRY": "true",
    }  # fmt: skip
    done = subprocess.run(
        [python_with(name), *command], cwd=folder, env=os.environ | files | env,
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def track_twice(name: str, folder: Path, **env: str) -> str:
    return run_python(name, folder, str(Path(__file__).with_name("track_twice.py")), str(folder), name, **env)


def test_wandb_offline_holds_every_iteration_once(tmp_path: Path) -> None:
    assert "failed and is disabled" not in track_twice("wandb", tmp_path)
    parts = sorted((tmp_path / "wandb").glob("offline-run-*"), key=lambda path: path.name)
    # offline-run-<day>_<time>-<id>; parts of one second get a number at the end.
    assert len(parts) == 2 and len({part.name.split("-")[3] for part in parts}) == 1, "one run in two parts"
    found = run_python("wandb", tmp_path, "-c", READ_WANDB, *(str(f) for part in parts for f in part.glob("*.wandb")))
    lines = [line for line in found.splitlines() if line.startswith("history") and "actor/loss" in line]
    assert [(int(value(line, "_step")), float(value(line, "actor/loss"))) for line in lines] == LOSSES
    assert sum("('eval/episodes', '8" in line and "table-file" in line for line in lines) == 3
    tables = [json.loads(path.read_text()) for path in (tmp_path / "wandb").rglob("*.table.json")]
    rows = [dict(zip(table["columns"], row, strict=True)) for table in tables for row in table["data"]]
    assert sorted(rows, key=lambda row: (row["iteration"], row["episode"])) == ROWS
    stored = b"".join(file.read_bytes() for file in (tmp_path / "wandb").rglob("*") if file.is_file())
    assert b"hidden" not in stored and b"me:word" not in stored


@pytest.mark.parametrize(
    ("name", "reader", "first", "state"),
    [("mlflow", READ_MLFLOW, {"lr": "0.1", "top_p": "0.9"}, "FINISHED"), ("trackio", READ_TRACKIO, {"lr": 0.2}, "")],
)
def test_a_page_has_settings_curves_and_episodes_and_a_resumed_run_continues_it(
    name: str, reader: str, first: dict[str, Any], state: str, tmp_path: Path
) -> None:
    assert "failed and is disabled" not in track_twice(name, tmp_path)
    params, config, curves, table, ended = json.loads(run_python(name, tmp_path, "-c", reader))
    # MLflow's parameters never change; its file does.
    assert params.items() >= first.items() and config.items() >= {"lr": 0.2, "top_p": 0.9, "note": None}.items()
    assert curves["actor/loss"] == [list(point) for point in LOSSES]
    assert curves["eval/episodes"] == [[0, 8.0], [2, 8.0], [4, 8.0]]
    assert table == ROWS and ended == state
    stored = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"hidden" not in stored and b"me:word" not in stored


def test_without_its_server_mlflow_is_disabled_and_the_run_continues(tmp_path: Path) -> None:
    closed = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    assert track_twice("mlflow", tmp_path, **closed).count("tracker mlflow failed and is disabled") == 2


def value(line: str, name: str) -> str:
    found = re.search(rf"\('{name}', '([^']*)'\)", line)
    assert found, (name, line)
    return found[1]


class Lines:
    """Keeps what it is given; if asked to, raises from the second iteration on."""

    told: list[Any]
    breaks = False

    def __init__(self, run: TrackedRun) -> None:
        self.id = run.known_as or f"{run.name} of {run.group}"
        self.told.append(self.id)

    def log(self, iteration: int, metrics: Mapping[str, float]) -> None:
        if self.breaks and iteration:
            raise OSError("no space left on device\nsecond line")
        self.told.append((iteration, dict(metrics)))

    def episodes(self, iteration: int, rows: Sequence[Mapping[str, Any]]) -> None:
        self.told.append(rows)

    def close(self, status: str) -> None:
        self.told.append(status)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Lines]]:
    Lines.told, Lines.breaks = [], False
    monkeypatch.setitem(TRACKERS, "lines", TrackerEntry("lines", Lines))
    yield Lines


def test_a_tracker_that_fails_is_left_alone_and_said_once(tmp_path: Path, lines: type[Lines]) -> None:
    lines.breaks, said = True, []
    told = Trackers(tmp_path, ["lines"], "p", {}, said.append)
    for iteration in range(4):
        told.write({"iteration": iteration, "a/b": 1.0})
    told.close("done")
    assert [re.sub(r"py:\d+", "py:LINE", line) for line in said] == [
        "[rl_agents] tracker lines failed and is disabled: no space left on device (test_trackers.py:LINE); "
        "the run continues"
    ]
    assert "done" not in lines.told


def test_a_late_evaluation_is_told_and_a_repeated_iteration_is_not(tmp_path: Path, lines: type[Lines]) -> None:
    folder = tmp_path / "sweep" / "trials" / "T=1"
    folder.mkdir(parents=True)
    told = Trackers(folder, ["lines"], "p", {}, print)
    told.write({"iteration": 1, "a/b": 1.0, "seconds": 2.0})
    told.write({"iteration": 1, "eval/success_rate": 0.5}, late=True)
    told.close("interrupted")
    again = Trackers(folder, ["lines"], "p", {}, print)
    again.write({"iteration": 1, "a/b": 1.0})
    again.close("done")
    both = ["T=1 of sweep", (1, {"a/b": 1.0}), (1, {"eval/success_rate": 0.5}), "interrupted", "T=1 of sweep", "done"]
    assert lines.told == both


def test_what_failed_is_told_by_the_resumed_run(tmp_path: Path, lines: type[Lines]) -> None:
    for lines.breaks in (True, False):
        told = Trackers(tmp_path, ["lines"], "p", {}, lambda text: None)
        for iteration in range(3):
            told.write({"iteration": iteration, "a/b": 1.0})
        told.close("done")
    assert [entry[0] for entry in lines.told if isinstance(entry, tuple)] == [0, 1, 2]


@pytest.mark.parametrize("method", ["__init__", "log"])
def test_a_slow_tracker_holds_up_nothing(
    method: str, tmp_path: Path, lines: type[Lines], monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()

    def wait(*given: Any) -> None:
        release.wait()

    monkeypatch.setattr(lines, method, wait)
    monkeypatch.setattr(trackers, "PATIENCE_S", 0.2)
    said: list[str] = []
    told = Trackers(tmp_path, ["lines"], "p", {}, said.append)
    for iteration in range(100):
        told.write({"iteration": iteration, "a/b": 1.0})
    told.close("done")
    assert "lines: still busy" in said[0]
    release.set()
    for thread in [each for each in threading.enumerate() if each.name == "trackers"]:
        thread.join(60)


def test_a_run_tells_it_all(tmp_path: Path, lines: type[Lines], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_agents.cli.train.build_algorithm", CoinAgent)
    keys = ["--set", "trackers=[lines]", "eval_episodes=8", "eval_interval=2", "model=starter"]
    out = tmp_path / "run"
    assert main(["--algo", "grpo", "--iterations", "2", "--output", str(out), *keys]) == 0
    assert main(["--resume", str(out), "--iterations", "3"]) == 0
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    known = [entry for entry in lines.told if isinstance(entry, tuple)]
    assert [iteration for iteration, _ in known] == [record["iteration"] for record in records] == [0, 1, 2, 3]
    assert known[2][1] == {tag: number for tag, number in records[2].items() if "/" in tag}
    tables = [entry for entry in lines.told if isinstance(entry, list)]
    assert [table[0]["iteration"] for table in tables] == [0, 2, 3] and all(len(table) == 8 for table in tables)
    assert [entry for entry in lines.told if entry in ("run of ", "done")] == ["run of ", "done"] * 2


def test_unknown_and_missing_ones_are_refused_before_anything_starts(tmp_path, monkeypatch, capsys) -> None:
    argv = ["--algo", "grpo", "--output", str(tmp_path / "run"), "--set"]
    for wrong, near in (("wandbb", "wandb"), ("MLFlow", "mlflow"), ("track-io", "trackio")):
        assert main([*argv, f"trackers=[{wrong}]"]) == 2
        assert f"unknown tracker '{wrong}': did you mean '{near}'?" in capsys.readouterr().err
    monkeypatch.setitem(TRACKERS, "lost", TrackerEntry("lost", Lines, "no_such_library", "pip install lost"))
    with pytest.raises(InputError, match="no_such_library is not installed; install it with: pip install lost"):
        check_trackers(["lost"])
    (tmp_path / "no_such_library").mkdir()  # such as the files of wandb's offline runs
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match="no_such_library is not installed"):
        check_trackers(["lost"])
    assert main([*argv, "tracker_project=x"]) == 2
    assert "tracker_project" in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_secrets_are_not_shown() -> None:
    keys = {"max_response_tokens": 4, "api_key": "a", "judge_token": "b", "pool": "postgresql://u:p@h/d", "lr": 0.1}
    assert shown_config(keys) == {"max_response_tokens": 4, "pool": "postgresql://***@h/d", "lr": 0.1}
    deep = {"urls": ["http://u:pw@h/v1"], "env_args": {"api_key": "S", "n": 1}, "q": "see http://h/v1?api_key=S now"}
    assert shown_config(deep) == {"urls": ["http://***@h/v1"], "env_args": {"n": 1}, "q": "see http://h/v1?*** now"}
    assert trackers.STATE_FILE == "trackers.json"
