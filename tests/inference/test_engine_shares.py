"""Which engines an env runner uses where there are many."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from rl_agents.inference.base import Completion, Sampling
from rl_agents.inference.client import FEWEST, RemoteEngine, engines_of


@pytest.mark.parametrize(
    ("engines", "callers"), [(1, 1), (8, 3), (9, 1), (100, 10), (1000, 100), (64, 1000), (1000, 7)]
)
def test_the_callers_share_all_engines_evenly(engines: int, callers: int) -> None:
    shares = [engines_of(engines, caller, callers) for caller in range(callers)]
    users = Counter(engine for share in shares for engine in share)
    assert len(users) == engines and max(users.values()) - min(users.values()) <= 2
    assert all(len(set(share)) == len(share) for share in shares)
    assert all(len(share) >= min(engines, FEWEST, 2 * engines / callers) for share in shares)


class Engine:
    """Stands for an actor's handle and counts its exchanges."""

    def __init__(self) -> None:
        self.exchanges = 0

    @property
    def serve_batch(self) -> "Engine":
        return self

    @property
    def place(self) -> Any:
        return type("Place", (), {"remote": staticmethod(lambda: asyncio.sleep(0, ("here", 0.0)))})

    async def remote(self, client: str, requests: list[Any]) -> Any:
        self.exchanges += bool(requests)
        return [(number, Completion([1], [0.0], 0, "stop")) for number, *_ in requests], 0.0


def test_requests_stay_with_the_callers_engines() -> None:
    """Twenty requests of one of fifty callers are eight exchanges, not twenty."""
    engines = [Engine() for _ in range(100)]
    client = RemoteEngine(engines, timeout_s=5, place=(3, 50))

    async def ask() -> None:
        await asyncio.gather(*(client.generate([1], Sampling(1)) for _ in range(20)))

    asyncio.run(ask())
    assert [number for number, engine in enumerate(engines) if engine.exchanges] == list(range(6, 6 + FEWEST))
    assert sum(engine.exchanges for engine in engines) == FEWEST
