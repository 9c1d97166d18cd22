"""Random agents: with any history, prompts are exact, steps are in order, and nothing is lost."""

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gateway.models import ADD, Rig, reply, system, user
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_agents.data.samples import build_samples
from rl_agents.data.trajectory import Trajectory
from rl_agents.gateway.gateway import Gateway
from rl_agents.store.reader import PoolReader
from rl_agents.store.records import session_records
from rl_agents.store.trajectory_store import PoolWriter

KINDS = ("continue", "continue", "again", "edit", "compact", "root", "header")
actions = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=9)


@dataclass
class PendingRequest:
    """A request of the random agent.

    Attributes:
        exact: the request whose answer the prompt has to go on from, exactly; None: none.
    """

    messages: list[dict[str, Any]]
    exact: "PendingRequest | None"
    head: str = "you are one"
    answers: list[Any] = field(default_factory=list)

    def told(self):
        return [*self.messages, reply(self.answers[0])]


async def act(rig, requests, kind, which, number):
    """Make one request that an earlier one leads to."""
    before = requests[which % len(requests)] if requests and kind != "root" else None
    if before is None:
        asked = PendingRequest([user(f"task {number} of {len(requests)}")], None)
    elif kind == "continue":
        asked = PendingRequest([*before.told(), user(f"observation {number}")], before, before.head)
    elif kind == "again":
        asked = PendingRequest(before.messages, before.exact, before.head)
    elif kind == "edit":  # an answer replaced by other words
        words = {"role": "assistant", "content": f"edited {number} {len(requests)}"}
        asked = PendingRequest([*before.messages, words, user("and now")], before.exact, before.head)
    elif kind == "compact":
        words = {"role": "assistant", "content": f"summary {number} {len(requests)}"}
        asked = PendingRequest([before.messages[0], words, user("go on")], None, before.head)
    else:
        asked = PendingRequest(
            [*before.told(), user(f"observation {number}")], None, f"you are {number} {len(requests)}"
        )
    sent = [system(asked.head), *asked.messages]
    asked.answers = await rig.all(*sent, count=1 + number % 2, tools=(ADD,) if number % 3 == 0 else ())
    requests.append(asked)
    return asked


def begins(prompt, call):
    said = call.prompt_ids() + list(call.response)
    return prompt[: len(said)] == said


def check_prompts(rig, requests, tools):
    made = {call.id: call for call in rig.gateway.sessions["s"].tree.calls}
    assert len(made) == sum(len(asked.answers) for asked in requests)
    seen = {seed: prompt for prompt, seed in rig.engine.seen}
    for asked, offered in zip(requests, tools, strict=True):
        for answer in asked.answers:
            call = made[answer.call]
            assert call.prompt_ids() == seen[call.id]
            if asked.exact is not None and offered == tools[requests.index(asked.exact)]:
                first = asked.exact.answers[0]
                # Another answer of the same text, to the same question, is as good.
                equal = [m for m in made.values() if m.answer.content == first.content]
                assert any(begins(call.prompt_ids(), m) for m in equal)


def check_steps(trace, calls):
    assert len({step.call for step in trace.steps}) == len(trace.steps) == calls - trace.abandoned
    for number, step in enumerate(trace.steps):
        assert step.next_step is None or step.next_step == -1 or number + 1 < step.next_step < len(trace.steps)
    assert trace.steps[-1].next_step is None


@settings(deadline=None, max_examples=10)
@given(script=actions)
def test_random_agents(script):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pool.sqlite"

        async def play():
            with PoolWriter(path) as pool:
                rig, requests = Rig(pool=pool, max_model_len=4000), []
                rig.engine.max_model_len = 4000
                for kind, which, number in script:
                    await act(rig, requests, kind, which, number)
                check_prompts(rig, requests, [number % 3 == 0 for _, _, number in script])
                last = requests[-1].answers[-1].call
                with PoolReader(path) as reader:
                    again = Gateway(rig.engine, rig.template, rig.gateway.limits)
                    again.resume(reader)
                    rebuilt = again.sessions["s"].trace()
                    written = {call.id: call for call in reader.calls()}
                return await rig.trace(), rebuilt, written, last

        trace, rebuilt, written, last = asyncio.run(play())
        check_steps(trace, len(written))
        assert trace.steps[-1].call == last and rebuilt == trace
        for step in trace.steps:
            call = written[step.call]
            assert (call.prompt_ids, call.response_ids) == (step.prompt_ids, step.response_ids)


def test_rows_read_back_from_the_pool_have_the_engines_logprobs(tmp_path):
    """Calls with branches, rewrites, tools and a subagent: the learner's forward pass and the engine agree."""

    async def play():
        with PoolWriter(tmp_path / "pool.sqlite") as pool:
            rig, requests = Rig(pool=pool, max_response_tokens=40), []
            script = [("root", 0, 0), ("continue", 0, 1), ("edit", 1, 2), ("compact", 1, 3), ("root", 0, 4),
                      ("continue", 2, 5), ("again", 5, 7)]  # fmt: skip
            for step in script:
                await act(rig, requests, *step)
            trace = await rig.trace()
            pool.add(*session_records(Trajectory("t", 0, 0, 7, trace.steps), "s", kind="gateway")).result()
            return rig.engine.model, trace

    model, trace = asyncio.run(play())
    with PoolReader(tmp_path / "pool.sqlite") as reader:
        (trajectory,) = reader.trajectories()
    assert trajectory.steps == trace.steps and trace.rewrites > 1
    gaps = []
    for row in build_samples([trajectory], "per_step"):
        ids = torch.tensor(row.input_ids.astype(np.int64))
        with torch.no_grad():
            logits = model(ids[None]).logits[0, :-1]
        scored = logits.log_softmax(-1).gather(1, ids[1:, None])[:, 0].numpy()
        chosen = row.mask[1:] == 1
        gaps.append(np.abs(row.logprobs[1:][chosen] - scored[chosen]).max())
    assert len(gaps) >= 7 and max(gaps) <= 1e-5
