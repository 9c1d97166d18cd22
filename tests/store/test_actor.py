"""The pool's writer as a Ray actor: what is wrong with a file reaches who opens it, and restarts."""

import os
import signal
from pathlib import Path

import pytest
import ray

from rl_agents.errors import InputError
from rl_agents.store.actor import RemotePool, start_pool_actor
from rl_agents.store.reader import PoolReader
from rl_agents.store.records import Event
from rl_agents.store.trajectory_store import PoolError

pytestmark = pytest.mark.usefixtures("ray_session")


def test_a_damaged_file_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("this is no database, and longer than a hundred bytes " * 10)
    with pytest.raises(InputError, match=r"p: not a pool, or a damaged one"):
        start_pool_actor(tmp_path / "p")


def test_a_writer_that_does_not_start_is_named(tmp_path: Path) -> None:
    with pytest.raises(PoolError, match=r"p: the pool's writer \(actor [0-9a-f]+\) did not start within 0.01 s"):
        start_pool_actor(tmp_path / "p", timeout_s=0.01)


def test_a_bad_record_is_named_and_does_not_affect_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    actor = start_pool_actor(tmp_path / "p")
    pool = RemotePool(actor)
    wrong = pool.add(Event("checkpoint", 1, {"a": {1, 2}}))
    pool.add(Event("checkpoint", 2)).result(60)
    with pytest.raises(InputError, match=r"p: Event\(kind='checkpoint', iteration=1\) cannot be stored"):
        wrong.result(60)
    assert "cannot be stored" in caplog.text and "(1 so far)" in caplog.text
    pool.close()
    ray.get(actor.close.remote())
    ray.kill(actor)


def test_a_killed_writer_is_followed_by_one_that_takes_the_file_over(tmp_path: Path) -> None:
    actor = start_pool_actor(tmp_path / "p")
    pool = RemotePool(actor)
    pool.add(Event("checkpoint", 1)).result(60)
    before = ray.get(actor.pid.remote())
    os.kill(before, signal.SIGKILL)
    pool.add(Event("checkpoint", 2)).result(60)
    assert ray.get(actor.pid.remote()) != before
    pool.close()
    ray.get(actor.close.remote())
    ray.kill(actor)
    with PoolReader(tmp_path / "p") as reader:
        assert [event.iteration for event in reader.events()] == [1, 2]
