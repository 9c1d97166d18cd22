"""Runs and batches give the numbers that `golden.runs` has recorded.

Bit by bit on the machine that recorded them. On another one the batches agree to 1e-5. Its runs sample other tokens as
soon as one bit of the warm-start model differs, so there they only have to finish with finite metrics.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from golden.runs import CASES, FILE, FIXED, WarmStarts, fixed, machine, play, resumed

GOLDEN: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
EXACT = GOLDEN["machine"] == machine()
#: The run that is saved before its last iteration, and resumed: it has two networks and a mismatch correction.
HALVED = "steppo"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> WarmStarts:
    return WarmStarts(tmp_path_factory.mktemp("golden"))


def check(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert len(found["metrics"]) == len(expected["metrics"])
    assert all(math.isfinite(value) for metrics in found["metrics"] for value in metrics.values())
    if EXACT:
        for number, (ours, recorded) in enumerate(zip(found["metrics"], expected["metrics"], strict=True), start=1):
            assert ours == recorded, f"iteration {number}"
        assert found["weights"] == expected["weights"]


@pytest.mark.rllib
@pytest.mark.parametrize("name", [name for name in CASES if name != HALVED])
def test_a_run_gives_the_recorded_metrics_and_weights(models: WarmStarts, name: str) -> None:
    check(play(CASES[name], models.of(CASES[name].env)), GOLDEN["runs"][name])


@pytest.mark.rllib
def test_a_run_gives_the_recorded_metrics_and_weights_resumed_too(models: WarmStarts, tmp_path: Path) -> None:
    recorded, case = GOLDEN["runs"][HALVED], CASES[HALVED]
    check(play(case, models.of(case.env), tmp_path / "000002"), recorded)
    check(resumed(tmp_path / "000002"), {**recorded, "metrics": recorded["metrics"][-1:]})


@pytest.mark.parametrize("name", FIXED)
def test_a_fixed_batch_gives_the_recorded_advantages_and_losses(name: str) -> None:
    expected = GOLDEN["batches"][name]
    wanted = expected if EXACT else {k: pytest.approx(v, rel=1e-5, abs=1e-6) for k, v in expected.items()}
    assert fixed(name) == wanted


def test_every_case_is_on_file() -> None:
    assert set(GOLDEN["runs"]) == set(CASES) and set(GOLDEN["batches"]) == set(FIXED)
