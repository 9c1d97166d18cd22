"""For tests with a pretrained model."""

import gc
from collections.abc import Iterator

import pytest

from rl_agents.learner.learner import hand_back_memory


@pytest.fixture
def memory_goes_back() -> Iterator[None]:
    """Each test holds gigabytes, which the tests after it in this process need."""
    yield
    gc.collect()
    hand_back_memory()
