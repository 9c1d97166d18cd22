"""A session or module fixture that fails once takes every test that needs it along: the first says why, the rest skip.

pytest keeps the failed fixture's exception and raises the same object again for each further test.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

FAILURES = pytest.StashKey[list[tuple[BaseException, str]]]()
LONGEST_REASON = 200


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    try:
        return (yield)
    except (Exception, pytest.fail.Exception) as error:
        failures = item.session.stash.setdefault(FAILURES, [])
        for known, first in failures:
            if known is error:
                pytest.skip(f"as {first}: {one_line(error)}")
        failures.append((error, item.nodeid))
        raise


def one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:LONGEST_REASON]
