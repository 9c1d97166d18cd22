"""``context=summary(n)``: the policy's own summary replaces a dialogue that has become too long."""

import asyncio
import dataclasses
import json
from itertools import pairwise

import numpy as np
import pytest
from chat_tokenizers import llama, qwen
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout.scripted import Countdown, ScriptedEngine

from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.algorithms.chain_gae import state_names
from rl_agents.chat.template import SUMMARY_REQUEST, Dialogue, chat_text, further_text, make_context
from rl_agents.data.samples import build_samples
from rl_agents.data.step_table import StepTable
from rl_agents.data.tasks import step_seed
from rl_agents.data.trajectory import SUMMARY_ANCHOR, EpisodeSpec, Trajectory
from rl_agents.errors import InputError
from rl_agents.inference.base import EngineError
from rl_agents.orchestrator.rollout_batch import rollout_metrics
from rl_agents.rewards.reading import read_episode
from rl_agents.rollout.agent_loop import Episode, Limits
from rl_agents.rollout.demonstrations import encode_dialogue
from rl_agents.rollout.truncation import Truncation
from rl_agents.store.records import outcome_record, session_records
from rl_agents.trainer.measure import ready
from rl_agents.viewer.episodes import _step as shown

LIMITS = Limits(max_turns=10, max_response_tokens=20, max_model_len=2000, env_timeout_s=0, max_summary_tokens=60)
ASKED = SUMMARY_REQUEST[:20]


def says(text, summary="I went <think>no</think> twice"):
    """Act, or write the summary when asked for it last."""
    return summary if ASKED in text.rsplit("user", 1)[-1] else "go"


def play(beyond, length=5, limits=LIMITS, by=None, make_env=Countdown, tokenizer=None, **failing):
    tokenizer = tokenizer or qwen()
    env = make_env()
    env.length = length
    by = by or ScriptedEngine(tokenizer, says, **failing)
    spec = EpisodeSpec("task-2", group_id=2, member=0, seed=100)
    episode = Episode(spec, env, by, make_context(f"summary({beyond})", tokenizer), limits)
    return asyncio.run(episode.play()), by


@pytest.fixture(scope="module")
def played() -> Trajectory:
    return play(80)[0]


@pytest.mark.parametrize("tokenizer", [qwen, llama])
def test_ids_are_exact_before_and_after(tokenizer):
    context = make_context("summary(80)", tokenizer())
    trajectory, by = play(80, tokenizer=tokenizer())
    steps, template = trajectory.steps, context.template
    assert [step.prompt_ids for step in steps] == [prompt for prompt, _ in by.requests]
    assert [sampling.seed for _, sampling in by.requests] == [step_seed(100, t) for t in range(len(steps))]
    summaries = [t for t, step in enumerate(steps) if step.is_summary]
    assert len(summaries) >= 2 and 0 not in summaries
    for t, (before, step) in enumerate(pairwise(steps), start=1):
        said = [*before.prompt_ids, *before.response_ids]
        if before.is_summary:
            assert step.prompt_ids == list(
                template.opening(
                    f"task 2 begins\n\n[Summary of the dialogue so far] twice\n\n"
                    f"[Current observation] {step.observation}"
                )
            )
        else:
            read = SUMMARY_REQUEST if step.is_summary else step.observation
            assert step.prompt_ids == [*said, *template.between(read)]
        assert (by.requests[t][1].max_tokens == 60) == step.is_summary


def test_a_summary_is_a_step_but_no_turn(played):
    append, _ = play(10**6)
    assert not any(step.is_summary for step in append.steps)
    turns = [step for step in played.steps if not step.is_summary]
    assert [(s.observation, s.anchor, s.action, s.reward) for s in turns] == [
        (s.observation, s.anchor, s.action, s.reward) for s in append.steps
    ]
    assert played.turns == 5 and played.success and played.end_cause == "terminated"
    summaries = [step for step in played.steps if step.is_summary]
    assert all(
        (s.reward, s.valid, s.observation, s.policy_version) == (0.0, True, SUMMARY_REQUEST, 3) for s in summaries
    )
    assert len({s.anchor for s in summaries}) == len(summaries)
    metrics = rollout_metrics([played])
    assert (metrics["rollout/turns"], metrics["rollout/turns_mean"]) == (5, 5)
    assert metrics["summary/per_episode"] == len(summaries) and metrics["summary/empty_share"] == 0
    assert "summary/per_episode" not in rollout_metrics([append])
    cut, _ = play(80, limits=dataclasses.replace(LIMITS, max_turns=4))
    assert (cut.end_cause, cut.turns) == ("max_turns", 4)
    assert Trajectory.from_json(json.loads(json.dumps(played.to_json()))) == played


class AtTurn:
    reason = ""

    def fires(self, turn):
        return turn.number == 3


def test_truncation_counts_turns_without_summaries():
    rule = Truncation("t3", "keep_prefix", lambda seed: AtTurn())
    limits = dataclasses.replace(LIMITS, truncation=rule)
    assert [play(n, limits=limits)[0].facts["truncation"]["turn"] for n in (1, 10**6)] == [3, 3]


class Wordy(Countdown):
    sizes = [0] * 5

    def step(self, action):
        observation, *rest = super().step(action)
        return f"{observation} {'x ' * self.sizes[self.turn - 1]}", *rest


@settings(max_examples=25, deadline=None)
@given(beyond=st.integers(0, 400), sizes=st.lists(st.integers(0, 120), min_size=5, max_size=5))
def test_prompts_stay_below_n_and_what_follows(beyond, sizes):
    env = type("Now", (Wordy,), {"sizes": sizes})
    trajectory, _ = play(beyond, make_env=env)
    template = make_context("append", qwen()).template
    request = len(template.between(SUMMARY_REQUEST))
    first = len(trajectory.steps[0].prompt_ids)
    for before, step in zip([None, *trajectory.steps], trajectory.steps, strict=False):
        if step.is_summary:  # of a prompt of at most n tokens, or directly after another summary's
            assert len(step.prompt_ids) <= max(beyond, len(before.prompt_ids)) + len(before.response_ids) + request
        elif before is not None and before.is_summary:
            observed = len(template.between(step.observation))
            assert len(step.prompt_ids) <= first + observed + len(before.response_ids) + 80
        elif before is not None:
            assert len(step.prompt_ids) <= beyond


def test_both_layouts_train_on_summaries_and_give_every_token_once(played):
    merged, apart = (build_samples([played], layout) for layout in ("merged", "per_step"))
    summaries = sum(step.is_summary for step in played.steps)
    assert len(apart) == len(played.steps) and len(merged) == summaries + 1
    for rows in (merged, apart):
        sampled = [int(i) for row in rows for i in row.input_ids[row.mask > 0]]
        assert sampled == [i for step in played.steps for i in step.response_ids]
        assert [row.last for row in rows] == [False] * (len(rows) - 1) + [True]
        assert sum(float(row.rewards.sum()) for row in rows) == 1.0


def test_step_level_credit_compares_a_summary_with_no_other_step():
    episodes = [play(80)[0] for _ in range(2)]
    episodes[1].seed, episodes[1].member = 101, 1
    other, _ = play(80, by=ScriptedEngine(qwen(), says))
    for number, step in enumerate(s for s in other.steps if s.is_summary):
        step.anchor += f" of another seed {number}"
    other.steps[-1].reward = 0.0
    rows = build_samples([episodes[0], other], "per_step")
    keys = Settings.from_dict({"algo": "gigpo"})
    keys.set_defaults(ALGORITHMS["gigpo"].defaults)
    ALGORITHMS["gigpo"].credit(rows, [episodes[0], other], keys)
    whole = [float(row.advantages[row.mask > 0][0]) for row in rows[: len(episodes[0].steps)]]
    alone = [a for a, step in zip(whole, episodes[0].steps, strict=True) if step.is_summary]
    assert alone == [0.5] * len(alone), "the advantage of the episode"
    assert max(whole) > 0.5, "other steps have one of their own"
    table = StepTable.build(rows, [episodes[0], other])
    chain = Settings.from_dict({"algo": "chain-gae", "state_key": "observation"})
    names = state_names(table, [episodes[0], other], chain)
    asked = [name for name, anchor in zip(names, table.anchors, strict=True) if "summary" in anchor]
    assert len(set(asked)) == len(asked) > 1


@pytest.mark.parametrize("algo", ["grpo", "gigpo", "hgpo", "chain-gae", "reinforce++"])
def test_credit_is_the_same_in_both_layouts(algo):
    episodes = [play(80)[0], play(80, limits=dataclasses.replace(LIMITS, max_turns=4))[0]]
    found = []
    for layout in ("merged", "per_step"):
        keys = Settings.from_dict({"algo": algo})
        keys.set_defaults(ALGORITHMS[algo].defaults)
        rows = build_samples(episodes, layout)
        ALGORITHMS[algo].credit(rows, episodes, keys)
        found.append(np.concatenate([row.advantages[row.mask > 0] for row in rows]))
    np.testing.assert_allclose(*found, atol=1e-6)


def test_a_summary_is_text_and_never_a_control_token():
    context = make_context("summary(0)", qwen())
    start = Dialogue.start("task").after([1], [2], "go", "seen")
    spelled, special = "<|im_end|><|im_start|>", set(qwen().all_special_ids)
    prompts = [context.prompt(start.summarized(text)) for text in ("plain", spelled)]
    assert len({sum(token in special for token in prompt) for prompt in prompts}) == 1
    assert f"so far] {spelled}" in qwen().decode(prompts[1])


def test_chats_keep_their_messages_and_results_of_tools_follow_as_text():
    context = make_context("summary(10)", qwen())
    messages = [{"role": "system", "content": "Use tools."}, {"role": "user", "content": "the task"}]
    told = further_text([{"role": "tool", "content": "result 42", "tool_call_id": "1"}], [])
    first = Dialogue.start("the task", chat_text(messages))
    start = context.prompt(first)
    going = first.after(start, qwen().encode("go<|im_end|>"), "go", "result 42", told)
    asked = context.summary_prompt(going, context.prompt(going))
    assert asked == [*going.read_ids, *context.template.between(SUMMARY_REQUEST)]
    text = qwen().decode(context.prompt(going.summarized("nothing yet")))
    assert text.startswith("<|im_start|>system\nUse tools.<|im_end|>\n<|im_start|>user\nthe task\n")
    assert text.endswith(
        "[Summary of the dialogue so far] nothing yet\n\n[Current observation] result 42<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_without_room_for_a_summary_the_dialogue_goes_on_to_its_end():
    request = len(make_context("append", qwen()).template.between(SUMMARY_REQUEST))
    short = dataclasses.replace(LIMITS, max_model_len=140 + request - 30)
    trajectory, _ = play(139, length=40, limits=dataclasses.replace(short, max_turns=40))
    assert (trajectory.end_cause, trajectory.truncated) == ("context_length", True)
    assert not any(step.is_summary for step in trajectory.steps)


@pytest.mark.parametrize(("summary", "limit", "metric"), [("", 60, "empty"), ("x " * 90, 30, "cut")])
def test_empty_and_cut_summaries_are_used_and_counted(summary, limit, metric):
    by = ScriptedEngine(qwen(), lambda text: says(text, summary))
    trajectory, _ = play(80, by=by, limits=dataclasses.replace(LIMITS, max_summary_tokens=limit))
    assert trajectory.success and trajectory.turns == 5
    assert rollout_metrics([trajectory])[f"summary/{metric}_share"] == 1.0
    assert all(len(step.response_ids) <= limit for step in trajectory.steps if step.is_summary)


def test_a_turn_is_repeated_after_the_engine_failed_between_summary_and_action(played):
    broken = iter([True])
    by = ScriptedEngine(qwen(), says, fail=lambda text: "[Summary" in text and next(broken, False))
    env = Countdown()
    env.length = 5
    episode = Episode(EpisodeSpec("task-2", 2, 0, 100), env, by, make_context("summary(80)", qwen()), LIMITS)

    async def stubborn():
        await episode.begin()
        while not episode.trajectory.end_cause:
            try:
                await episode.turn()
            except EngineError:
                failures.append(len(episode.trajectory.steps))
        return episode.trajectory

    failures = []
    assert asyncio.run(stubborn()) == played and len(failures) == 1


def test_stored_summaries_are_shown_as_such(played):
    records = session_records(played, "s")
    outcomes = [record for record in records if hasattr(record, "ordinal")]
    assert outcomes[0] == outcome_record(played.steps[0], "s", 0, outcomes[0].call)
    assert [shown(outcome, 99, True)["summary"] for outcome in outcomes] == [s.is_summary for s in played.steps]


def test_rewards_that_read_episodes_do_not_take_a_summary_for_a_call_or_an_answer(played):
    told = dataclasses.replace(played.steps[1], action="<answer>7</answer>", anchor=f"{SUMMARY_ANCHOR}7")
    readings = [
        read_episode(dataclasses.replace(played, steps=steps), ())
        for steps in ([played.steps[0], told], [played.steps[0], told, played.steps[-1]])
    ]
    assert [(reading.answer, len(reading.calls_parsed)) for reading in readings] == [("", 1), ("", 2)]


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"algo": "3spo", "context": "summary(100)"}, r"^context=summary\(100\) does not work with algo 3spo: "),
        ({"context": "summary(512)"}, r"^context=summary\(512\): no summary would be written within max_model_len=512"),
        ({"max_summary_tokens": 9}, "max_summary_tokens"),
    ],
)
def test_what_cannot_work_is_refused(keys, problem):
    with pytest.raises(InputError, match=problem):
        ready(Settings.from_dict({"engine": "torch", "max_model_len": 512, "max_response_tokens": 9, **keys}))


def test_demonstrated_summaries_are_read_as_the_agent_loop_would():
    turns = [("task 2 begins", "go"), *((f"turn {t}", "go") for t in range(1, 5))]
    context = make_context("summary(80)", qwen())
    shown_to_it = encode_dialogue(turns, context, 2000, summarize=lambda past: f"so far {len(past)}")
    said = iter([step.action for step in shown_to_it.steps])
    played, _ = play(80, by=ScriptedEngine(qwen(), lambda text: next(said)))
    assert any(step.is_summary for step in shown_to_it.steps)
    assert [s.prompt_ids for s in shown_to_it.steps] == [s.prompt_ids for s in played.steps]
    assert [s.response_ids for s in shown_to_it.steps] == [s.response_ids for s in played.steps]
    assert not any(step.is_summary for step in encode_dialogue(turns, context, 2000).steps)
