"""Prometheus metrics of a server. Ray's own endpoint exports them with the prefix ``ray_``.

`METRICS` is the complete list; `clusters/grafana_serving.json` is a dashboard of it.
"""

from __future__ import annotations

import time
from asyncio import CancelledError
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from rl_agents.gateway.calls import ModelAnswer, Piece
from rl_agents.web.errors import ApiError

PREFIX = "rl_agents_serving_"
#: Upper bounds of histograms in seconds.
LONG = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


@dataclass(frozen=True)
class Metric:
    """A metric. Serve adds deployment, replica and application to its labels."""

    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()


#: By name, without `PREFIX`. ``api`` is a dialect, ``count_tokens``, or ``session``.
METRICS: Mapping[str, Metric] = {
    "requests": Metric("counter", "Requests; outcome is ok, client_left, or the error's code.", ("api", "outcome")),
    "request_seconds": Metric("histogram", "Seconds from a request to its whole answer.", ("api",), LONG),
    "first_token_seconds": Metric("histogram", "Seconds to the first token of streamed answers.", ("api",), LONG),
    "token_seconds": Metric("histogram", "Seconds per token after the first, of streamed answers.", ("api",), SHORT),
    "prompt_tokens": Metric("counter", "Tokens of answered prompts.", ("api",)),
    "sampled_tokens": Metric("counter", "Sampled tokens.", ("api",)),
    "requests_open": Metric("gauge", "Requests that the gateway has not answered yet.", ("api",)),
    "sessions_open": Metric("gauge", "Agent sessions."),
    "engine_calls": Metric("gauge", "Answers that an engine is sampling; a request with n has n."),
    "calls_open": Metric("gauge", "Answers requested from the engines; more than engine_calls wait in Serve's queue."),
    "checkpoint": Metric("gauge", "1 for the checkpoint that an engine serves, 0 for earlier ones.", ("checkpoint",)),
    "checkpoint_loads": Metric("counter", "Checkpoints that an engine has loaded."),
}
#: Those that a replica sets; the gateway sets the others.
OF_REPLICAS = ("engine_calls", "checkpoint", "checkpoint_loads")


def make(names: Sequence[str]) -> dict[str, Any]:
    from ray.serve import metrics

    kinds = {"counter": metrics.Counter, "gauge": metrics.Gauge, "histogram": metrics.Histogram}
    made = {}
    for name in names:
        metric = METRICS[name]
        bounds = {"boundaries": list(metric.bounds)} if metric.bounds else {}
        made[name] = kinds[metric.kind](PREFIX + name, description=metric.help, tag_keys=metric.labels, **bounds)
    return made


class EngineMeter:
    """Metrics of a replica."""

    def __init__(self) -> None:
        self._made = make(OF_REPLICAS)
        self._label = ""

    def running(self, count: int) -> None:
        self._made["engine_calls"].set(count)

    def serves(self, label: str) -> None:
        if self._label:
            self._made["checkpoint"].set(0, {"checkpoint": self._label})
        self._made["checkpoint"].set(1, {"checkpoint": label})
        self._made["checkpoint_loads"].inc()
        self._label = label


class Meter:
    """Metrics of the gateway."""

    def __init__(self) -> None:
        self._made = make([name for name in METRICS if name not in OF_REPLICAS])
        self._open: dict[str, int] = {}
        self._calls = 0

    def asked(self, api: str) -> Asked:
        self.opened(api, 1)
        return Asked(self, api)

    def opened(self, api: str, change: int) -> None:
        """Count a request that begins (1) or ends (-1)."""
        self._open[api] = self._open.get(api, 0) + change
        self._made["requests_open"].set(self._open[api], {"api": api})

    def called(self, change: int) -> None:
        """Count an answer that an engine begins (1) or ends (-1)."""
        self._calls += change
        self._made["calls_open"].set(self._calls)

    def sessions(self, count: int) -> None:
        self._made["sessions_open"].set(count)

    def count(self, name: str, value: float, **labels: str) -> None:
        """Add to a counter; Ray's counters refuse 0."""
        if value > 0:
            self._made[name].inc(value, labels)

    def observe(self, name: str, value: float, **labels: str) -> None:
        self._made[name].observe(value, labels)


class Asked:
    """An open request."""

    def __init__(self, meter: Meter, api: str) -> None:
        self._meter, self._api = meter, api
        self._began, self._first, self._over = time.monotonic(), 0.0, False

    @contextmanager
    def counted(self, answers: Sequence[ModelAnswer] = ()) -> Iterator[None]:
        """End the request if the block raises an exception, with the answers that were complete by then."""
        try:
            yield
        except BaseException as error:
            left = isinstance(error, CancelledError | GeneratorExit)
            self.ended(
                error.code if isinstance(error, ApiError) else "client_left" if left else "internal_error", answers
            )
            raise

    def listening(self, pieces: AsyncGenerator[Piece, None]) -> AsyncGenerator[Piece, None]:
        """Pass on a stream whose first piece has arrived, and count how it ends."""
        self._first = time.monotonic()
        self._meter.observe("first_token_seconds", self._first - self._began, api=self._api)

        async def heard() -> AsyncGenerator[Piece, None]:
            answers: list[ModelAnswer] = []
            with self.counted(answers):
                async with aclosing(pieces):
                    async for piece in pieces:
                        if isinstance(piece, ModelAnswer):
                            answers.append(piece)
                        yield piece
                self.ended("ok", answers)

        return heard()

    def ended(self, outcome: str, answers: Sequence[ModelAnswer] = ()) -> None:
        """Count how the request ended; only the first call has an effect."""
        if self._over:
            return
        self._over = True
        self._meter.opened(self._api, -1)
        self._meter.count("requests", 1, api=self._api, outcome=outcome)
        if answers:
            self.sampled(answers[0].prompt_tokens, sum(answer.completion_tokens for answer in answers))

    def sampled(self, prompt_tokens: int, tokens: int) -> None:
        now, api = time.monotonic(), self._api
        self._meter.observe("request_seconds", now - self._began, api=api)
        self._meter.count("prompt_tokens", prompt_tokens, api=api)
        self._meter.count("sampled_tokens", tokens, api=api)
        if self._first and tokens > 1:
            self._meter.observe("token_seconds", (now - self._first) / (tokens - 1), api=api)
