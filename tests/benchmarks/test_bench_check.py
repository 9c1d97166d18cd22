"""Runs stay within the work budgets of benchmarks/results/budget.json, and the check can fail."""

import json
from pathlib import Path

import pytest

from benchmarks import bench_check
from benchmarks.bench_check import BUDGET, CASES, Counts, check, excesses, measure_all, savings

pytestmark = pytest.mark.rllib


@pytest.fixture(scope="module")
def found() -> dict[str, Counts]:
    return measure_all()


def test_no_count_is_above_its_budget(found: dict[str, Counts]) -> None:
    assert not excesses(found, json.loads(BUDGET.read_text(encoding="utf-8"))), "python -m benchmarks.bench_check"


def test_every_case_works_and_shares_what_it_should(found: dict[str, Counts]) -> None:
    for case in CASES:
        assert min(found[case.name].values()) > 0, case.name
    for flat, shared in (("grpo, merged rows", "grpo, shared rows"), ("3spo, flat rows", "3spo, shared rows")):
        assert found[shared]["learner_tokens"] < 0.6 * found[flat]["learner_tokens"]
        assert found[shared]["prefill_tokens"] == found[flat]["prefill_tokens"]


def test_a_lower_budget_fails_and_says_how_to_accept(found: dict[str, Counts], tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(bench_check, "measure_all", lambda: found)  # measured once for all tests of this file
    file = tmp_path / "budget.json"
    assert bench_check.main(["--record", "--budget", str(file)]) == 0
    assert bench_check.main(["--budget", str(file)]) == 0
    budget = json.loads(file.read_text(encoding="utf-8"))
    budget["3spo, flat rows"]["prefill_tokens"] -= 1
    file.write_text(json.dumps(budget), encoding="utf-8")
    capsys.readouterr()
    assert bench_check.main(["--budget", str(file)]) == 1
    said = capsys.readouterr().out.splitlines()
    count = found["3spo, flat rows"]["prefill_tokens"]
    assert said[0].startswith(f"[bench-check] 3spo, flat rows: prefill_tokens is {count:,}, its budget {count - 1:,}")
    assert "--record" in said[1] and len(said) == 2


def test_new_counts_need_a_budget_and_bytes_have_some_room(tmp_path: Path) -> None:
    assert check(tmp_path / "absent.json", {"a": {"engine_passes": 3}}) == 1
    budget = {"a": {"engine_passes": 100, "trajectory_bytes": 1000}}
    assert not excesses({"a": {"engine_passes": 100, "trajectory_bytes": 1020}}, budget)
    assert len(excesses({"a": {"engine_passes": 101, "trajectory_bytes": 1021}}, budget)) == 2
    assert len(savings({"a": {"engine_passes": 99, "trajectory_bytes": 990}}, budget)) == 1
