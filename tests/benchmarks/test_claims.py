"""docs/research/claims.md equals the output of benchmarks/claims; its intervals and verdicts follow its rules."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from benchmarks import doc_tables
from benchmarks.claims import page
from benchmarks.claims.judge import CONTRADICTED, DIRECTION, HOLDS, NOTHING, TOO_FEW, UNTOLD, find, seeds_for, together
from benchmarks.claims.registry import CLAIMS, Comparison, panel
from benchmarks.grid import RESULTS


def test_the_page_is_that_of_the_results() -> None:
    judged = {claim.number: [page.judge(comparison) for comparison in claim.comparisons] for claim in CLAIMS}
    assert page.PAGE.read_text(encoding="utf-8") == page.page(judged), "python -m benchmarks.claims"
    assert all((page.IMAGES / f"{claim.number}.png").is_file() for claim in CLAIMS)


def test_there_are_twelve_and_their_arms_were_run() -> None:
    assert [claim.number for claim in CLAIMS] == list(range(1, 13))
    for claim in CLAIMS:
        for comparison in claim.comparisons:
            assert (RESULTS / f"{comparison.file}.json").is_file(), comparison
            assert page.paired(comparison), comparison


def test_power_by_hand() -> None:
    """Mean 0.10, s = 0.02, n = 3: half width t(0.99375, 2) s / sqrt(3) = 8.860 * 0.011547 = 0.1023."""
    found = find([0.08, 0.10, 0.12], paper=0.05)
    assert (found.effect.mean, found.spread) == pytest.approx((0.10, 0.02))
    assert found.effect.low == pytest.approx(0.10 - 0.1023, abs=2e-4)
    assert found.verdict == DIRECTION, "98.75 %, not 95 %: its interval would be above 0"
    # t(0.8, 2) = 1.0607, so that 3 seeds find (8.860 + 1.061) * 0.011547 = 0.1146 in four of five cases.
    assert found.resolution == pytest.approx(0.1146, abs=2e-4)
    # n = 4: (5.392 + 0.978) * 0.02 / 2 = 0.0637; n = 5: (4.315 + 0.941) * 0.02 / sqrt(5) = 0.0470.
    assert found.wanted == seeds_for(0.05, 0.02) == 5


def test_two_changes_are_compared() -> None:
    """StepPO falls from 0.9 to 0.8, PPO from 0.8 to 0.5: 0.2 in favor of the one that falls less."""
    runs = [{"success": {"0": 0.1, "14": value}} for value in (0.8, 0.5, 0.9, 0.8)]
    compared = Comparison("steppo", "a", "b", since=("c", "d"))
    assert compared.arms == ("a", "b", "c", "d") and compared.difference(runs) == pytest.approx(0.2)
    assert Comparison("steppo", "a", "b", sign=-1).difference(runs[:2]) == pytest.approx(-0.3)
    assert page.named(compared) == "a since c against b since d (steppo)"


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([0.1, 0.1001, 0.0999], HOLDS), ([-0.1, -0.1001, -0.0999], CONTRADICTED), ([0.3, -0.1, 0.0], DIRECTION),
        ([-0.3, 0.1, 0.0], NOTHING), ([0.1, 0.11], TOO_FEW), ([], UNTOLD), ([math.nan, math.nan, 0.1], TOO_FEW),
    ],
)  # fmt: skip
def test_verdicts(differences: list[float], verdict: str) -> None:
    assert find(differences, None).verdict == verdict


def test_a_claim_of_several_comparisons() -> None:
    assert together([HOLDS, HOLDS]) == HOLDS
    assert together([HOLDS, DIRECTION]) == DIRECTION
    assert together([HOLDS, UNTOLD]) == HOLDS
    assert together([HOLDS, NOTHING]) == "mixed: of 2 comparisons 1 holds, 1 does not show"
    assert together([NOTHING, HOLDS, HOLDS, CONTRADICTED, UNTOLD]) == (
        "mixed: of 4 comparisons 2 hold, 1 does not show, 1 is contradicted"
    )
    assert together([CONTRADICTED, CONTRADICTED]) == CONTRADICTED
    assert together([UNTOLD]) == UNTOLD
    assert together([UNTOLD, TOO_FEW]) == TOO_FEW


def test_what_is_kept_of_the_other_domains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From 0.5 and 0.3 to 0.4 and 0.3, and to 0.2 and 0.3: the mean falls by 0.05 and by 0.15."""

    def run(inside: float, first: float, second: float) -> dict[str, object]:
        each = {"a": first, "b": second}
        return {"success": {"0": inside}, "retained": {"0": (first + second) / 2}, "panel": each}

    arms = {
        "base": {"runs": {"0": run(0.1, 0.5, 0.3), "1": run(0.1, 0.5, 0.3)}},
        "sft": {"runs": {"0": run(0.9, 0.4, 0.3), "1": run(0.9, 0.2, 0.3)}},
        "PivotRL": {"runs": {"0": run(0.8, 0.5, 0.4)}},
    }
    (tmp_path / "x.json").write_text(json.dumps({"arms": arms}), encoding="utf-8")
    monkeypatch.setattr(doc_tables, "RESULTS", tmp_path)
    _, _, base, sft, pivotrl = panel("x").splitlines()
    assert base == "| base | 2 | 0.10 [0.10, 0.10] | 0.40 [0.40, 0.40] |  | 0.50 | 0.30 |"
    # s of -0.05 and -0.15 is 0.0707, half width 12.706 * 0.0707 / sqrt(2) = 0.635
    assert sft == "| sft | 2 | 0.90 [0.90, 0.90] | 0.30 [-0.34, 0.94] | -0.10 [-0.74, 0.54] | 0.30 | 0.30 |"
    assert pivotrl == "| PivotRL | 1 | 0.80 | 0.45 | 0.05 | 0.50 | 0.40 |"
