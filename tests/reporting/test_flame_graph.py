"""The flame graph of ``--profile``, by the real py-spy."""

import sys
from pathlib import Path

import pytest

from rl_agents.reporting import flame_graph as module
from rl_agents.reporting.flame_graph import flame_graph


def busy_here() -> int:
    return sum(number * number % 7 for number in range(8_000_000))


def test_the_graph_names_the_functions_that_ran(tmp_path: Path) -> None:
    path, notes = tmp_path / "graph.svg", list[str]()
    with flame_graph(path, notes.append):
        busy_here()
    if not path.is_file() and "permission" in notes[0].lower():
        pytest.skip(f"this machine lets no process read another one: {notes[0]}")
    assert "busy_here" in path.read_text(encoding="utf-8") and notes == [f"flame graph: {path}"]


def test_a_sampler_that_cannot_run_does_not_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes, folder = list[str](), tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", str(folder))
    with flame_graph(tmp_path / "graph.svg", notes.append):
        pass
    assert notes == ["no flame graph: py-spy is not installed (pip install py-spy)"]
    (folder / "py-spy").write_text("#!/bin/sh\necho not permitted >&2\nexit 3\n")
    (folder / "py-spy").chmod(0o755)
    with flame_graph(tmp_path / "graph.svg", notes.append):
        pass
    assert notes[1:] == ["no flame graph: not permitted"] and not (tmp_path / "graph.svg").exists()


def test_a_sampler_that_does_not_draw_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = list[str]()
    (tmp_path / "py-spy").write_text("#!/bin/sh\ntrap '' INT\necho sampling\nwhile :; do /bin/sleep 0.1; done\n")
    (tmp_path / "py-spy").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(module, "DRAWING_S", 0.3)
    with flame_graph(tmp_path / "graph.svg", notes.append):
        pass
    assert notes == ["no flame graph: py-spy was not done after 0 s"]
