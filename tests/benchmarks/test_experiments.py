"""Experiments: a second command continues a grid from its result file; wrong names are refused."""

from __future__ import annotations

import json
from argparse import Namespace

import pytest

from benchmarks.doc_tables import on_file
from benchmarks.experiments import EXPERIMENTS, main, other_tasks
from benchmarks.grid import RESULTS


@pytest.mark.parametrize(
    "name", ["vspo", "vspo_mixed", "prs", "prs_long_form", "steppo", "steppo_rooms", "staleness", "t3"]
)
def test_arms_are_those_on_file(name: str) -> None:
    stored = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["arms"]
    args = Namespace(**{"env": "guess_numbers", **EXPERIMENTS[name].options, "presets": True})
    arms = {arm.name: list(arm.flags) for arm in EXPERIMENTS[name].arms(args)}
    same = [arm for arm in stored if arm in arms and stored[arm]["flags"][: len(arms[arm])] == arms[arm]]
    assert same == [arm for arm in stored if arm in arms] and len(same) >= 4


def test_what_an_arm_played_besides_is_a_column_each() -> None:
    table = other_tasks(on_file("active_circuit_decoding")).splitlines()
    assert table[0] == "| arm | 2-10 | 2-15 | 2-20 | 2-25 | 2-30 | 3-10 |" and len(table) == 4
    assert other_tasks({"grpo": [{}]}) == ""


@pytest.mark.parametrize("line", ["nothing", "vspo --arms grpo ppo", "vspo --set no_such_key=1"])
def test_wrong_names_end_with_one_line(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*line.split(), "--name", "never_written"])
    assert ended.value.code == 2 and "Traceback" not in capsys.readouterr().err
    assert not (RESULTS / "never_written.json").exists()
