"""Recorded passes: the same bits as the model's own, also with other weights, and none where values decide."""

import asyncio
import random

import pytest
import torch
from tiny_models import tiny_qwen
from transformers import modeling_utils
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from rl_agents.inference import torch_forward
from rl_agents.inference.base import Completion, Sampling
from rl_agents.inference.torch_engine import TorchEngine
from rl_agents.inference.torch_model import GROUPED, grouped_attention


async def episode(engine: TorchEngine, index: int) -> list[Completion]:
    """Three turns whose prompts grow; some are greedy, hot or from a nucleus."""
    rng = random.Random(index)
    prompt, answers = [rng.randrange(3, 200) for _ in range(5 + 9 * (index % 4))], []
    for turn in range(3):
        sampling = Sampling(rng.randrange(1, 25), (1.0, 0.0, 1.5)[index % 3], (1.0, 0.8)[index % 2], (7,), index + turn)
        answers.append(await engine.generate(prompt, sampling))
        prompt = prompt + answers[-1].token_ids + [9, 10, 11]
    return answers


def play(engine: TorchEngine) -> list[list[Completion]]:
    """Play, put other weights in their place, and play again."""

    async def both() -> list[list[Completion]]:
        before = await asyncio.gather(*[episode(engine, index) for index in range(12)])
        weights = {name: 0.7 * value for name, value in engine.model.state_dict().items()}
        await engine.load_weights(weights, 1)
        return before + await asyncio.gather(*[episode(engine, index) for index in range(12)])

    return asyncio.run(both())


@pytest.mark.parametrize("key_heads", [2, 1])
def test_recorded_passes_give_the_models_own_bits(monkeypatch: pytest.MonkeyPatch, key_heads: int) -> None:
    plain = TorchEngine(tiny_qwen(200, key_heads=key_heads), max_model_len=300)
    monkeypatch.setattr(torch_forward, "RECORD_AFTER", 1 << 30)
    expected = play(plain)
    monkeypatch.setattr(torch_forward, "RECORD_AFTER", 3)
    warned: list[str] = []
    monkeypatch.setattr(modeling_utils.logger, "warning_once", warned.append)
    engine = TorchEngine(tiny_qwen(200, key_heads=key_heads), max_model_len=300)
    assert (engine.model.config._attn_implementation == GROUPED) is (key_heads == 1)
    assert play(engine) == expected and not warned
    assert engine._passes.recorded and not plain._passes.recorded and engine.passes == plain.passes


def test_a_model_that_reads_values_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rotary tables that grow with the longest position: a recording would hold those of the positions it saw."""
    monkeypatch.setattr(torch_forward, "RECORD_AFTER", 2)
    growing = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1000.0}
    engine = TorchEngine(tiny_qwen(200, rope_parameters=growing, max_position_embeddings=32), max_model_len=300)
    answer = asyncio.run(engine.generate([5, 6, 7], Sampling(60, seed=0)))
    assert len(answer.token_ids) == 60 and not engine._passes.recorded


def test_a_recording_that_differs_is_not_used() -> None:
    """A model that does something else with one row, which the recorded pass has not."""

    class Odd(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = tiny_qwen(200)

        def forward(self, input_ids: torch.Tensor, **rest: object) -> object:
            output = self.model(input_ids=input_ids, **rest)
            if int(input_ids.shape[0]) == 1:
                output.logits = output.logits * 2
            return output

    memory = [torch.zeros(2, 9, 2, 16)] * 4
    with torch.inference_mode():
        assert torch_forward.recording(torch_forward.DecodingStep(tiny_qwen(200)), memory) is not None
        assert torch_forward.recording(torch_forward.DecodingStep(Odd()), memory) is None


@pytest.mark.parametrize(("tokens", "keys"), [(1, 9), (4, 9), (6, 6)])
def test_query_heads_that_share_keys_read_them_as_transformers_does(tokens: int, keys: int) -> None:
    layer = torch.nn.Module()
    layer.num_key_value_groups = 3
    query, key, value = (
        torch.randn(2, heads, length, 8, dtype=torch.float64) for heads, length in ((6, tokens), (2, keys), (2, keys))
    )
    mask = torch.randn(2, 1, tokens, keys, dtype=torch.float64)
    found, _ = grouped_attention(layer, query, key, value, mask, scaling=0.3)
    expected, _ = sdpa_attention_forward(layer, query, key, value, mask, scaling=0.3)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
