"""Groups for weights, made by threads of one process."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from rl_agents.inference.weight_sync.gloo import LOOPBACK, Group, Meeting


def test_members_meet_and_hear_the_first_one() -> None:
    meeting = Meeting(LOOPBACK, 3, 30.0)
    with ThreadPoolExecutor(3) as threads:
        groups = list(threads.map(lambda rank: Group(LOOPBACK, meeting.port, rank, 3, 30.0), range(3)))
        sent = [torch.arange(5) if group.rank == 0 else torch.zeros(5, dtype=torch.int64) for group in groups]
        list(threads.map(lambda group, tensor: group.broadcast(tensor), groups, sent))
    assert all(tensor.tolist() == [0, 1, 2, 3, 4] for tensor in sent)


def test_who_comes_after_the_meeting_is_turned_away_at_once() -> None:
    """It was closed because another engine had died before this one even began to join."""
    meeting = Meeting(LOOPBACK, 2, 60.0)
    meeting.close()
    with pytest.raises(RuntimeError, match=f"the meeting at {LOOPBACK}:{meeting.port} is closed"):
        Group(LOOPBACK, meeting.port, 1, 2, 60.0)


def test_who_waits_for_somebody_else_gives_up_when_the_meeting_closes() -> None:
    meeting = Meeting(LOOPBACK, 2, 60.0)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(Group, LOOPBACK, meeting.port, 1, 2, 60.0)
        time.sleep(0.3)
        meeting.close()
        with pytest.raises(RuntimeError):
            waiting.result(timeout=50)
