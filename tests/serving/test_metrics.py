"""The dashboard draws what a server counts, all of it and nothing else; and streams are counted to their end."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from rl_agents.gateway.calls import ModelAnswer, Piece, Start
from rl_agents.serving.metrics import METRICS, PREFIX, Asked
from rl_agents.web.errors import ApiError

DASHBOARD = Path(__file__).parents[2] / "clusters" / "grafana_serving.json"
ENDINGS = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
ANSWER = ModelAnswer(0, 1, "1", "hello", "", (), "stop", 7, 5, 0, "demo")


def queries(board: Any) -> list[str]:
    """All expressions of a dashboard, those of its variables too."""
    if isinstance(board, dict):
        own = [board[name] for name in ("expr", "query") if isinstance(board.get(name), str) and "(" in board[name]]
        return [*own, *(found for value in board.values() for found in queries(value))]
    return [found for item in board for found in queries(item)] if isinstance(board, list) else []


def test_the_dashboard_draws_every_metric_and_no_other() -> None:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    series = {f"ray_{PREFIX}{name}{end}": name for name, metric in METRICS.items() for end in ENDINGS[metric.kind]}
    used = {name for query in queries(board) for name in re.findall(r"\bray_\w+", query)}
    assert used - set(series) == set(), "no such series"
    assert set(METRICS) - {series[name] for name in used} == set(), "not drawn"
    for panel in board["panels"]:
        assert panel["targets"] and panel["title"] and panel["description"]
    labels = {label for metric in METRICS.values() for label in metric.labels} | {"le", "application"}
    grouped = {
        label for query in queries(board) for by in re.findall(r"by \(([\w, ]+)\)", query) for label in by.split(", ")
    }
    assert grouped <= labels


class Noted:
    """Stands where Ray's metrics are: keeps what was told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def opened(self, api: str, change: int) -> None:
        self.told.append(("open", change))

    def count(self, name: str, value: float, **labels: str) -> None:
        self.told.append((name, value, *labels.values()))

    def observe(self, name: str, value: float, **labels: str) -> None:
        assert value >= 0
        self.told.append((name,))


@pytest.mark.parametrize(
    ("end", "outcome"), [(None, "ok"), (ApiError(504, "late", "timeout"), "timeout"), ("leave", "client_left")]
)
def test_a_stream_is_counted_once_however_it_ends(end: Any, outcome: str) -> None:
    noted: Any = Noted()

    async def pieces() -> AsyncGenerator[Piece, None]:
        yield Start("1", 0)
        if isinstance(end, ApiError):
            raise end
        yield ANSWER

    async def listen() -> None:
        asked = Asked(noted, "messages")
        stream: Any = asked.listening(pieces())
        try:
            async for _ in stream:
                if end == "leave":
                    break
        except ApiError as problem:
            assert problem is end
        await stream.aclose()
        asked.ended("again")

    asyncio.run(listen())
    assert [row for row in noted.told if row[0] in ("open", "requests")] == [
        ("open", -1), ("requests", 1, "messages", outcome),
    ]  # fmt: skip
    whole = {"request_seconds", "prompt_tokens", "sampled_tokens", "token_seconds"}
    assert {row[0] for row in noted.told} & whole == (whole if outcome == "ok" else set())
