"""What an env runner sends to the pool."""

import asyncio
from concurrent.futures import Future
from pathlib import Path

import pytest

from rl_agents.data.trajectory import Step
from rl_agents.inference.base import Completion
from rl_agents.rollout.recording import Recorder
from rl_agents.store.reader import PoolReader
from rl_agents.store.records import Call, Record
from rl_agents.store.trajectory_store import PoolWriter

TURNS = 6


class Spy(PoolWriter):
    """A writer that keeps what it gets."""

    def __init__(self, path: Path) -> None:
        self.sent: list[Record] = []
        super().__init__(path)

    def add(self, *records: Record) -> Future[None]:
        self.sent += records
        return super().add(*records)


async def dialogue(recorder: Recorder) -> list[list[int]]:
    """Record the turns of one dialogue; return their prompts."""
    prompts, prompt, before = [], [1, 2, 3], None
    for turn in range(TURNS):
        said = Completion([10 + turn] * 4, [-0.5] * 4, 0, "stop")
        kept = recorder.record(prompt, said, 100 + turn, before.call if before else 0, before)
        before = Step(prompt, kept.token_ids, kept.logprobs, 0, "stop", "", "", "", call=kept.call)
        prompts.append(prompt)
        prompt = [*prompt, *kept.token_ids, 4, 5]
    recorder.send()
    return prompts


@pytest.mark.parametrize("attempt", [0, 1])
def test_every_id_of_a_dialogue_is_sent_once(tmp_path: Path, attempt: int) -> None:
    pool = Spy(tmp_path / "p")
    with pool:
        prompts = asyncio.run(dialogue(Recorder(pool).at(attempt)))
        assert [len(call.prompt_ids) for call in pool.sent if isinstance(call, Call)] == [3] + [2] * (TURNS - 1)
    with PoolReader(tmp_path / "p") as reader:
        calls = list(reader.calls())
    assert [call.prompt_ids for call in calls] == prompts
    assert [call.sampling_seed for call in calls] == [100 + turn for turn in range(TURNS)]
