"""What a run prints when an expensive fixture cannot start."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

CONFTEST = """
import pytest
from first_cause import pytest_runtest_setup

def start(*, options={"one": 1, "two": 2}):
    calls.append(1)
    raise RuntimeError("no node\\n\\nmany lines about it")

calls = []

@pytest.fixture(scope="session")
def cluster():
    start()

@pytest.fixture(scope="module")
def service(cluster):
    return 1

@pytest.fixture
def broken():
    raise ValueError("each time anew")
"""
MANY = """
import pytest
@pytest.mark.parametrize("i", range(50))
def test_needs_it(cluster, i): pass
@pytest.mark.parametrize("i", range(50))
def test_needs_a_service(service, i): pass
@pytest.mark.parametrize("i", range(2))
def test_another_cause(broken, i): pass
def test_needs_nothing(): pass
"""


def test_the_cause_is_printed_once(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_many=MANY)
    result = pytester.runpytest("-q", "--tb=short", "-rfEs", "-k", "needs")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, errors=1, skipped=99)
    assert len(result.outlines) < 40
    result.stdout.fnmatch_lines(["SKIPPED [[]99[]] * as test_many.py::test_needs_it[[]0[]]: RuntimeError: no node"])


def test_each_failure_of_a_cheap_fixture_counts(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_many=MANY)
    pytester.runpytest("-q", "-k", "another").assert_outcomes(errors=2)
