"""Intervals and verdicts of docs/research/claims.md follow its rules."""

import math
from pathlib import Path

import pytest

from benchmarks.claims import __main__ as claims
from benchmarks.claims import starts
from benchmarks.claims.judge import (
    AGAINST_ALONE,
    CONTRADICTED,
    DIRECTION,
    HOLDS,
    HOLDS_ALONE,
    NOTHING,
    TOO_FEW,
    UNTOLD,
    find,
    seeds_for,
)
from benchmarks.claims.registry import CLAIMS

PAGE = Path(__file__).parents[2] / "docs" / "research" / "claims.md"


@pytest.mark.parametrize("number", [6, 12, 13])
def test_verdicts_of_the_page_are_those_of_the_comparisons(number: int) -> None:
    """The page says of all other claims that their comparisons cannot decide them, or where they do."""
    page, said = " ".join(PAGE.read_text(encoding="utf-8").split()), claims.verdict(number)
    assert f"**Verdict: {said}.**" in page and f"| [{number}](#claim-{number})." in page and f"| {said} |" in page


def test_there_are_thirteen_and_their_arms_were_run() -> None:
    assert list(CLAIMS) == list(range(1, 14))
    for number, comparisons in CLAIMS.items():
        assert all(claims.paired(comparison) for comparison in comparisons)
        assert (claims.IMAGES / f"{number}.png").is_file()


def test_a_comparison_from_several_starts_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leads 0.1, 0.2, 0.3 at first, and 0.2 more in the end: 90% are 0.2 ± t(0.95, 2) 0.1 / sqrt(3) = 0.2 ± 0.1686."""

    def arm(*ends: float) -> dict[tuple[str, str], dict[str, dict[str, float]]]:
        return {(str(start), "0"): {"success": {"0": 0.0, "9": end}} for start, end in enumerate(ends)}

    own = starts.Compared(1, "a", "b", since=("c", "d"))
    tests = {"one": starts.Test("env", (), dict.fromkeys("abcd", ()), (own,))}
    runs = {"a": arm(0.4, 0.5, 0.6), "b": arm(0.1, 0.1, 0.1), "c": arm(0.3, 0.3, 0.3), "d": arm(0.1, 0.1, 0.1)}
    monkeypatch.setattr(starts, "TESTS", tests)
    monkeypatch.setattr(starts, "runs_on_file", lambda name: runs)
    (found,) = starts.compared().values()
    assert list(found.values()) == pytest.approx([0.1, 0.2, 0.3]) and starts.margin(found) == "0.37"
    runs["d"].popitem()
    assert starts.complete() == starts.compared() == {}, "an arm lacks a start"


def test_power_by_hand() -> None:
    """Mean 0.10, s = 0.02, n = 3: half width t(0.99375, 2) s / sqrt(3) = 8.860 * 0.011547 = 0.1023."""
    found = find([0.08, 0.10, 0.12], paper=0.05)
    assert (found.effect.mean, found.spread) == pytest.approx((0.10, 0.02))
    assert found.effect.low == pytest.approx(0.10 - 0.1023, abs=2e-4)
    assert found.verdict(0.0) == DIRECTION, "98.75 %, not 95 %: its interval would be above 0"
    # t(0.8, 2) = 1.0607, so that 3 seeds find (8.860 + 1.061) * 0.011547 = 0.1146 in four of five cases.
    assert found.resolution == pytest.approx(0.1146, abs=2e-4)
    # n = 4: (5.392 + 0.978) * 0.02 / 2 = 0.0637; n = 5: (4.315 + 0.941) * 0.02 / sqrt(5) = 0.0470.
    assert found.wanted == seeds_for(0.05, 0.02) == 5


@pytest.mark.parametrize(
    ("differences", "verdict", "unadjusted"),
    [
        ([0.1, 0.1001, 0.0999], HOLDS, HOLDS_ALONE), ([-0.1, -0.1001, -0.0999], CONTRADICTED, AGAINST_ALONE),
        ([0.3, -0.1, 0.0], DIRECTION, DIRECTION), ([-0.3, 0.1, 0.0], NOTHING, NOTHING),
        ([0.1, 0.11], TOO_FEW, TOO_FEW), ([], UNTOLD, UNTOLD), ([math.nan, math.nan, 0.1], TOO_FEW, TOO_FEW),
    ],
)  # fmt: skip
def test_verdicts(differences: list[float], verdict: str, unadjusted: str) -> None:
    """Of an adjusted p below and above 5%."""
    assert find(differences, None).verdict(0.04) == verdict
    assert find(differences, None).verdict(0.06) == unadjusted


def test_p_counts_every_look() -> None:
    """t = 0.10 / (0.02 / sqrt(3)) = 8.66 with 2 degrees of freedom: p = 0.01307, times four looks."""
    assert find([0.08, 0.10, 0.12], None).p == pytest.approx(4 * 0.01307, abs=1e-4)
    assert find([0.1, 0.1], None).p == 1.0, "too few seeds"


def test_verdicts_are_adjusted_for_all_comparisons_of_the_page() -> None:
    """PRS on long answers: its interval excludes 0, p of it alone is 0.04, and 61 comparisons are on the page."""
    (own,) = [c for c in CLAIMS[13] if c.file == "prs_long_form" and "vspo" not in c.ours]
    assert claims.judge(own).finding.effect.high < 0 and claims.verdict_of(own) == AGAINST_ALONE
    assert len(claims.adjusted()) == 61 and "for the 61 comparisons" in PAGE.read_text(encoding="utf-8")
