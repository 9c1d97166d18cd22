"""Who is sent weights again after a failure, and the file through which they reach workers; no engine."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rl_agents.inference.weight_sync.links import Plan, StoreLink
from rl_agents.inference.weight_sync.port import file_in_memory
from rl_agents.inference.weight_sync.session import TRIES, Outcome, Session
from rl_agents.inference.weight_sync.states import Call


class Engines:
    """Peers that answer at once; ``bad`` refuse, the others take everything."""

    def __init__(self, *bad: int) -> None:
        self.bad, self.sent = bad, list[int]()

    def send(self, engine: int, calls: Sequence[Call], version: int, packed: Any) -> None:
        self.sent.append(engine)

    def wait(self, pending: Mapping[int, Any], timeout_s: float) -> dict[int, Outcome]:
        return {i: Outcome("failed", "no room") if i in self.bad else Outcome("ok") for i in pending}


def test_who_has_the_weights_is_neither_sent_them_again_nor_named() -> None:
    engines = Engines(1)
    problems = Session(engines, StoreLink()).update([0, 1, 2], "weights", 3, 5.0)
    assert problems == {1: Outcome("failed", "no room")}
    assert sorted(engines.sent) == [0, *[1] * TRIES, 2]
    engines.bad = ()
    assert Session(engines, StoreLink()).update([0, 1, 2], "weights", 4, 5.0) == {}


class BrokenSender(StoreLink):
    """A link whose own end fails when members meet."""

    def open(self, members: Sequence[int], deadline_s: float) -> Plan:  # type: ignore[override]
        def join() -> None:
            raise RuntimeError("no route to host")

        return Plan(dict.fromkeys(members, ()), alongside=join)


def test_a_sender_that_fails_says_so() -> None:
    problems = Session(Engines(), BrokenSender()).update([0], "weights", 3, 0.5)
    assert problems[0].kind == "failed" and "no route to host" in problems[0].text


def test_a_file_in_memory_is_read_by_other_processes_and_gone_afterwards() -> None:
    weights = np.arange(200_000, dtype=np.uint8)
    with file_in_memory() as path:
        np.memmap(path, dtype=np.uint8, mode="w+", shape=weights.shape)[:] = weights
        read = "import numpy, sys; print(numpy.memmap(sys.argv[1], dtype=numpy.uint8, mode='c').sum(dtype=int))"
        found = subprocess.run([sys.executable, "-c", read, path], capture_output=True, text=True, check=True)
    assert int(found.stdout) == weights.sum(dtype=int)
    with contextlib.suppress(FileNotFoundError):  # another thread's file may have got the number by now
        assert "rl-agents-sync" not in os.readlink(path)
