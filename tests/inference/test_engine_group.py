"""Engine actors that die, hang or come back, with the torch engine because it starts quickly."""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from inference.rig import stats

from rl_agents.errors import LearnerLost
from rl_agents.inference.base import Completion, EngineError, EngineSettings, Extras, RequestRefused, Sampling
from rl_agents.inference.client import RemoteEngine
from rl_agents.inference.engine_group import InferenceGroup
from rl_agents.inference.weights import PackedWeights, pack, unpack

LONG = Sampling(max_tokens=900, seed=0)
SHORT = Sampling(max_tokens=8, seed=0)
PROMPT = [5, 6, 7, 8]


@pytest.fixture(scope="module")
def group(ray_session: None, tiny_model_dir: Path) -> Iterator[InferenceGroup]:
    group = InferenceGroup(EngineSettings(str(tiny_model_dir), switch_timeout_s=2.0), num_engines=2, num_cpus=0.5)
    yield group
    group.stop()


@pytest.fixture(scope="module")
def reference(tiny_model_dir: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32).eval()


def changed(reference: Any, seed: int) -> list[PackedWeights]:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    return pack(reference.state_dict())


def seeded(max_tokens: int, seed: int) -> Sampling:
    return Sampling(max_tokens, seed=seed)


def generate(engine: RemoteEngine, *samplings: Sampling) -> list[Any]:
    async def together() -> list[Any]:
        return await asyncio.gather(*[engine.generate(PROMPT, s) for s in samplings], return_exceptions=True)

    return asyncio.run(together())


def answering(handle: Any) -> Any:
    """Wait until Ray has restarted the actor."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            ray.get(handle.ping.remote(), timeout=30)
            return handle
        except ray.exceptions.RayError:
            time.sleep(0.3)
    raise TimeoutError("the actor did not come back")


def hold(handle: Any) -> None:
    """Have the engine begin no call until `let_go`: what is asked meanwhile is in flight, however fast it samples."""

    def shut(actor: Any) -> None:
        gate, generate = asyncio.Event(), actor._engine.generate

        async def held(*request: Any) -> Completion:
            await gate.wait()
            return await generate(*request)

        actor._engine.generate, actor.gate = held, gate

    ray.get(handle.apply.remote(shut))


def let_go(handle: Any) -> None:
    def open_it(actor: Any) -> None:
        del actor._engine.generate  # the class's own is back
        actor.gate.set()

    ray.get(handle.apply.remote(open_it))


def await_outstanding(handle: Any, count: int) -> None:
    deadline = time.monotonic() + 60
    while (found := stats(handle)["outstanding"]) != count:
        assert time.monotonic() < deadline, f"{found} of {count} requests are there"
        time.sleep(0.005)


@torch.no_grad()
def worst(reference: Any, completion: Completion) -> float:
    tokens = torch.tensor(completion.token_ids)
    logits = reference(torch.tensor([PROMPT + completion.token_ids])).logits[0, len(PROMPT) - 1 : -1]
    expected = torch.log_softmax(logits, -1).gather(1, tokens[:, None])[:, 0]
    return (expected - torch.tensor(completion.logprobs)).abs().max().item()


def noted(packed: list[PackedWeights], file: Path) -> list[ray.ObjectRef]:
    """References to weights; who loads them writes its process id."""

    def load(packed: PackedWeights) -> PackedWeights:
        with file.open("a") as opened:
            print(os.getpid(), file=opened)
        return packed

    class Noting:
        def __reduce__(self) -> Any:
            return load, tuple(packed)

    return [ray.put(Noting())]


@pytest.mark.parametrize("no_restart", [False, True], ids=["crash", "gone-for-good"])
def test_another_engine_answers_for_a_killed_one_and_restore_pushes_the_last_weights(
    group, reference, no_restart, tmp_path
):
    """The driver never loads them: they may lie on another machine, and be larger than its memory."""
    version, loaded = 10 + no_restart, tmp_path / "loaded"
    group.push_weights(noted(changed(reference, version), loaded), version)
    failed = list[tuple[int, str]]()
    engine = RemoteEngine(group.handles(), timeout_s=60, failed=lambda *event: failed.append(event))
    hold(group.handles()[1])

    async def scenario() -> list[Any]:
        tasks = [asyncio.create_task(engine.generate(PROMPT, seeded(900, seed))) for seed in range(4)]
        await asyncio.to_thread(await_outstanding, group.handles()[1], 2)
        ray.kill(group.handles()[1], no_restart=no_restart)
        return await asyncio.gather(*tasks, return_exceptions=True)

    start = time.monotonic()
    results = asyncio.run(scenario())
    assert time.monotonic() - start < 60
    undisturbed = generate(RemoteEngine([group.handles()[0]]), *[seeded(900, seed) for seed in range(4)])
    assert [c.token_ids for c in results] == [c.token_ids for c in undisturbed]
    assert {c.policy_version for c in results} == {version}
    assert [number for number, _ in failed] == [1, 1]
    assert all("engine 1 (pid" in event and "2 requests outstanding" in event for _, event in failed)

    if not no_restart:  # Ray restarts it by itself, with the weights of the checkpoint
        (error,) = generate(RemoteEngine([answering(group.handles()[1])]), SHORT)
        assert isinstance(error, EngineError) and "has not received the last weights" in str(error)
    assert group.restore() == [1]
    restored = RemoteEngine([group.handles()[1]])
    (completion,) = generate(restored, SHORT)
    assert completion.policy_version == version
    assert worst(reference, completion) <= 1e-4
    assert group.restore() == []
    pids = loaded.read_text().split()
    assert len(pids) == 3 and str(os.getpid()) not in pids


def test_a_prompt_that_kills_engines_kills_two_at_most(ray_session: None, tiny_model_dir: Path, tmp_path: Path) -> None:
    """What was in flight beside it goes on, and later requests go to the third engine."""
    killed, poison = tmp_path / "killed", [*PROMPT, 9]
    group = InferenceGroup(EngineSettings(str(tiny_model_dir)), num_engines=3, num_cpus=0.1)

    def poisonous(actor: Any) -> None:
        generate = actor._engine.generate

        async def dying(prompt: list[int], *request: Any) -> Completion:
            if prompt == poison:
                with killed.open("a") as opened:
                    print(os.getpid(), file=opened)
                os._exit(1)
            return await generate(prompt, *request)

        actor._engine.generate = dying

    ray.get([handle.apply.remote(poisonous) for handle in group.handles()])
    pids = [ray.get(handle.place.remote())[0] for handle in group.handles()]
    failed = list[tuple[int, str]]()
    engine = RemoteEngine(group.handles(), timeout_s=60, failed=lambda *event: failed.append(event))

    async def scenario() -> list[Any]:
        prompts = [poison, PROMPT, PROMPT]
        return await asyncio.gather(*[engine.generate(p, SHORT) for p in prompts], return_exceptions=True)

    poisoned, *others = asyncio.run(scenario())
    assert isinstance(poisoned, EngineError) and "failed in generate" in str(poisoned)
    assert len(killed.read_text().split()) == 2
    assert all(isinstance(answer, Completion) for answer in others)
    assert len({number for number, _ in failed}) == 2
    (alive,) = {0, 1, 2} - {number for number, _ in failed}
    assert ray.get(group.handles()[alive].place.remote())[0] == pids[alive]
    assert all(isinstance(answer, Completion) for answer in generate(engine, *[SHORT] * 4))
    group.stop()


def test_a_refused_request_stays_one_and_no_other_engine_is_asked(group: InferenceGroup) -> None:
    failed = list[Any]()
    engine = RemoteEngine(group.handles(), failed=lambda *event: failed.append(event))
    too_much = Sampling(max_tokens=8, extras=Extras(top_k=3))
    answers = generate(engine, too_much, SHORT)
    assert isinstance(answers[0], RequestRefused) and "engine=vllm" in str(answers[0]) and not failed
    assert isinstance(answers[1], Completion)
    (refused,) = asyncio.run(refusals(engine, [5] * 2000))
    assert isinstance(refused, RequestRefused) and "do not fit max_model_len" in str(refused) and not failed


async def refusals(engine: RemoteEngine, prompt: list[int]) -> list[Any]:
    return await asyncio.gather(engine.generate(prompt, SHORT), return_exceptions=True)


def sampled_tokens(group: InferenceGroup) -> list[float]:
    return [stats(handle)["sampled_tokens"] for handle in group.handles()]


def test_two_engines_share_the_requests(group: InferenceGroup) -> None:
    before, busy = sampled_tokens(group), group.busy_seconds()
    started = time.monotonic()
    generate(RemoteEngine(group.handles()), *[SHORT] * 20)
    after, lasted = sampled_tokens(group), time.monotonic() - started
    assert [b - a for a, b in zip(before, after, strict=True)] == [80, 80]
    then = group.busy_seconds()
    assert all(0 < then[i] - busy[i] < lasted for i in (0, 1))
    assert group.busy_seconds() == then, "nobody asks for anything now"


def test_a_caller_that_comes_back_drops_what_it_had_asked_for(group: InferenceGroup) -> None:
    handle = group.handles()[0]
    dead = [(i, PROMPT, LONG) for i in range(8)]
    hold(handle)
    first = handle.serve_batch.remote("runner-3/first", dead)
    await_outstanding(handle, 8)
    ray.get(handle.serve_batch.remote("runner-3/second", []))
    assert stats(handle)["outstanding"] == 0
    assert ray.get(first)[0] == []
    let_go(handle)


def test_known_requests_are_not_started_twice(group: InferenceGroup) -> None:
    handle = group.handles()[0]
    before = stats(handle)["sampled_tokens"]
    hold(handle)
    calls = [handle.serve_batch.remote("runner-4/x", [(0, PROMPT, SHORT)]) for _ in range(3)]
    assert [replies for replies, _ in ray.get(calls)] == [[]] * 3, "all have arrived, and none has a reply yet"
    let_go(handle)
    replies: list[Any] = []
    while not replies:
        replies, _ = ray.get(handle.serve_batch.remote("runner-4/x", []))
    assert [request_id for request_id, _ in replies] == [0]
    assert stats(handle)["sampled_tokens"] - before == 8


def test_sync_names_the_engine_that_refuses_or_hangs(group: InferenceGroup, reference: Any, tmp_path: Path) -> None:
    def hang(actor: Any) -> None:
        (tmp_path / "hangs").touch()
        time.sleep(120)

    with pytest.raises(EngineError, match=r"engine 0 failed in sync to version 30.*sync lacks"):
        group.push_weights(pack({"model.norm.weight": torch.zeros(64)}), 30)
    group.push_weights(changed(reference, 31), 31)
    hanging = group.handles()[1].apply.remote(hang)
    while not (tmp_path / "hangs").exists():
        time.sleep(0.01)
    with pytest.raises(EngineError, match=r"^engine 1 did not answer sync to version 32: no answer within 8 s"):
        group.push_weights(changed(reference, 32), 32, timeout_s=6)
    assert group.restore() == [1]
    assert generate(RemoteEngine([group.handles()[1]]), SHORT)[0].policy_version == 32
    del hanging


def test_weights_that_are_gone_with_their_learner_are_the_learners_loss(group: InferenceGroup, reference: Any) -> None:
    """Who exported them owns them; with it and an engine, nobody has them any more. An engine that says so is dead."""

    @ray.remote(num_cpus=0)
    class Exporter:
        def export(self, packed: list[PackedWeights]) -> list[Any]:
            return [ray.put(bucket) for bucket in packed]

    exporter = Exporter.remote()
    weights = ray.get(exporter.export.remote(changed(reference, 40)))
    group.push_weights(weights, 40)
    ray.kill(exporter)
    ray.get(group.handles()[1].apply.remote(lambda actor: setattr(actor._engine, "dead", "its step failed")))
    with pytest.raises(
        LearnerLost, match="engine 1 came back, and the weights of version 40 are gone with the learner"
    ):
        group.restore()
    group.push_weights(changed(reference, 42), 42)
    assert group.restore() == []
    assert [c.policy_version for c in generate(RemoteEngine(group.handles()), SHORT, SHORT)] == [42, 42]


def test_engines_that_do_not_fall_asleep_are_named(group: InferenceGroup) -> None:
    with pytest.raises(EngineError, match=r"engine 0 failed in sleep: .*; engine 1 failed in sleep: "):
        group.sleep(1)  # torch engines have no sleep


def test_vllm_in_bfloat16_samples_what_the_model_in_bfloat16_scores(ray_session: None, tiny_model_dir: Path) -> None:
    """Also from weights that are pushed in half the bytes, to the last bit: biases, too, are rounded as the rest."""
    pytest.importorskip("vllm", reason="vLLM is an optional extra")
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32).eval()
    fields: dict[str, Any] = {"kind": "vllm", "max_model_len": 128, "kv_cache_gb": 0.0625}
    group = InferenceGroup(EngineSettings(str(tiny_model_dir), dtype="bfloat16", **fields), num_cpus=0.5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn(parameter.shape)
    packed = pack(model.state_dict())
    group.push_weights(packed, 1)
    (completion,) = generate(RemoteEngine(group.handles()), SHORT)
    assert worst(model.bfloat16().float(), completion) < 0.1
    half = pack({name: tensor.bfloat16() for name, tensor in unpack(packed).items()})
    group.push_weights(half, 1)
    assert generate(RemoteEngine(group.handles()), SHORT) == [completion]
    group.stop()


def test_a_model_that_cannot_be_loaded_is_an_error_at_the_start(ray_session: None, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"engine 0 cannot start.*no config\.json"):
        InferenceGroup(EngineSettings(str(tmp_path)), num_cpus=0.1)


def test_inside_a_placement_group_every_engine_takes_its_own_bundle(ray_session: None, tiny_model_dir: Path) -> None:
    bundles = ray.util.placement_group([{"CPU": 0.1}] * 3)

    @ray.remote(num_cpus=0.1)
    def trial(folder: str) -> list[str]:
        with pytest.raises(ValueError, match="first_bundle"):
            InferenceGroup(EngineSettings(folder))
        group = InferenceGroup(EngineSettings(folder), num_engines=2, first_bundle=1, num_cpus=0.1)
        resources = [
            ray.get(h.apply.remote(lambda actor: str(ray.get_runtime_context().get_assigned_resources())))
            for h in group.handles()
        ]
        group.stop()
        return resources

    strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
        bundles, placement_group_bundle_index=0, placement_group_capture_child_tasks=True
    )
    try:
        resources = ray.get(trial.options(scheduling_strategy=strategy).remote(str(tiny_model_dir)), timeout=60)
        assert len(resources) == 2
    finally:
        ray.util.remove_placement_group(bundles)
