"""The tour's notebook: its cells run in order, and the agent improves."""

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[1] / "docs" / "examples" / "tour.ipynb"

pytestmark = pytest.mark.rllib


def test_the_tour(beginner_model_dir, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.chdir(tmp_path)
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell.get("outputs") for cell in notebook["cells"]), "outputs are not committed"
    assert '"starter", 15' in cells[0]
    cells[0] = cells[0].replace('"starter", 15', f'"{beginner_model_dir}", 8')
    names: dict[str, Any] = {}
    for number, cell in enumerate(cells):
        exec(compile(cell, f"{NOTEBOOK.name}, cell {number}", "exec"), names)
    assert len(names["history"]) == 8 and names["end"] > names["start"]
    out = capsys.readouterr().out
    assert "writes " in out and "tokens of version 7" in out
    assert (tmp_path / "runs" / "notebook" / "hf" / "model.safetensors").is_file()
