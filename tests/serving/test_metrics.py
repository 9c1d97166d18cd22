"""The dashboard draws what a server counts, all of it and nothing else; and streams are counted to their end."""

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from in_process import Server
from scripted_model import MAX_TOKENS, write_model

from rl_agents.gateway.dialects import chat_completions
from rl_agents.inference.base import EngineError
from rl_agents.serving.metrics import METRICS, PREFIX, Meter
from rl_agents.serving.request_params import read_params

DASHBOARD = Path(__file__).parents[2] / "clusters" / "grafana_serving.json"
ENDINGS = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = write_model(tmp_path_factory.mktemp("models") / "greeter", ["hello", "dear", "world"])
    server = Server(folder, max_model_len=MAX_TOKENS, max_response_tokens=16, **{"env.prompt": "compact"})
    yield server
    server.close()


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


class Noted(Meter):
    """Keeps what is counted, instead of Ray's metrics."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[Any, ...]] = []

    def set(self, name: str, value: float, **labels: str) -> None:
        self.rows.append((name, value, *labels.values()))

    def observe(self, name: str, value: float, **labels: str) -> None:
        assert value >= 0
        self.rows.append((name,))

    count = set


HELLO = [{"role": "user", "content": "hello"}]
WHOLE = {"request_seconds", "prompt_tokens", "sampled_tokens"}
STREAMED = {*WHOLE, "first_token_seconds", "token_seconds"}
#: path, body, the engine's failure -> outcome, what is measured
CASES: list[tuple[str, dict[str, Any], Exception | None, str, set[str]]] = [
    ("chat/completions", {"messages": HELLO}, None, "ok", WHOLE),
    ("chat/completions", {"messages": HELLO, "stream": True}, None, "ok", STREAMED),
    ("messages", {"messages": HELLO, "max_tokens": 9, "stream": True}, EngineError("died"), "engine_error", set()),
    ("responses", {"input": "hello"}, RuntimeError("a bug"), "internal_error", set()),
    ("responses", {"input": []}, None, "invalid_value", set()),
    ("messages/count_tokens", {"messages": HELLO}, None, "ok", set()),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{row[0]}-{row[3]}" for row in CASES])
def test_a_request_is_counted_once_however_it_ends(server: Server, case: Any, monkeypatch) -> None:
    path, body, failure, outcome, measured = case
    server.service.meter = noted = Noted()
    if failure is not None:

        async def fail(*_: Any) -> Any:
            raise failure

        monkeypatch.setattr(server.policy._engine, "generate", fail)
    with contextlib.suppress(RuntimeError):  # a bug is logged and raised
        server.request("POST", f"/v1/{path}", {"model": "m", **body})
    api = path.replace("/", "_") if "count" not in path else "count_tokens"
    counted = [row for row in noted.rows if row[0] in ("requests_open", "requests")]
    assert counted == [("requests_open", 1, api), ("requests_open", 0, api), ("requests", 1, api, outcome)]
    assert {row[0] for row in noted.rows} & STREAMED == measured


def test_a_client_that_leaves_ends_the_sampling_and_is_counted(server: Server) -> None:
    server.service.meter = noted = Noted()

    async def leave() -> None:
        pending = server.service.answer(*read_params(chat_completions.read({"model": "m", "messages": HELLO})))
        with noted.request("chat_completions") as counting:
            counting.append(pending)
        waiting = asyncio.create_task(pending.answers())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([pending.task])
        await asyncio.sleep(0)

    server.run(leave())
    assert noted.rows[-1] == ("requests", 1, "chat_completions", "client_left") and ("calls_open", 0) in noted.rows
