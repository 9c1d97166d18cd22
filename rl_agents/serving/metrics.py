"""Prometheus metrics of a server. Ray's own endpoint exports them with the prefix ``ray_``.

`METRICS` is the complete list; `clusters/grafana_serving.json` is a dashboard of it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from rl_agents.gateway.answers import PendingRequest
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
    "first_token_seconds": Metric("histogram", "Seconds to the first text of streamed answers.", ("api",), LONG),
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


class Meters:
    """Ray's metrics with these names."""

    def __init__(self, names: Sequence[str]) -> None:
        from ray.serve import metrics

        kinds = {"counter": metrics.Counter, "gauge": metrics.Gauge, "histogram": metrics.Histogram}
        self._meters: dict[str, Any] = {}
        for name, metric in ((name, METRICS[name]) for name in names):
            bounds = {"boundaries": list(metric.bounds)} if metric.bounds else {}
            labels = {"description": metric.help, "tag_keys": metric.labels}
            self._meters[name] = kinds[metric.kind](PREFIX + name, **labels, **bounds)

    def set(self, name: str, value: float, **labels: str) -> None:
        self._meters[name].set(value, labels)

    def count(self, name: str, value: float, **labels: str) -> None:
        """Add to a counter; Ray's counters refuse 0."""
        if value > 0:
            self._meters[name].inc(value, labels)

    def observe(self, name: str, value: float, **labels: str) -> None:
        self._meters[name].observe(value, labels)


class EngineMeter(Meters):
    """Metrics of a replica."""

    def __init__(self) -> None:
        super().__init__(OF_REPLICAS)
        self._label = ""

    def running(self, count: int) -> None:
        self.set("engine_calls", count)

    def serves(self, label: str) -> None:
        if self._label:
            self.set("checkpoint", 0, checkpoint=self._label)
        self.set("checkpoint", 1, checkpoint=label)
        self.count("checkpoint_loads", 1)
        self._label = label


class Meter(Meters):
    """Metrics of the gateway."""

    def __init__(self) -> None:
        super().__init__([name for name in METRICS if name not in OF_REPLICAS])
        self._open: Counter[str] = Counter()
        self._calls = 0

    def called(self, change: int) -> None:
        """Count an answer that an engine begins (1) or ends (-1)."""
        self._calls += change
        self.set("calls_open", self._calls)

    @contextmanager
    def request(self, api: str) -> Iterator[list[PendingRequest]]:
        """Count a request that ends with this block, or with the pending request that the block appends to the list."""
        began, pending = time.monotonic(), list[PendingRequest]()
        self._change(api, 1)
        try:
            yield pending
        except BaseException as error:
            self._end(api, error)
            raise
        if pending:
            pending[0].task.add_done_callback(lambda _: self._answered(api, began, pending[0]))
        else:
            self._end(api, None)

    def sampled(self, api: str, began: float, prompt_tokens: int, tokens: int) -> None:
        self.observe("request_seconds", time.monotonic() - began, api=api)
        self.count("prompt_tokens", prompt_tokens, api=api)
        self.count("sampled_tokens", tokens, api=api)

    def _answered(self, api: str, began: float, pending: PendingRequest) -> None:
        task, first = pending.task, pending.deltas.began
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self._end(api, error)
        if error is not None:
            return
        tokens = sum(answer.completion_tokens for answer in task.result())
        self.sampled(api, began, pending.prompt_tokens, tokens)
        if pending.call.stream and first:
            self.observe("first_token_seconds", first - began, api=api)
            if tokens > 1:
                self.observe("token_seconds", (time.monotonic() - first) / (tokens - 1), api=api)

    def _end(self, api: str, error: BaseException | None) -> None:
        left = isinstance(error, asyncio.CancelledError)
        outcome = "client_left" if left else error.code if isinstance(error, ApiError) else "internal_error"
        self._change(api, -1)
        self.count("requests", 1, api=api, outcome=outcome if error is not None else "ok")

    def _change(self, api: str, change: int) -> None:
        self._open[api] += change
        self.set("requests_open", self._open[api], api=api)
