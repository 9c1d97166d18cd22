"""With ``--tiny`` the GPU benchmarks run on any computer, without Ray, and their figures are consistent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu

ROOT = Path(__file__).parents[2]


def tiny(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return the rows of a benchmark's file, and check that their table was printed."""
    gpu.main([name, "--tiny", "--out", str(folder)])
    printed = capsys.readouterr().out
    data = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    assert data["options"]["tiny"] and data["device"] in printed
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(data["rows"]) and all(len(row) == lines[0].count("|") - 1 for row in data["rows"])
    return list(data["rows"])


def test_layouts_forward_fewer_tokens_and_have_the_same_gradient(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tiny("layouts", tmp_path, capsys)
    padded, packed, shared, both = (row["forwarded"] for row in rows)
    assert padded > packed > shared >= both and rows[0]["tokens"] >= packed
    assert all(abs(row["gradient's norm, relative"]) < 1e-5 for row in rows)


def test_memory_falls_with_recompute(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    peaks = {(row["recompute"], row["logits"]): row["peak GB"] for row in tiny("memory", tmp_path, capsys)}
    for logits in ("at once", "in pieces"):
        assert peaks["none", logits] > peaks["selective", logits] > peaks["full", logits]


def test_merged_rows_have_fewer_tokens_and_the_same_gradient(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = tiny("merging", tmp_path, capsys)
    assert (row["tokens a step"], row["tokens merged"]) == (2560, 928)
    assert abs(row["gradient's norm, relative"]) < 1e-5


def test_they_need_neither_ray_nor_vllm() -> None:
    code = "import sys; sys.modules.update(ray=None, vllm=None)\nfrom benchmarks import gpu"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=120)


def test_flops_are_those_of_the_formula() -> None:
    shape = gpu.SHAPES["7b"]
    weights = shape.parameters - 2 * shape.vocabulary * shape.hidden
    attention = sum(4 * (position + 1) * shape.hidden for position in range(1000)) * shape.layers
    counted = gpu.forward_flops(shape, 1000, 0)
    assert counted == pytest.approx(2 * weights * 1000 + attention, rel=1e-3)
    assert gpu.forward_flops(shape, 1000, 10) - counted == pytest.approx(20 * shape.vocabulary * shape.hidden)
