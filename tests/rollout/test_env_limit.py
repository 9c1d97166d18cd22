"""Siblings, checks and prompting baselines wherever environments are called."""

import asyncio
import dataclasses
import threading
from typing import Any

import pytest
from chat_tokenizers import qwen
from rollout.playing import CONTEXT, LIMITS, MODES, close, play, pool_of, told
from rollout.scripted import ScriptedEngine

from rl_agents.chat.template import Dialogue, make_context
from rl_agents.data.trajectory import EpisodeSpec
from rl_agents.rollout.agent_loop import collect_episodes
from rl_agents.rollout.branching import BranchPoint, BranchSpec, Expansion, expand_all
from rl_agents.rollout.env_pool import EnvPool
from rl_agents.rollout.env_worker import EnvGuard, ThreadHost
from rl_agents.rollout.turns import Limits, Player


def answers(texts: list[str]) -> Any:
    """An engine that says the k-th text to the k-th prompt."""
    asked = iter(texts)
    return ScriptedEngine(qwen(), lambda prompt: next(asked))


def expanded(pool: EnvPool, branching: Any) -> list[Expansion]:
    """Look at a start, go one step, and let five siblings of two requests be executed there."""

    async def work() -> list[Expansion]:
        start = BranchPoint("task-3", 7)
        player = Player(answers([]), CONTEXT, LIMITS)
        (look,) = (await expand_all([BranchSpec(0, start)], pool, player, branching)).expansions
        assert look.answer is not None
        dialogue = Dialogue.start(look.answer.observation)
        root = dataclasses.replace(start, dialogue=dialogue, anchor=look.answer.anchor, snapshot=look.snapshot)
        player = Player(answers(["first"]), CONTEXT, LIMITS)
        (one,) = (await expand_all([BranchSpec(0, root, (1,))], pool, player, branching)).expansions
        child = one.children[0]
        after = dialogue.after(child.step.prompt_ids, child.step.response_ids, "first", child.answer.observation)
        point = dataclasses.replace(
            root, actions=("first",), dialogue=after, anchor=child.answer.anchor, snapshot=child.snapshot
        )
        player = Player(answers([*"abcab", *"abcab"]), CONTEXT, LIMITS)
        specs = [BranchSpec(number, point, (1, 2, 3, 4, 5)) for number in range(2)]
        return (await expand_all(specs, pool, player, branching)).expansions

    expansions = asyncio.run(work())
    for expansion in expansions:
        expansion.snapshot = None
        for each in expansion.children:
            each.snapshot = None
    return expansions


@pytest.mark.parametrize("branching", ["snapshot", "replay"])
def test_siblings_are_the_same_wherever_they_are_executed(branching: str) -> None:
    seen = {}
    for name, blocking, most in (
        ("Waiting", "inline", 0), ("Waiting", "thread", 0), ("Waiting", "thread", 1), ("Awaiting", "inline", 0),
    ):  # fmt: skip
        pool = pool_of(name, blocking, env_concurrency=most)
        seen[name, blocking, most] = expanded(pool, branching)
        assert not most or pool.created <= most
        close(pool)
    first = seen["Waiting", "inline", 0]
    assert [len(e.children) for e in first] == [5, 5] and [e.env_steps for e in first] == [3, 3]
    assert {e.replayed_steps for e in first} == ({3} if branching == "replay" else {0})
    assert all(expansions == first for expansions in seen.values())


@pytest.mark.parametrize("prompting", ["react", "reflexion"])
def test_prompting_baselines_wrap_coroutines_too(prompting: str) -> None:
    limits = Limits(9, 6, 2000, env_timeout_s=20.0)
    seen = []
    for name in ("Waiting", "Awaiting"):
        pool = pool_of(name, "inline", prompting=prompting, max_turns=2, env_concurrency=1)
        seen.append(told(play(pool, range(2), limits=limits)))
        close(pool)
    assert seen[0] == seen[1]
    assert "thought" in qwen().decode(seen[0][0][3][0][0])


def test_a_window_is_written_where_the_environment_lives() -> None:
    context = make_context("window(1)", qwen())
    specs = [EpisodeSpec("task-1", 0, 0, 1)]

    async def first_prompt(blocking: str) -> str:
        pool = pool_of("Windowed", blocking)
        engine = ScriptedEngine(qwen(), lambda text: "go on")
        (episode,) = (await collect_episodes(specs, pool, engine, context, LIMITS)).trajectories
        await pool.close()
        assert episode.end_cause == "terminated"
        return qwen().decode(episode.steps[1].prompt_ids)

    shown = {blocking: asyncio.run(first_prompt(blocking)) for blocking in MODES}
    assert "in the window: True" in shown["inline"] and len(set(shown.values())) == 1


def test_a_thread_keeps_to_its_environment() -> None:
    """Made, called and closed in one thread, as libraries want that belong to one."""

    async def work() -> None:
        threads = []

        class Bound:
            def __init__(self) -> None:
                threads.append(threading.get_ident())

            def close(self) -> None:
                threads.append(threading.get_ident())

        host = ThreadHost()
        env = await host.make(Bound, 20.0)  # type: ignore[arg-type]
        guard = EnvGuard("t", 1, 5.0, host=host)
        threads.append(await guard.call(threading.get_ident))
        await host.close()
        assert env is not None and len(set(threads)) == 1 and len(threads) == 3
        assert threads[0] != threading.get_ident()

    asyncio.run(work())
