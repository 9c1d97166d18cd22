"""Who gets which tests when three processes share them."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import pytest

pytest.importorskip("xdist", reason="pytest-xdist is not installed")
pytest_plugins = ["pytester"]

CONFTEST = """
import pytest
from side_by_side import pytest_xdist_make_scheduler, sort_items

def pytest_collection_modifyitems(config, items):
    sort_items(config, items)

@pytest.fixture(scope="session")
def ray_session(): pass
"""
UNIT = "import pytest, time\n@pytest.mark.parametrize('i', range(3))\ndef test_unit(i): time.sleep(0.1)\n"
SESSION = UNIT + "def test_it(ray_session): time.sleep(0.1)\n"
PROCESS = UNIT + "@pytest.mark.ray\ndef test_it(): time.sleep(0.1)\n"


def test_groups_stay_together_and_start_first(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    pytester.makeconftest(CONFTEST)
    pytester.makeini("[pytest]\nmarkers = ray: starts Ray")
    pytester.makepyfile(
        test_a=UNIT, test_b=UNIT, test_c=SESSION, test_d=PROCESS, test_e=SESSION, test_f=PROCESS, test_g=UNIT
    )
    (pytester.mkdir("trainer") / "test_h.py").write_text(SESSION, encoding="utf-8")
    result = pytester.runpytest_subprocess("-v", "-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")
    result.assert_outcomes(passed=29)
    files = defaultdict[str, list[str]](list)
    for line in result.outlines:
        if "PASSED" in line:
            worker, name = line.split()[0], line.split("test_")[1][0]
            files[worker] += [name] if name not in files[worker] else []
    groups = {tuple(names[: 1 if names[0] == "h" else 2]) for names in files.values()}
    assert groups == {("h",), ("c", "e"), ("d", "f")}
    assert sorted(name for names in files.values() for name in names) == list("abcdefgh"), "no file is played by two"
