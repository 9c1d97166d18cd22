"""What only the torch engine promises: the same bits, reuse of slots, and errors that name the weights."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from rl_agents.errors import InputError
from rl_agents.inference import torch_engine, torch_forward
from rl_agents.inference.base import Completion, EngineError, Sampling
from rl_agents.inference.torch_engine import PASS_TOKENS, TorchEngine, beginning, by_width, draw, uniforms


async def episode(engine: TorchEngine, index: int, turns: int = 4) -> list[tuple[list[int], Completion]]:
    """Play a dialogue whose length and turns depend on the index."""
    rng = random.Random(index)
    prompt = [rng.randrange(3, 200) for _ in range(rng.randrange(5, 40))]
    record = []
    for turn in range(turns):
        sampling = Sampling(rng.randrange(1, 30), seed=index * 100 + turn, stop_token_ids=(7, 8))
        completion = await engine.generate(prompt, sampling)
        record.append((prompt, completion))
        prompt = prompt + completion.token_ids + [rng.randrange(3, 200) for _ in range(4)]
    return record


def play(engine: TorchEngine, episodes: int) -> list[list[tuple[list[int], Completion]]]:
    async def together() -> list[list[tuple[list[int], Completion]]]:
        return await asyncio.gather(*[episode(engine, index) for index in range(episodes)])

    return asyncio.run(together())


def answers(engine: TorchEngine, asked: Sequence[tuple[list[int], Sampling]]) -> list[Completion]:
    """Generate all at the same time."""

    async def together() -> list[Completion]:
        return await asyncio.gather(*[engine.generate(prompt, sampling) for prompt, sampling in asked])

    return asyncio.run(together())


def test_same_coroutines_give_the_same_bits(tiny_model_dir: Path) -> None:
    first, second = (play(TorchEngine(tiny_model_dir), 20) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("max_batch", [3, 64])
def test_episodes_agree_with_teacher_forcing_and_reuse_their_slots(tiny_model_dir: Path, max_batch: int) -> None:
    engine = TorchEngine(tiny_model_dir, max_batch=max_batch)
    reference = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    for prompt, completion in [pair for record in play(engine, 20) for pair in record]:
        with torch.no_grad():
            logits = reference(torch.tensor([prompt + completion.token_ids])).logits[0, len(prompt) - 1 : -1]
        expected = torch.log_softmax(logits, -1).gather(1, torch.tensor(completion.token_ids)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(completion.logprobs), expected, atol=1e-4, rtol=0)
    assert max_batch == 3 or engine.cached_tokens > 0.5 * engine.prompt_tokens


def test_memory_is_bounded_at_the_start_and_by_request(tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer contexts at once, and long prompts in pieces, sample the same."""
    expected = play(TorchEngine(tiny_model_dir), 20)
    row = 2 * 2 * 4 * 64 * 1025  # layers, keys and values, bytes, heads x dim, positions
    monkeypatch.setattr(torch_forward, "CACHE_BYTES", 5 * row)
    monkeypatch.setattr(torch_forward, "MASK_CELLS", 1000)
    engine = TorchEngine(tiny_model_dir)
    found = play(engine, 20)
    assert engine.max_batch == 5 and engine.passes > 0
    assert sum(part.nbytes for part in engine._passes.cache.memory) <= 5 * row
    for mine, theirs in zip(found, expected, strict=True):
        assert [c.token_ids for _, c in mine] == [c.token_ids for _, c in theirs]
        torch.testing.assert_close(
            torch.tensor([x for _, c in mine for x in c.logprobs]),
            torch.tensor([x for _, c in theirs for x in c.logprobs]), atol=1e-4, rtol=0,
        )  # fmt: skip
    monkeypatch.setattr(torch_forward, "CACHE_BYTES", row - 1)
    with pytest.raises(InputError, match=r"^max_model_len=1024: the keys and values of one context take"):
        TorchEngine(tiny_model_dir)


def test_sync_computes_running_requests_anew(tiny_model_dir: Path) -> None:
    engine = TorchEngine(tiny_model_dir, weight_switch="keep")
    weights = {name: value + 0.05 for name, value in engine.model.state_dict().items()}

    async def scenario() -> Completion:
        running = asyncio.create_task(engine.generate([5, 6, 7], Sampling(60, seed=0)))
        while engine.sampled_tokens < 20:
            await asyncio.sleep(0)
        await engine.load_weights(weights, 1)
        return await running

    completion = asyncio.run(scenario())
    assert (completion.policy_version, completion.version_spans) == (0, ((0, 20), (1, 40)))
    ids = torch.tensor([[5, 6, 7, *completion.token_ids]])
    with torch.no_grad():
        logprobs = torch.log_softmax(engine.model(ids).logits[0, 2:-1], -1)
    new = logprobs.gather(1, torch.tensor(completion.token_ids)[:, None])[:, 0]
    error = (new - torch.tensor(completion.logprobs)).abs()
    assert error[20:].max() <= 1e-4 < error[:20].min()


def test_sync_waits_for_running_requests_only(tiny_model_dir: Path) -> None:
    """Two run, one waits for a slot, one comes while the sync waits, and one of the two is given up."""
    engine = TorchEngine(tiny_model_dir, max_batch=2)
    weights = {name: value + 0.05 for name, value in engine.model.state_dict().items()}

    async def scenario() -> list[Completion]:
        tasks = [asyncio.create_task(engine.generate([5, 6, 7 + i], Sampling(60, seed=i))) for i in range(3)]
        while engine.sampled_tokens < 20:
            await asyncio.sleep(0)
        sync = asyncio.create_task(engine.load_weights(weights, 1))
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(engine.generate([5, 6, 7], Sampling(60, seed=0))))
        tasks.pop(1).cancel()
        await sync
        return await asyncio.gather(*tasks)

    before, waited, after = asyncio.run(scenario())
    assert [c.policy_version for c in (before, waited, after)] == [0, 1, 1]
    assert not any(c.version_spans for c in (before, waited, after))
    fresh = TorchEngine(engine.model)
    assert after.logprobs == pytest.approx(
        asyncio.run(fresh.generate([5, 6, 7], Sampling(60, seed=0))).logprobs, abs=1e-4
    )


def test_requests_may_follow_in_another_event_loop(tiny_model_dir: Path) -> None:
    engine = TorchEngine(tiny_model_dir)

    async def give_up() -> None:
        await asyncio.wait_for(engine.generate([5, 6, 7], Sampling(900, seed=0)), timeout=0.05)

    with pytest.raises(TimeoutError):
        asyncio.run(give_up())
    completion = asyncio.run(engine.generate([5, 6, 7], Sampling(8, seed=1)))
    assert completion == asyncio.run(TorchEngine(tiny_model_dir).generate([5, 6, 7], Sampling(8, seed=1)))


def test_weights_that_do_not_fit_are_named(tiny_model_dir: Path) -> None:
    engine = TorchEngine(tiny_model_dir)
    weights = dict(engine.model.state_dict())
    with pytest.raises(EngineError, match=r"lacks 25 weights"):
        asyncio.run(engine.load_weights({"model.norm.weight": weights["model.norm.weight"]}, 1))
    with pytest.raises(EngineError, match=r"1 unknown weights, e\.g\. surplus"):
        asyncio.run(engine.load_weights(weights | {"surplus": torch.zeros(1)}, 1))
    before = {name: value.clone() for name, value in weights.items()}
    moved = {name: value + 1 for name, value in weights.items()}
    with pytest.raises(
        EngineError, match=r"model\.norm\.weight has shape \[1\], expected \[\d+\]"
    ):  # it would broadcast
        asyncio.run(engine.load_weights(moved | {"model.norm.weight": torch.zeros(1)}, 1))
    assert all(torch.equal(value, before[name]) for name, value in engine.model.state_dict().items())


def test_a_failing_model_fails_the_requests(tiny_model_dir: Path) -> None:
    engine = TorchEngine(tiny_model_dir)
    with pytest.raises(EngineError, match="torch engine failed: IndexError"):
        asyncio.run(engine.generate([5, 10_000], Sampling(4)))
    assert len(asyncio.run(engine.generate([5, 6], Sampling(4))).token_ids) == 4


def test_a_window_shorter_than_the_context_is_refused(tiny_model_dir: Path) -> None:
    windows = {"use_sliding_window": True, "sliding_window": 128, "layer_types": ["sliding_attention"] * 2}
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir, **windows)
    with pytest.raises(InputError, match="full attention"):
        TorchEngine(model, max_model_len=256)
    TorchEngine(model, max_model_len=128)


def test_draw_follows_the_distribution() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]])
    count = 20_000
    chance = torch.tensor(uniforms(3, count), dtype=torch.float64)
    tokens, logprobs = draw(logits.expand(count, -1), torch.full((count,), 2.0), torch.ones(count), chance)
    expected = torch.softmax(logits[0] / 2, -1)
    torch.testing.assert_close(torch.bincount(tokens) / count, expected, atol=0.01, rtol=0)
    torch.testing.assert_close(logprobs, expected.log()[tokens])


def test_draw_keeps_each_row_to_its_own_settings() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, 3.0]]).expand(3, -1)
    temperature, top_p = torch.tensor([0.0, 1.0, 1.0]), torch.tensor([1.0, 0.5, 1.0])
    tokens, logprobs = draw(logits, temperature, top_p, torch.tensor([0.0, 0.0, 0.0], dtype=torch.float64))
    assert tokens.tolist() == [3, 3, 0]
    assert logprobs[1].item() == pytest.approx(0.0, abs=1e-6)  # the nucleus is one token


def test_uniforms_do_not_depend_on_how_many_are_asked_for() -> None:
    assert uniforms(7, 100)[:10] == uniforms(7, 10)
    assert uniforms(7, 10) != uniforms(8, 10)


def test_equal_prompts_are_computed_once_and_answered_apart(tiny_model_dir: Path) -> None:
    """Siblings of three states join together; each answers as it does alone, by its own seed and from its own copy."""
    prompts = [[5 + state, *range(20, 60 + 7 * state)] for state in range(3)]
    asked = [(prompt, Sampling(12, seed=index)) for index, prompt in enumerate(prompts * 4)]
    engine = TorchEngine(tiny_model_dir)
    found = answers(engine, asked)
    widest = max(map(len, prompts))
    assert sum(map(len, prompts)) <= engine.prefill_tokens <= 3 * widest
    assert engine.cached_tokens == 3 * sum(map(len, prompts))
    assert len({tuple(answer.token_ids) for answer in found}) == len(asked)
    for request, answer in zip(asked, found, strict=True):
        (alone,) = answers(TorchEngine(engine.model), [request])
        assert answer.token_ids == alone.token_ids
        assert answer.logprobs == pytest.approx(alone.logprobs, abs=1e-4)


@pytest.mark.parametrize("cached", [False, True], ids=["at once", "beside slots with keys"])
def test_joining_prompts_of_a_large_model_compute_their_common_beginning_once(
    tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch, cached: bool
) -> None:
    """60 tokens are equal in five prompts, of which two are the same, and one continues a prompt of before."""
    first = list(range(3, 63))
    prompts = [[*first, 70 + n, *range(120, 130 + n)] for n in (0, 3, 9, 30, 3)]

    def run(large: int) -> tuple[TorchEngine, list[Completion]]:
        monkeypatch.setattr(torch_engine, "LARGE", large)
        engine = TorchEngine(tiny_model_dir)
        if cached:
            answers(engine, [([*first, 70], Sampling(1, seed=9))])
        return engine, answers(engine, [(prompt, Sampling(4, seed=i)) for i, prompt in enumerate(prompts)])

    (plain, expected), (engine, found) = run(10**9), run(0)
    assert [c.token_ids for c in found] == [c.token_ids for c in expected]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(torch.tensor(ours.logprobs), torch.tensor(theirs.logprobs), atol=1e-4, rtol=0)
    shared = 3 - cached  # of the four different prompts, besides the one that computes it or has its keys
    assert engine.cached_tokens - plain.cached_tokens == 60 * shared
    assert engine.prefill_tokens <= plain.prefill_tokens - 60 * shared


def test_prompts_of_very_different_lengths_are_not_padded_to_the_longest(tiny_model_dir: Path) -> None:
    asked = [([i + 5] * (400 if i in (3, 7) else 9), Sampling(6, seed=i)) for i in range(20)]
    engine = TorchEngine(tiny_model_dir)
    found = answers(engine, asked)
    assert engine.prefill_tokens == sum(len(prompt) for prompt, _ in asked), "one pass of 20 rows would be 8,000 tokens"
    for request, answer in zip(asked, found, strict=True):
        assert answer.token_ids == answers(TorchEngine(engine.model), [request])[0].token_ids


def test_passes_are_cut_where_padding_costs_more_than_a_pass() -> None:
    assert by_width([5, 6, 7]) == [[2, 1, 0]]
    assert by_width([10] * 100) == [list(range(100))]
    assert by_width([300, *[4] * 50, 290]) == [[0, 51], list(range(1, 51))]
    assert by_width([PASS_TOKENS + 2, 1]) == [[0], [1]] and by_width([PASS_TOKENS + 1, 1]) == [[0, 1]]


@pytest.mark.parametrize(
    ("prompts", "length"),
    [
        ([], 0), ([[1] * 100], 0), ([[*range(40), 1], [*range(40), 2]], 40), ([[*range(32), 1], [*range(32), 2]], 0),
        ([[*range(40)], [*range(41)]], 39), ([[1, 2, 3], [2, 2, 3]], 0),
    ],
)  # fmt: skip
def test_a_common_beginning_leaves_a_token_of_every_prompt_and_saves_more_than_a_pass(
    prompts: list[list[int]], length: int
) -> None:
    assert beginning(prompts) == length
