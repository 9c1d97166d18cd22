"""Environments in coroutines and threads: the same results, within the same limits, and nothing is left."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from rollout.playing import MODES, close, gone, play, pool_of, told
from rollout.scripted import Broken, Countdown
from rollout.test_torch_rollouts import tiny_model

from rl_agents import errors
from rl_agents.errors import InputError
from rl_agents.inference.torch_engine import TorchEngine
from rl_agents.rollout.env_pool import EnvPool
from rl_agents.rollout.turns import Limits


def test_where_an_environment_is_called_does_not_change_a_token() -> None:
    """Under random delays, with an engine that samples; coroutines' episodes draw, too."""
    plays = {}
    for name, blocking, most in (
        ("Waiting", "inline", 6), ("Waiting", "thread", 3), ("Awaiting", "inline", 6), ("Awaiting", "thread", 3),
        ("Drawing", "inline", 6), ("DrawingAwaiting", "inline", 6),
    ):  # fmt: skip
        pool = pool_of(name, blocking, env_concurrency=most)
        plays[name, blocking] = told(play(pool, range(6), TorchEngine(tiny_model(), max_model_len=600)))
        assert pool.created == most, "and each is used again"
        close(pool)
    for (name, _), played in plays.items():
        assert played == plays["Drawing" if "Drawing" in name else "Waiting", "inline"]
    assert plays["Waiting", "inline"] != plays["Drawing", "inline"]


@pytest.mark.parametrize("blocking", MODES)
def test_what_breaks_ends_its_own_episode(blocking: str) -> None:
    pool = EnvPool(Broken, blocking)  # type: ignore[arg-type]
    limits = Limits(5, 6, 600, env_timeout_s=1.0)
    ends = {t.task_id: (t.end_cause, len(t.steps)) for t in play(pool, [2, 24, 19, 20, 21, 22], limits=limits)}
    close(pool)
    assert ends.pop("task-2") == ends.pop("task-24") == ("terminated", 3), "nobody looks at what it has in info"
    assert all(steps == 2 for _, steps in ends.values()), ends
    line = Path(__file__).with_name("scripted.py").read_text().splitlines().index("            19: lambda: 1 / 0,")
    assert ends["task-19"][0] == f"env_error: ZeroDivisionError: division by zero (scripted.py:{line + 1})"
    for task in ("task-20", "task-21"):
        assert ends[task][0].startswith("env_timeout: step: no answer within 1 s (scripted.py:")
    assert ends["task-22"][0].startswith("env_error: SystemExit: 3")


def test_a_coroutine_that_hangs_or_breaks_ends_its_own_episode() -> None:
    pool = pool_of("AwaitingBroken")
    started = time.monotonic()
    limits = Limits(5, 6, 600, env_timeout_s=0.5)
    causes = {t.task_id: t.end_cause for t in play(pool, range(7), limits=limits)}
    assert time.monotonic() - started < 60, "nobody waits for sixty seconds"
    assert causes.pop("task-0") == "terminated"
    assert causes["task-1"].startswith("env_error: KeyError: 'no such thing' (waiting.py:")
    for task in ("task-2", "task-3", "task-4"):
        assert causes[task].startswith("env_timeout: step: no answer within 0.5 s")
    assert causes["task-5"] == "env_error: RuntimeError: the environment cancelled its own call"
    assert causes["task-6"].startswith("env_error: SystemExit: 3 (waiting.py:")


class Hanging(Countdown):
    """Its first step takes longer than anybody waits."""

    def step(self, action: str) -> Any:
        time.sleep(0.1)
        return super().step(action)


def test_threads_that_hang_do_not_stay() -> None:
    pool = EnvPool(Hanging, "thread")
    before = threading.active_count()
    limits = Limits(5, 6, 600, env_timeout_s=0.02)
    most = 0
    for first in range(0, 300, 20):
        episodes = play(pool, range(first, first + 20), limits=limits)
        assert all(t.end_cause.startswith("env_timeout: ") for t in episodes)
        most = max(most, threading.active_count() - before)
    close(pool)
    assert most <= 150 and gone(lambda: threading.active_count() <= before), (most, threading.enumerate())
    pool = EnvPool(Broken, "thread")
    before = threading.active_count()
    (episode,) = play(pool, [21], limits=Limits(5, 6, 600, env_timeout_s=0.2))
    assert episode.end_cause.startswith("env_timeout: step: no answer within 0.2 s (scripted.py:")
    close(pool)
    assert gone(lambda: threading.active_count() <= before), "it swallowed the first interruption, and nobody plays on"


def test_environments_that_declare_nothing_wait_at_once() -> None:
    """Each of 64 steps returns only when all are in one."""
    pool = pool_of("Together")
    assert {t.end_cause for t in play(pool, range(64), limits=Limits(5, 6, 600, env_timeout_s=300.0))} == {"terminated"}
    close(pool)


def test_draws_from_a_generator_that_threads_share_are_reported_once(capsys, monkeypatch) -> None:
    monkeypatch.setattr(errors, "_reported", set())
    for name, blocking, lines in (("Drawing", "inline", 0), ("Waiting", "auto", 0), ("Drawing", "auto", 1)):
        pool = pool_of(name, blocking)
        play(pool, range(3))
        close(pool)
        said = capsys.readouterr().err
        assert said.count("\n") == said.count("draws from the global generators") == lines, name


def test_an_environment_says_where_it_wants_to_be() -> None:
    pool = pool_of("Declared")
    seen = {s.observation for t in play(pool, range(3)) for s in t.steps[1:]}
    assert pool.mode == "thread" and str(float(threading.get_ident())) not in " ".join(seen)
    close(pool)
    assert pool_of("Declared", "inline").mode == "inline", "the key has the last word"
    with pytest.raises(InputError, match="blocking='theads': must be one of inline, thread"):
        pool_of("Misdeclared")
    modes = {name: pool_of(name).mode for name in ("Waiting", "Awaiting", "DeclaredInline")}
    assert modes == {"Waiting": "thread", "Awaiting": "inline", "DeclaredInline": "inline"}


def test_no_more_live_than_may(tmp_path) -> None:
    alive, most = set(), 0

    class Counted(Countdown):
        def __init__(self) -> None:
            nonlocal most
            alive.add(id(self))
            most = max(most, len(alive))

        def close(self) -> None:
            alive.discard(id(self))

    pool = EnvPool(Counted, "thread", concurrency=3)
    assert all(t.end_cause == "terminated" for t in play(pool, range(20)))
    assert most == pool.created == 3
    close(pool)
    pool = EnvPool(Counted, "thread", concurrency=3)  # of another event loop

    async def several() -> None:
        first = await pool.take()
        both = asyncio.ensure_future(pool.take_several(5))
        await asyncio.sleep(0.01)
        assert not both.done()
        pool.give_back(first)
        envs = await both  # more than may live, when nobody else has any
        for env in envs:
            await pool.discard(env)

    asyncio.run(several())
    close(pool)
    assert not alive
