"""New weights while many calls run, for every engine, in both ways: which version sampled what, and with which keys.

Every log-probability is compared with Hugging Face's under the weights that the token's version names, given all that
stands before it: a key of other weights anywhere in a cache would show.
"""

import asyncio
import copy
import time
from collections.abc import Coroutine, Iterator
from functools import partial
from typing import Any

import pytest
import ray
import torch
from inference.rig import TOLERANCE, Rig, change_engine, prompts, stats, teacher

from rl_agents.inference.base import Completion, EngineError, Sampling
from rl_agents.inference.client import RemoteEngine

LONG = Sampling(max_tokens=190, seed=0)


@pytest.fixture(params=["wait", "keep"])
def mode(rig: Rig, request: pytest.FixtureRequest) -> Iterator[str]:
    """Set the running engine to a ``weight_switch``: another one would have to be started."""

    def change(engine: Any, keep: bool) -> None:
        engine._keep = engine._gate._keep = keep

    change_engine(rig, partial(change, keep=request.param == "keep"))
    yield request.param
    change_engine(rig, partial(change, keep=False))


class Weights:
    """What a rig's engine had, by version."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        rig.change_weights(rig.version + 1000)
        self.models = {rig.version: copy.deepcopy(rig.reference)}

    def change(self) -> None:
        self.rig.change_weights(self.rig.version)
        self.models[self.rig.version] = copy.deepcopy(self.rig.reference)

    def worst(self, prompt: list[int], completion: Completion) -> float:
        """The largest distance of a log-probability from that of the weights which the token's version names."""
        distances, at = [], 0
        for version, count in completion.version_spans or ((completion.policy_version, len(completion.token_ids)),):
            whole = teacher(self.models[version], prompt, completion.token_ids)
            part = slice(at, at + count)
            distances.append((whole[part] - torch.tensor(completion.logprobs[part])).abs().max().item())
            at += count
        assert at == len(completion.token_ids)
        return max(distances)


def requests(count: int, shortest: int) -> list[tuple[list[int], Sampling]]:
    return [(prompt, Sampling(shortest + 2 * i, seed=i)) for i, prompt in enumerate(prompts(count))]


async def started(rig: Rig, asked: list[tuple[list[int], Sampling]]) -> list[asyncio.Task[Completion]]:
    """Return when the engine works on a call, or one has ended already."""

    def working(actor: Any) -> bool:
        engine = actor._engine  # the torch engine's slots
        return bool(engine._running if hasattr(engine, "_running") else engine._gate._running)

    tasks = [asyncio.create_task(rig.engine.generate(*request)) for request in asked]
    while not await rig.group.handles()[0].apply.remote(working) and not any(task.done() for task in tasks):
        await asyncio.sleep(0.005)
    return tasks


def bounded(work: Coroutine[Any, Any, Any], seconds: float = 120.0) -> Any:
    return asyncio.run(asyncio.wait_for(work, seconds))


def test_a_storm_of_syncs_under_40_calls(rig: Rig, mode: str) -> None:
    weights, asked = Weights(rig), requests(40, 110 if rig.kind == "torch" else 60)
    first = rig.version

    async def scenario() -> list[Completion]:
        tasks = await started(rig, asked)
        for _ in range(8):
            await asyncio.to_thread(weights.change)
        late = await started(rig, asked[:8])
        return await asyncio.gather(*tasks, *late)

    done = bounded(scenario())
    assert max(weights.worst(prompt, c) for (prompt, _), c in zip(asked + asked[:8], done, strict=True)) <= TOLERANCE
    assert [len(c.token_ids) for c in done] == [sampling.max_tokens for _, sampling in asked + asked[:8]]
    assert {c.policy_version for c in done[40:]} == {rig.version}
    mixed = [c for c in done if c.version_spans]
    if mode == "wait":
        assert not mixed
    else:
        assert len(mixed) >= 5
        assert max(len(c.version_spans) for c in mixed) >= 3
    assert {c.policy_version for c in done[:40]} >= {first}


def test_prefixes_are_reused_under_one_version_only(rig: Rig, mode: str) -> None:
    weights, prompt = Weights(rig), prompts(1, seed=5)[0] * 3
    cached = []
    for turn in range(6):
        if turn % 3 == 0:
            weights.change()
        before = stats(rig.group.handles()[0])["cached_tokens"]
        (completion,) = rig.run((prompt, Sampling(16, seed=turn)))
        assert completion.policy_version == rig.version
        assert weights.worst(prompt, completion) <= TOLERANCE
        cached.append(stats(rig.group.handles()[0])["cached_tokens"] - before)
        prompt = prompt + completion.token_ids
    assert cached[0] == cached[3] == 0
    assert all(cached[1:3]) and all(cached[4:])


def test_calls_cancelled_around_a_sync_leave_nothing_behind(rig: Rig, mode: str) -> None:
    """A client asks for much and comes back under another name, before, during and after a sync."""
    weights, handle = Weights(rig), rig.group.handles()[0]
    before = stats(handle)["outstanding"]  # of clients that earlier tests left
    asked = [(number, prompt, LONG) for number, prompt in enumerate(prompts(80))]

    async def scenario() -> None:
        await handle.serve_batch.remote("dying/1", asked)
        sync = asyncio.create_task(asyncio.to_thread(weights.change))
        await asyncio.sleep(0.05)
        await handle.serve_batch.remote("dying/2", asked[:40])
        await handle.serve_batch.remote("dying/3", [])
        await sync

    def left(engine: Any) -> list[int]:
        where = (getattr(engine, "_gate", engine), engine)
        names = ("_waiting", "_running", "_pending")
        found = [getattr(place, name) for place in where for name in names if hasattr(place, name)]
        assert found
        return [size if isinstance(size, int) else len(size) for size in found]

    bounded(scenario())
    deadline = time.monotonic() + 60  # what was cancelled ends in its own time
    while stats(handle)["outstanding"] > before:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    prompt = prompts(1)[0]
    (completion,) = rig.run((prompt, Sampling(8, seed=1)))
    assert weights.worst(prompt, completion) <= TOLERANCE
    assert not any(ray.get(handle.apply.remote(lambda actor: left(actor._engine))))


def test_what_is_heard_across_a_sync_is_the_completion(rig: Rig, mode: str) -> None:
    weights, questions = Weights(rig), prompts(6)

    async def listen(actor: Any) -> list[tuple[list[int], Completion]]:
        async def one(number: int) -> tuple[list[int], Completion]:
            heard: list[int] = []
            sampling = Sampling(150, seed=number)
            return heard, await actor._engine.generate(questions[number], sampling, lambda ids, _: heard.extend(ids))

        return await asyncio.gather(*map(one, range(6)))

    async def scenario() -> list[tuple[list[int], Completion]]:
        listening = asyncio.ensure_future(rig.group.handles()[0].apply.remote(listen))
        await asyncio.sleep(0.1)
        await asyncio.to_thread(weights.change)
        return await listening

    for number, (heard, completion) in enumerate(bounded(scenario())):
        assert completion.token_ids[: len(heard)] == heard and len(heard) >= 149
        assert weights.worst(questions[number], completion) <= TOLERANCE


def test_a_sync_gives_up_on_a_call_that_does_not_end(rig: Rig, mode: str) -> None:
    """The old weights stay, the call goes on, and the next sync is as any."""
    if mode == "keep":
        pytest.skip("waits for nothing")
    weights, prompt = Weights(rig), prompts(1)[0]

    def patience(seconds: float) -> None:
        change_engine(rig, lambda engine: setattr(engine._gate, "_patience_s", seconds))

    async def scenario() -> list[Completion]:
        await asyncio.to_thread(patience, 0.0)
        tasks = await started(rig, [(prompt, LONG)] * 40)  # so many take longer than the weights
        with pytest.raises(EngineError, match=r"engine 0 failed in sync.*waited 0 s for \d+ running calls.*190 to"):
            await asyncio.to_thread(rig.change_weights, 5)
        tasks += await started(rig, [(prompt, LONG)])
        return await asyncio.gather(*tasks)

    try:
        done = bounded(scenario())
    finally:
        patience(120.0)
    assert {c.policy_version for c in done} == {rig.version - 1}
    assert max(weights.worst(prompt, c) for c in done) <= TOLERANCE
    assert rig.group.restore() == [0]  # it has older weights than the group has sent
    weights.change()
    (completion,) = rig.run((prompt, LONG))
    assert weights.worst(prompt, completion) <= TOLERANCE


def test_weights_that_cannot_be_loaded_are_not_sampled_from(rig: Rig, mode: str) -> None:
    if rig.kind == "torch" or mode == "wait":
        pytest.skip("torch looks at them before it loads any; `keep` has more to fail: calls that run")
    weights, prompt = Weights(rig), prompts(1)[0]
    # vLLM counts the elements that a layer has received. Half an update's would make every later one fail.
    half = {name: -t for name, t in rig.reference.state_dict().items() if "q_proj" in name or "gate_proj" in name}

    async def scenario(actor: Any) -> str:
        begun = asyncio.Event()
        running = asyncio.ensure_future(actor._engine.generate(prompt, LONG, lambda *_: begun.set()))
        await begun.wait()
        try:
            await actor._engine.load_weights({**half, "model.norm.weight": torch.zeros(3)}, 9)
        except EngineError as error:
            (first,) = await asyncio.gather(running, return_exceptions=True)
            (second,) = await asyncio.gather(actor._engine.generate(prompt, LONG), return_exceptions=True)
            return f"{error} / {first} / {second}"
        return "loaded"

    said = ray.get(rig.group.handles()[0].apply.remote(scenario)).split(" / ")
    assert len(said) == 3 and all(part.startswith("vLLM cannot load weights of version 9") for part in said)
    assert rig.group.restore() == [0]
    (completion,) = rig.run((prompt, Sampling(8, seed=1)))
    assert completion.policy_version == rig.version
    assert weights.worst(prompt, completion) <= TOLERANCE


def test_time_that_a_call_is_held_is_no_time_without_an_answer(rig: Rig) -> None:
    if rig.kind != "torch":
        pytest.skip("the clock is all engines'; one suffices")
    prompt, (handle,) = prompts(1)[0], rig.group.handles()

    def hold(actor: Any, counted: bool) -> None:
        actor._engine._gate._syncs += 1
        actor._engine._gate._keep = False
        if counted:
            actor._engine.held.begin()

    def release(actor: Any, counted: bool) -> None:
        actor._engine._gate._syncs -= 1
        actor._engine._gate._let_in()
        if counted:
            actor._engine.held.end()

    async def scenario(counted: bool) -> tuple[Completion, bool]:
        hasty = RemoteEngine([handle], timeout_s=3.0)
        await handle.apply.remote(hold, counted)
        asking = asyncio.create_task(hasty.generate(prompt, Sampling(8, seed=1)))
        ended, _ = await asyncio.wait({asking}, timeout=5.0 if counted else 60.0)
        await handle.apply.remote(release, counted)
        return await asking, bool(ended)

    completion, ended = bounded(scenario(True))
    assert len(completion.token_ids) == 8 and not ended
    with pytest.raises(EngineError, match=r"did not answer generate within 3 s"):  # earlier seconds do not count
        bounded(scenario(False))
