import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Qwen2Config, Qwen2ForCausalLM

from rl_agents.data.samples import build_samples
from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.errors import InputError

VOCABULARY = 29


def step(prompt, response, reward=0.0):
    return Step(list(prompt), list(response), [-float(t) for t in response], 0, "stop", "", "", "", reward)


def episode(*steps, **kwargs):
    return Trajectory("task", group_id=4, member=0, seed=0, steps=list(steps), **kwargs)


def test_merged_by_hand():
    (row,) = build_samples(
        [episode(step([1, 2], [3, 4], 0.5), step([1, 2, 3, 4, 5], [6], 1.0), terminated=True)], "merged"
    )
    assert row.input_ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert row.mask.tolist() == [0, 0, 1, 1, 0, 1]
    assert row.logprobs.tolist() == [0, 0, -3, -4, 0, -6]
    assert row.segments.tolist() == [-1, -1, 0, 0, -1, 1]
    assert row.rewards.tolist() == [0, 0, 0, 0.5, 0, 1]
    assert (row.trajectory, row.group_id, row.terminated, row.last, len(row)) == (0, 4, True, True, 6)
    assert [a.dtype for a in (row.input_ids, row.segments, row.mask, row.rewards)] == [np.int32] * 2 + [np.float32] * 2


def test_per_step_by_hand():
    trajectory = episode(step([1, 2], [3, 4], 0.5), step([1, 2, 3, 4, 5], [6], 1.0), terminated=True)
    first, second = build_samples([trajectory], "per_step")
    assert (first.input_ids.tolist(), second.input_ids.tolist()) == ([1, 2, 3, 4], [1, 2, 3, 4, 5, 6])
    assert (first.mask.tolist(), second.mask.tolist()) == ([0, 0, 1, 1], [0, 0, 0, 0, 0, 1])
    assert (first.rewards.tolist(), second.rewards.tolist()) == ([0, 0, 0, 0.5], [0, 0, 0, 0, 0, 1])
    assert (first.segments.tolist(), second.segments.tolist()) == ([-1, -1, 0, 0], [-1, -1, -1, -1, -1, 1])
    assert [(r.last, r.terminated) for r in (first, second)] == [(False, False), (True, True)]


def test_a_prompt_that_does_not_extend_begins_a_new_row():
    changed = episode(
        step([1, 2], [3]), step([1, 2, 3, 4], [5]),  # extends
        step([1, 2, 9, 4, 5], [6]),  # a sampled id was changed
        step([1, 2, 9, 4, 5], [7]),  # does not contain the answer 6
        step([1, 2, 9, 4, 5, 7], [8]),  # extends with nothing in between
    )  # fmt: skip
    rows = build_samples([changed, episode(step([1], [2]))], "merged")
    assert [row.input_ids.tolist() for row in rows] == [
        [1, 2, 3, 4, 5], [1, 2, 9, 4, 5, 6], [1, 2, 9, 4, 5, 7, 8], [1, 2],
    ]  # fmt: skip
    assert [row.trajectory for row in rows] == [0, 0, 0, 1]
    assert [row.last for row in rows] == [False, False, True, True]
    assert rows[2].segments.tolist() == [-1, -1, -1, -1, -1, 3, 4]
    assert not any(row.terminated for row in rows)


def test_what_has_no_rows():
    failed = episode(step([1], [2]), failed=True)
    rows = build_samples([episode(), failed, episode(step([1], [2]))], "merged")
    assert [row.trajectory for row in rows] == [2]
    assert build_samples([], "per_step") == []
    with pytest.raises(InputError, match="unknown row layout 'mergd': did you mean 'merged'"):
        build_samples([], "mergd")
    broken = episode(Step([1], [2, 3], [-1.0], 0, "stop", "", "", ""))
    with pytest.raises(ValueError, match="2 sampled ids and 1 log-probabilities"):
        build_samples([broken], "merged")


tokens = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=5)


@st.composite
def episodes(draw):
    """An append-only episode, broken at random by prompts that begin anew."""
    steps, read = [], []
    for _ in range(draw(st.integers(1, 5))):
        read = ([] if draw(st.integers(0, 3)) == 0 else read) + draw(tokens)
        response = draw(tokens)
        steps.append(step(read, response, draw(st.floats(-1, 1, width=32))))
        read = read + response
    return episode(*steps, terminated=draw(st.booleans()))


@settings(deadline=None)
@given(st.lists(episodes(), max_size=4))
def test_both_layouts_say_the_same_of_every_sampled_token(trajectories):
    def sampled(mode):
        return sorted(
            (row.trajectory, int(row.segments[j]), tuple(row.input_ids[: j + 1]), row.logprobs[j], row.rewards[j])
            for row in build_samples(trajectories, mode) for j in np.flatnonzero(row.mask)
        )  # fmt: skip

    assert sampled("merged") == sampled("per_step")
    merged = build_samples(trajectories, "merged")
    assert sum(row.mask.sum() for row in merged) == sum(t.response_tokens for t in trajectories)
    assert sum(map(len, merged)) <= sum(map(len, build_samples(trajectories, "per_step")))
    for row in merged:
        assert not row.rewards[row.mask == 0].any() and ((row.segments >= 0) == (row.mask == 1)).all()
    for index in range(len(trajectories)):
        assert [row.last for row in merged if row.trajectory == index].count(True) == 1


def token_gradients(model, trajectories, mode):
    """Gradients of the summed token losses, each token weighted by something that only it knows."""
    model.zero_grad()
    for row in build_samples(trajectories, mode):
        ids = torch.tensor(row.input_ids.astype(np.int64))
        logprobs = model(ids[None]).logits[0, :-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0]
        weights = torch.tensor(row.mask[1:] * (1.5 + np.sin(row.logprobs[1:] + row.segments[1:])))
        (-(weights * logprobs).sum()).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


@settings(max_examples=8, deadline=None)
@given(st.lists(episodes(), min_size=1, max_size=3))
def test_both_layouts_give_the_same_gradients(trajectories):
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, tie_word_embeddings=True, initializer_range=0.1,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config).eval()
    per_step = token_gradients(model, trajectories, "per_step")
    merged = token_gradients(model, trajectories, "merged")
    assert per_step.norm() > 0
    assert (merged - per_step).norm() / per_step.norm() < 1e-5
