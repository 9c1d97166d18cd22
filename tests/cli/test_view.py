"""``run.py view``: the export, and errors of one line with exit code 2."""

import base64
import json
import re
import zlib

import pytest
from viewer.made_run import HOSTILE, write_run

from rl_agents.cli import main


@pytest.fixture
def run_folder(tmp_path):
    return write_run(tmp_path / "run")


def test_the_export_is_whole_and_safe(run_folder, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["view", str(run_folder), "--export", str(out), "--last", "1"]) == 0
    assert re.search(r"the newest 1 iterations of each run, 8 sessions, \d", capsys.readouterr().out)
    index = json.loads((out / "data" / "index.js").read_text("ascii").removeprefix("window.exported=").rstrip(";\n"))
    places = unpacked(index["places"])
    assert "episode?run=run&session=i1.g0.m0" not in places
    number = places["episode?run=run&session=i2.g0.m0"]
    file = (out / "data" / f"{number}.js").read_text("ascii")
    answers = unpacked(file.removeprefix(f"window.exported.shards[{number}]=").strip('";\n'))
    assert HOSTILE in [step["action"] for step in answers["episode?run=run&session=i2.g0.m0"]["steps"]]
    for path in (out / "data").iterdir():
        assert not set("<>&\u2028") & set(path.read_text("ascii")), path
    plain = sum(len(json.dumps(answer)) for answer in answers.values())
    assert plain > 4 * len(file)  # what answers have in common is there once
    assert "Content-Security-Policy" in (out / "index.html").read_text("utf-8")
    assert main(["view", str(run_folder), "--export", str(out)]) == 2
    assert "is not empty" in capsys.readouterr().err
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk" / "pool.sqlite").write_bytes(b"junk" * 300)
    assert main(["view", str(tmp_path / "junk"), "--export", str(tmp_path / "new" / "out")]) == 2
    said = capsys.readouterr().err
    assert "pool.sqlite: not a pool, or a damaged one" in said and said.count("\n") == 1
    assert not (tmp_path / "new").exists()


def unpacked(text):
    return json.loads(zlib.decompress(base64.b64decode(text)))


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["RUN/../rum"], "rum: no such folder: did you mean 'run'?"),
        (["RUN/.."], "not the output folder of a run (no config.yaml, no pool.sqlite)"),
        (["RUN", "--port", "70000"], "--port 70000: must be between 1 and 65535"),
        (["RUN", "--export", "RUN/x", "--last", "-1"], "--last -1: must be at least 0"),
    ],
)
def test_mistakes_are_one_line(run_folder, capsys, argv, words):
    assert main(["view", *(word.replace("RUN", str(run_folder)) for word in argv)]) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and words in said.err and not said.out


def test_a_pool_alone_and_a_sweep(run_folder, tmp_path, capsys):
    sweep = tmp_path / "sweep"
    write_run(sweep / "trials" / "a-0")
    write_run(sweep / "trials" / "a-1", seed=1)
    for name, place in (("pool", run_folder / "pool.sqlite"), ("pages", sweep)):
        assert main(["view", str(place), "--export", str(tmp_path / name)]) == 0
        assert "iterations of each run" in capsys.readouterr().out
        assert (tmp_path / name / "index.html").is_file()
