"""The arithmetic of docs/how-to/scale.md: keys that a run takes, and sums worked by hand."""

import pytest

from benchmarks.gpu_memory import (
    SCORED,
    contexts,
    fewest_learners,
    learner_memory,
    plan,
    plans,
    settings_of,
    with_parts,
)
from rl_agents.algorithms import Settings
from rl_agents.trainer.preflight import KNOWN, check_settings


def test_what_fits_passes_the_doctor() -> None:
    found = [each for each in plans() if each.learners]
    assert len(found) == 6
    for each in found:
        findings = check_settings(settings_of(each.model, **each.keys()))
        assert not [line for line in findings if line.status == "fails"], each
        assert each.learners + each.engines * each.parts <= each.gpus


def test_seventy_billion_by_hand() -> None:
    """Llama 3.3: 80 layers of 0.856e9, and embedding and head of 1.051e9 each."""
    full = plan("70B", 64, 0)
    assert (full.learners, full.parts, full.engines) == (32, 4, 8) and plan("70B", 8, 0).learners is None
    memory = learner_memory(settings_of("70B", num_learners=32), full.shape, 32, SCORED)
    layer, table, tokens = 2 * 8192 * (8192 + 1024) + 3 * 8192 * 28_672, 128_256 * 8192, 8192
    parameters = 80 * layer + 2 * table
    assert memory.state == pytest.approx(16 * parameters / 32 / 1e9)
    gathered = 2 * (2 * layer + 2 * table)
    activations = 2 * tokens * 8192 * 80 + 2 * tokens * (8 * 8192 + 3 * 28_672)
    assert memory.passing == pytest.approx((gathered + activations + (2 << 30) + 6 * layer) / 1e9)
    assert memory.sending == pytest.approx(2 * table / 1e9) and memory.total == memory.state + memory.passing
    room = (0.85 * 80 - 2 * parameters / 4 / 1e9) / (8192 * 2 * 80 * 8 * 128 * 2 / 4 / 1e9)
    assert contexts(with_parts("70B", 4), full.shape) == int(room)


def test_adapters_by_hand() -> None:
    """Rank 32 on the seven matrices of a layer: (in + out) numbers for each rank."""
    memory = learner_memory(settings_of("70B", lora_rank=32), plan("70B", 8, 32).shape, 4, SCORED)
    sides = [8192 + 8192, 8192 + 1024, 8192 + 1024, 8192 + 8192, *[8192 + 28_672] * 3]
    base = 80 * (2 * 8192 * (8192 + 1024) + 3 * 8192 * 28_672) + 2 * 128_256 * 8192
    assert memory.state == pytest.approx((2 * base + 16 * 32 * 80 * sum(sides)) / 4 / 1e9)


def test_memory_is_that_of_the_documentation() -> None:
    """docs/how-to/scale.md: the table of three sizes, within its rounding."""
    settings = Settings.from_dict({"algo": "grpo", "dtype": "bfloat16", "kl_coef": 0.001, "max_model_len": 8192})
    settings.update({"tokens_per_microbatch": 8192, "activation_checkpointing": "full"})
    for name, states in (("Qwen2.5-1.5B-Instruct", (28, 14, 7)), ("Qwen2.5-7B-Instruct", (137, 69, 34))):
        for learners, wanted in zip((1, 2, 4), states, strict=True):
            assert learner_memory(settings, KNOWN[name], learners, 1024).state == pytest.approx(
                wanted, rel=0.03, abs=0.6
            )
    alone = Settings.from_dict({**settings.to_dict(), "kl_coef": 0.0})
    totals = [round(learner_memory(alone, KNOWN["Qwen2.5-7B-Instruct"], n, 1024).total) for n in (1, 2, 4, 8)]
    assert totals == [127, 71, 40, 25]
    adapters = learner_memory(
        Settings.from_dict({**alone.to_dict(), "lora_rank": 32}), KNOWN["Qwen2.5-7B-Instruct"], 1, 1024
    )
    assert (round(adapters.state, 1), round(adapters.passing, 1)) == (16.5, 5.2)
    passing = learner_memory(settings, KNOWN["Qwen2.5-7B-Instruct"], 1, 1024).passing
    assert passing == pytest.approx(5.2, rel=0.05)
    settings.update({"activation_checkpointing": "selective"})
    kept = learner_memory(settings, KNOWN["Qwen2.5-7B-Instruct"], 1, 1024).passing - passing
    assert kept == pytest.approx(2 * 8192 * 28 * (3584 + 2 * 3584 + 2 * 18_944) / 1e9, rel=1e-3)
    settings.update({"activation_checkpointing": "full"})
    assert KNOWN["Qwen2.5-7B-Instruct"].kv_bytes("bfloat16") == 56 * 1024
    assert KNOWN["Qwen2.5-32B"].kv_bytes("bfloat16") == 256 * 1024
    assert fewest_learners(settings, KNOWN["Qwen2.5-7B-Instruct"], 1024, 80.0) == 4
    assert fewest_learners(settings, KNOWN["Qwen2.5-7B-Instruct"], 1024, 1.0) is None
