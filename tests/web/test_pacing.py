"""What servers say about waiting, as they write it."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_agents.web.pacing import Pace, remaining_calls, seconds_in, told_to_wait, used_up


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7.0), ("1.5", 1.5), (" 0 ", 0.0), ("1s", 1.0), ("6m0s", 360.0), ("1h2m3.5s", 3723.5), ("20ms", 0.02),
        ("1d", 86400.0), ("1m30s20ms", 90.02), ("", None), ("soon", None), ("-3", None), ("nan", None), ("1e9", None),
        ("inf", None), ("9" * 400, None), ("5m garbage", None), ("2026-01-01T00:00:00", None),
    ],
)  # fmt: skip
def test_spans(text: str, seconds: float | None) -> None:
    assert seconds_in(text) == (None if seconds is None else pytest.approx(seconds))


def test_moments() -> None:
    assert seconds_in(str(int(time.time()) + 50)) == pytest.approx(50, abs=2)
    assert seconds_in(str(int(time.time()) - 50)) == 0.0
    assert seconds_in((datetime.now(UTC) + timedelta(seconds=50)).isoformat()) == pytest.approx(50, abs=2)


def test_dates_are_read_by_the_servers_own_clock() -> None:
    then = datetime(2031, 1, 1, tzinfo=UTC)
    said = {"retry-after": format_datetime(then + timedelta(seconds=9), usegmt=True)}
    assert told_to_wait(said | {"date": format_datetime(then, usegmt=True)}) == 9.0
    assert told_to_wait(said | {"date": format_datetime(then + timedelta(seconds=20), usegmt=True)}) == 0.0
    now = datetime.now(UTC)
    assert told_to_wait({"retry-after": format_datetime(now + timedelta(seconds=30), usegmt=True)}) == pytest.approx(
        30, abs=2
    )
    assert told_to_wait({"retry-after": "Fri, 99 Foo 2026"}) is None and told_to_wait({}) is None


def test_limits_that_are_used_up() -> None:
    openai = {"x-ratelimit-remaining-requests": "12", "x-ratelimit-reset-requests": "1s",
              "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}  # fmt: skip
    assert used_up(openai) == 360.0 and told_to_wait(openai) == 360.0 and remaining_calls(openai) == 12
    github = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(time.time()) + 100)}
    assert used_up(github) == pytest.approx(100, abs=2) and remaining_calls(github) == 0
    assert used_up({"ratelimit-remaining": "0"}) is None and used_up({"x-ratelimit-reset-requests": "1s"}) is None
    assert remaining_calls({}) is None


class Pressed:
    """Random calls of a pace, and whether it keeps its promises."""

    def __init__(self, bound: int) -> None:
        self.pace, self.running, self.done = Pace(bound), 0, 0

    async def call(self, ticket: int, seconds: float, pause: float, cancel_after: float | None) -> None:
        task = asyncio.ensure_future(self._call(ticket, seconds, pause))
        if cancel_after is not None:
            await asyncio.sleep(cancel_after)
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _call(self, ticket: int, seconds: float, pause: float) -> None:
        await self.pace.enter(ticket)
        self.running += 1
        assert self.running <= self.pace.bound
        try:
            await asyncio.sleep(seconds)
            if pause:
                self.pace.pause(pause)
            else:
                self.pace.succeeded(None)
            self.done += 1
        finally:
            self.running -= 1
            self.pace.leave()


spans = st.sampled_from([0.0, 0.0, 0.001, 0.002])
calls = st.tuples(
    spans, st.sampled_from([0.0, 0.0, 0.0, 0.003]), st.sampled_from([None, None, None, 0.0, 0.001, 0.004])
)


@settings(deadline=None, max_examples=80)
@given(bound=st.integers(1, 4), made=st.lists(calls, min_size=1, max_size=25))
def test_no_place_is_lost_and_none_is_given_twice(bound: int, made: list[tuple[float, float, float | None]]) -> None:
    async def press() -> Pressed:
        pressed = Pressed(bound)
        await asyncio.wait_for(asyncio.gather(*(pressed.call(n, *call) for n, call in enumerate(made))), 10)
        await asyncio.wait_for(pressed.call(1000, 0.0, 0.0, None), 1)
        return pressed

    pressed = asyncio.run(press())
    assert pressed.pace.running == 0 and pressed.done >= 1 + sum(cancelled is None for *_, cancelled in made)
