"""One suite for all engines, each in an `EngineActor` behind a `RemoteEngine`, as a run uses them."""

import asyncio
import gc
import sys
from dataclasses import replace
from typing import Any

import pytest
import ray
import torch
from inference.rig import TOLERANCE, VOCABULARY, Rig, change_engine, prompts, teacher

from rl_agents.inference.base import Completion, EngineError, Extras, Sampling
from rl_agents.inference.client import RemoteEngine
from rl_agents.inference.weights import pack
from rl_agents.startup import NEW_CONTAINERS


def test_logprobs_equal_teacher_forcing_before_and_after_syncs(rig: Rig) -> None:
    """The reference knows the tokenizer's ids only; padding that is sampled has no log-probability there."""
    same_prompts = prompts(6)
    for seed in range(2):
        if seed:
            rig.change_weights(seed)
        results = rig.run(*[(p, Sampling(max_tokens=24, seed=i)) for i, p in enumerate(same_prompts)])
        assert max(token for c in results for token in c.token_ids) < VOCABULARY
        worst = max(rig.worst_logprob(p, c) for p, c in zip(same_prompts, results, strict=True))
        assert worst <= TOLERANCE, f"after sync {seed}"
        assert {c.policy_version for c in results} == {rig.version}


def test_weights_in_half_the_bytes_are_the_same_where_their_values_are(rig: Rig) -> None:
    """A bfloat16 learner sends them to an engine of another type."""
    with torch.no_grad():
        for parameter in rig.reference.parameters():
            parameter.copy_(parameter.bfloat16())
    rig.version += 1
    rig.group.push_weights(pack({name: t.bfloat16() for name, t in rig.reference.state_dict().items()}), rig.version)
    prompt = prompts(1)[0]
    (completion,) = rig.run((prompt, Sampling(max_tokens=24, seed=0)))
    assert rig.worst_logprob(prompt, completion) <= TOLERANCE


def test_its_process_has_started_without_what_it_does_not_use(rig: Rig) -> None:
    def look(actor: Any) -> tuple[int, list[str]]:
        unused = ("sklearn", "pandas", "ray.rllib", "ray.tune", "matplotlib", "tensorboard", "sentence_transformers")
        return gc.get_threshold()[0], [name for name in unused if name in sys.modules]

    assert ray.get(rig.group.handles()[0].apply.remote(look)) == (NEW_CONTAINERS, [])


def test_a_listener_ends_a_response_which_is_a_prefix_of_the_whole_one(rig: Rig) -> None:
    """The engine stops then, and goes on with the other requests."""
    prompt, heard = prompts(1)[0], list[int]()

    async def play(actor: Any) -> list[Completion]:
        engine = actor._engine

        def enough(ids: list[int], *_: Any) -> bool:
            heard.extend(ids)
            return len(heard) >= 5

        sampling = Sampling(max_tokens=40, seed=3)
        asked = [engine.generate(prompt, sampling, on_tokens=enough), engine.generate(prompt, sampling)]
        return list(await asyncio.gather(*asked))

    cut, whole = ray.get(rig.group.handles()[0].apply.remote(play))
    count = len(cut.token_ids)
    assert 5 <= count < len(whole.token_ids) and cut.finish_reason == "stop"
    assert cut.token_ids == whole.token_ids[:count] and cut.policy_version == rig.version
    assert cut.logprobs == pytest.approx(whole.logprobs[:count], abs=TOLERANCE) and not cut.version_spans


def test_the_beginning_of_a_completion_keeps_the_versions_of_its_tokens() -> None:
    whole = Completion([1, 2, 3, 4], [-1.0, -2.0, -3.0, -4.0], 7, "length", version_spans=((7, 2), (8, 2)))
    assert whole.until(2) == Completion([1, 2], [-1.0, -2.0], 7, "stop")
    assert whole.until(3) == Completion([1, 2, 3], [-1.0, -2.0, -3.0], 7, "stop", version_spans=((7, 2), (8, 1)))


def test_what_is_heard_while_sampling_is_the_completion(rig: Rig) -> None:
    """Several at a time, one of them ended by a stop token."""
    questions = prompts(4)

    async def listen(actor: Any) -> list[tuple[list[tuple[list[int], list[float]]], Completion]]:
        async def one(number: int, prompt: list[int]) -> tuple[list[tuple[list[int], list[float]]], Completion]:
            pieces: list[tuple[list[int], list[float]]] = []
            stop = tuple(range(3, 30)) if number == 0 else ()
            sampling = Sampling(max_tokens=20, seed=number, stop_token_ids=stop)
            done = await actor._engine.generate(prompt, sampling, lambda ids, logprobs: pieces.append((ids, logprobs)))
            return pieces, done

        return await asyncio.gather(*[one(number, prompt) for number, prompt in enumerate(questions)])

    answers = ray.get(rig.group.handles()[0].apply.remote(listen))
    for pieces, completion in answers:
        streamed = [token for ids, _ in pieces for token in ids]
        assert completion.token_ids[: len(streamed)] == streamed
        assert len(completion.token_ids) - len(streamed) <= 1  # the last step's may come with the whole
        assert completion.logprobs[: len(streamed)] == [value for _, logprobs in pieces for value in logprobs]
    assert len(answers[1][0]) > 1
    assert rig.run((questions[1], Sampling(max_tokens=20, seed=1)))[0].token_ids == answers[1][1].token_ids


def test_logprobs_are_of_the_distribution_sampled_from(rig: Rig) -> None:
    temperature = 0.7
    prompt = prompts(1, seed=1)[0]
    (completion,) = rig.run((prompt, Sampling(max_tokens=32, temperature=temperature, seed=1)))
    assert rig.worst_logprob(prompt, completion, temperature) <= TOLERANCE
    assert rig.worst_logprob(prompt, completion, 1.0) > 0.01


def test_top_p_renormalizes_over_the_nucleus(rig: Rig) -> None:
    prompt = prompts(1, seed=2)[0]
    (completion,) = rig.run((prompt, Sampling(max_tokens=32, top_p=0.5, seed=1)))
    gain = torch.tensor(completion.logprobs) - teacher(rig.reference, prompt, completion.token_ids)
    assert gain.min() > -TOLERANCE and gain.max() <= -torch.log(torch.tensor(0.5)) + TOLERANCE
    assert gain.max() > 0.1


def test_greedy_equals_hugging_face(rig: Rig) -> None:
    for prompt in prompts(3, seed=4):
        (completion,) = rig.run((prompt, Sampling(max_tokens=20, temperature=0.0)))
        ids = torch.tensor([prompt])
        options = {"attention_mask": torch.ones_like(ids), "do_sample": False, "eos_token_id": None}
        expected = rig.reference.generate(ids, max_new_tokens=20, **options)
        assert completion.token_ids == expected[0, len(prompt) :].tolist()


def test_stop_token_ends_the_response_and_belongs_to_it(rig: Rig) -> None:
    prompt = prompts(1, seed=6)[0]
    (free,) = rig.run((prompt, Sampling(max_tokens=20, seed=3)))
    assert (free.finish_reason, len(free.token_ids)) == ("length", 20)
    stop = free.token_ids[9]
    end = free.token_ids.index(stop) + 1
    (stopped,) = rig.run((prompt, Sampling(max_tokens=20, seed=3, stop_token_ids=(stop,))))
    assert stopped.finish_reason == "stop"
    assert stopped.token_ids == free.token_ids[:end]
    assert len(stopped.logprobs) == end


def test_response_ends_where_the_context_ends(rig: Rig) -> None:
    prompt = (prompts(1, seed=7)[0] * 48)[:240]
    (completion,) = rig.run((prompt, Sampling(max_tokens=100, seed=3)))
    assert (completion.finish_reason, len(completion.token_ids)) == ("length", 256 - 240)


def test_seed_reproduces_whatever_shares_the_batch(rig: Rig) -> None:
    prompt = prompts(1, seed=8)[0]
    mine = (prompt, Sampling(max_tokens=16, seed=11))
    (alone,) = rig.run(mine)
    others = [(p, Sampling(max_tokens=20, seed=i)) for i, p in enumerate(prompts(10, seed=9))]
    together = rig.run(*others[:5], mine, *others[5:])[5]
    assert together.token_ids == alone.token_ids
    (different,) = rig.run((prompt, Sampling(max_tokens=16, seed=12)))
    assert different.token_ids != alone.token_ids


def test_a_rejected_request_fails_alone(rig: Rig) -> None:
    good = prompts(1, seed=11)[0]
    sampling = Sampling(max_tokens=8, seed=0)
    bad, fine = rig.run(([5] * 300, sampling), (good, sampling))
    assert isinstance(bad, EngineError) and "engine 0" in str(bad) and "pid" in str(bad)
    assert len(fine.token_ids) == 8


def test_an_answer_that_comes_too_late_is_an_error(rig: Rig) -> None:
    hasty = RemoteEngine(rig.group.handles(), timeout_s=0.02)

    async def ask() -> None:
        await hasty.generate([5, 6, 7], Sampling(max_tokens=200))

    with pytest.raises(EngineError, match=r"engine 0 \(.*did not answer generate within 0.02 s, 1 requests"):
        asyncio.run(ask())


def test_extras_are_done_or_refused_and_change_nothing_else(rig: Rig) -> None:
    """What only servers ask for: log-probabilities of requests without extras are untouched beside them."""
    prompt, plain = prompts(1, seed=3)[0], Sampling(max_tokens=12, seed=5)
    told, narrow, alone = rig.run(
        (prompt, replace(plain, extras=Extras(top_logprobs=3))),
        (prompt, replace(plain, extras=Extras(top_k=1))),
        (prompt, plain),
    )
    assert rig.worst_logprob(prompt, alone) <= TOLERANCE and alone.likeliest == ()
    if rig.kind == "torch":
        assert "engine=vllm" in str(told) and isinstance(told, EngineError) and isinstance(narrow, EngineError)
        return
    assert told.token_ids == alone.token_ids and rig.worst_logprob(prompt, told) <= TOLERANCE
    logits = rig.reference(torch.tensor([prompt])).logits[0, -1].detach()
    best = torch.log_softmax(logits, -1).topk(3)
    assert [token for token, _ in told.likeliest[0]] == best.indices.tolist()
    assert [value for _, value in told.likeliest[0]] == pytest.approx(best.values.tolist(), abs=TOLERANCE)
    assert narrow.token_ids[0] == best.indices[0] and narrow.logprobs == pytest.approx([0.0] * 12, abs=TOLERANCE)
    (refused,) = rig.run((prompt, replace(plain, extras=Extras(logit_bias=((10**6, 1.0),)))))
    assert isinstance(refused, EngineError) and "rejects the request" in str(refused)


@pytest.mark.parametrize("level", [1, 2])
def test_a_sleeping_engine_wakes_with_an_update(rig: Rig, level: int) -> None:
    """vLLM's own sleep and wake by tags; on CPUs its worker frees nothing, so that this shows the calls only."""
    if rig.kind != "vllm-inprocess":
        pytest.skip("one engine suffices")
    rig.group.sleep(level)
    with pytest.raises(EngineError, match=r"engine 0 failed in sleep.*it sleeps already"):
        rig.group.sleep(level)
    rig.change_weights(200 + level)
    prompt = prompts(1, seed=13)[0]
    (completion,) = rig.run((prompt, Sampling(max_tokens=8, seed=0)))
    assert completion.policy_version == rig.version
    assert rig.worst_logprob(prompt, completion) <= TOLERANCE


def test_a_stale_prefix_cache_would_be_noticed(rig: Rig) -> None:
    """The check of the sync tests can fail: without the salt, old keys spoil the log-probabilities."""
    if rig.kind != "vllm-inprocess":
        pytest.skip("one engine suffices to prove the check")
    prompt = (prompts(1, seed=12)[0] * 20)[:100]
    request = (prompt, Sampling(max_tokens=16, seed=0))
    change_engine(rig, lambda engine: setattr(engine, "salted", False))
    rig.run(request)
    rig.change_weights(100)
    assert rig.worst_logprob(prompt, rig.run(request)[0]) > 0.01
    change_engine(rig, lambda engine: setattr(engine, "salted", True))
    rig.change_weights(101)
    assert rig.worst_logprob(prompt, rig.run(request)[0]) <= TOLERANCE


def test_a_failed_step_fails_all_requests_and_restore_mends_the_engine(rig: Rig) -> None:
    if rig.kind != "vllm-inprocess":
        pytest.skip("the others run no thread of ours")
    change_engine(rig, lambda engine: setattr(engine._engine._engine, "step", None))
    many = [(p, Sampling(max_tokens=8, seed=0)) for p in prompts(5)]
    for error in rig.run(*many):
        assert isinstance(error, EngineError) and "step failed" in str(error)
    assert isinstance(rig.run(many[0])[0], EngineError)
    assert rig.group.restore() == [0]
    prompt, sampling = many[0]
    (completion,) = rig.run((prompt, sampling))
    assert completion.policy_version == rig.version
    assert rig.worst_logprob(prompt, completion) <= TOLERANCE
