"""The arithmetic of docs/how-to/scale.md: keys that a run takes, and sums worked by hand."""

import pytest

from benchmarks.gpu_memory import (
    SCORED,
    contexts,
    learner_memory,
    plan,
    plans,
    settings_of,
    with_parts,
)
from rl_agents.trainer.preflight import check_settings


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
