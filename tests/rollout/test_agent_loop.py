import asyncio
import dataclasses
import json
import re
import time

import gymnasium
import pytest
from chat_tokenizers import qwen
from episodes import play_episodes
from rollout.scripted import Broken, Countdown, ScriptedEngine

from rl_agents.chat.template import make_context
from rl_agents.data.tasks import step_seed
from rl_agents.data.trajectory import NEXT_PROMPT, EpisodeSpec, Trajectory
from rl_agents.errors import InputError
from rl_agents.inference.base import Completion
from rl_agents.orchestrator.rollout_batch import rollout_metrics
from rl_agents.rollout.agent_loop import Episode, Limits, collect_episodes
from rl_agents.rollout.env_pool import EnvPool

CONTEXT = make_context("append", qwen())
LIMITS = Limits(max_turns=10, max_response_tokens=20, max_model_len=1000, temperature=0.7, top_p=0.9, env_timeout_s=0.5)


def specs(*numbers):
    return [EpisodeSpec(f"task-{n}", group_id=n, member=i, seed=100 + i) for i, n in enumerate(numbers)]


def engine(script=lambda text: "go", **kwargs):
    return ScriptedEngine(qwen(), script, **kwargs)


def play(numbers, make_env=Countdown, limits=LIMITS, by=None, context=CONTEXT):
    return asyncio.run(play_episodes(specs(*numbers), make_env, by or engine(), context, limits))


def test_a_terminated_episode_is_recorded_step_by_step():
    by = engine(lambda text: "junk" if "turn 1" in text and "turn 2" not in text else "go")
    (trajectory,) = play([2], by=by).trajectories
    assert (trajectory.end_cause, trajectory.terminated, trajectory.truncated) == ("terminated", True, False)
    assert trajectory.success and not trajectory.failed and trajectory.episode_return == 1.0
    assert (trajectory.task_id, trajectory.group_id, trajectory.seed) == ("task-2", 2, 100)
    assert [step.action for step in trajectory.steps] == ["go", "junk", "go"]
    assert [step.valid for step in trajectory.steps] == [True, False, True]
    assert [step.reward for step in trajectory.steps] == [0.0, 0.0, 1.0]
    assert [step.anchor for step in trajectory.steps] == ["start", "turn 1", "turn 2"]
    assert {step.policy_version for step in trajectory.steps} == {3}
    assert trajectory.metrics == {"turns": 3.0}
    assert [step.prompt_ids for step in trajectory.steps] == [prompt for prompt, _ in by.requests]
    assert Trajectory.from_json(json.loads(json.dumps(trajectory.to_json()))) == trajectory


def test_a_cut_episode_records_what_the_policy_would_have_read_next():
    (whole,) = play([3]).trajectories
    asked = dataclasses.replace(LIMITS, max_turns=2, next_prompt=True)
    (cut,) = play([3], limits=asked).trajectories
    assert cut.facts[NEXT_PROMPT] == whole.steps[2].prompt_ids
    length = len(whole.steps[2].prompt_ids) - 1
    (full,) = play([3], limits=dataclasses.replace(LIMITS, max_model_len=length, next_prompt=True)).trajectories
    assert full.end_cause == "context_length" and full.facts[NEXT_PROMPT] == whole.steps[2].prompt_ids[:length]
    for limits in (LIMITS, asked.for_evaluation(1.0), dataclasses.replace(asked, max_turns=10)):
        assert NEXT_PROMPT not in play([3], limits=limits).trajectories[0].facts


def test_prompts_contain_what_was_sampled_and_sampling_follows_limits_and_seed():
    (trajectory,) = play([2]).trajectories
    for step, following in zip(trajectory.steps, trajectory.steps[1:], strict=False):
        said = step.prompt_ids + step.response_ids
        assert following.prompt_ids[: len(said)] == said
    by = engine()
    play([2, 2], by=by)
    sampling = [s for _, s in by.requests]
    assert {(s.max_tokens, s.temperature, s.top_p, s.stop_token_ids) for s in sampling} == {
        (20, 0.7, 0.9, CONTEXT.template.stop_token_ids)
    }
    assert {s.seed for s in sampling} == {step_seed(100 + i, t) for i in range(2) for t in range(3)}
    assert len({step_seed(seed, step) for seed in range(50) for step in range(50)}) == 2500
    assert step_seed(7, 3) == 3411976877185804603  # the same in every release


def test_long_observations_are_cut_once_with_head_and_tail_and_counted():
    class Wordy(Countdown):
        def step(self, action):
            observation, *rest, info = super().step(action)
            told = {"role": "tool", "content": "b" * 100, "tool_call_id": "1"}
            further = {"further_messages": [told]} if self.turn == 1 else {}
            return f"{observation} {'x' * 100} end", *rest, {**info, **further}

    (trajectory,) = play([2], Wordy, limits=dataclasses.replace(LIMITS, max_observation_characters=20)).trajectories
    first, second, third = trajectory.steps
    assert first.observation == "task 2 begins"
    assert second.observation == "turn 1 xxx\n[cut: 91 characters]\nxxxxxx end"
    assert second.anchor == "turn 1", "the state keeps its name"
    assert "b" * 11 not in qwen().decode(second.prompt_ids) and "[cut: 80 ch" in qwen().decode(second.prompt_ids)
    assert third.prompt_ids[: len(second.prompt_ids)] == second.prompt_ids
    assert rollout_metrics([trajectory])["rollout/observation_cut_share"] == 2 / 3
    (whole,) = play([2], Wordy).trajectories
    assert len(whole.steps[1].observation) == 111
    assert "rollout/observation_cut_share" not in rollout_metrics([whole])


def test_episodes_that_failed_cost_turns_and_tokens_too():
    (played,) = play([2]).trajectories
    metrics = rollout_metrics([played, dataclasses.replace(played, failed=True)])
    assert (metrics["rollout/turns"], metrics["rollout/turns_mean"]) == (6, 3)
    assert metrics["rollout/response_tokens"] == 2 * played.response_tokens


def test_turn_limit_and_environment_limit():
    (limited,) = play([2], limits=dataclasses.replace(LIMITS, max_turns=2)).trajectories
    assert (limited.end_cause, limited.truncated, limited.terminated) == ("max_turns", True, False)
    assert len(limited.steps) == 2 and not limited.success

    class TimeLimited(Countdown):
        def step(self, action):
            observation, reward, _, _, info = super().step(action)
            return observation, reward, False, self.turn >= 2, info

    (cut,) = play([2], TimeLimited).trajectories
    assert (cut.end_cause, cut.truncated, len(cut.steps)) == ("env_truncated", True, 2)


def test_the_context_limit_cuts_the_response_and_then_the_episode():
    first = len(CONTEXT.template.opening("task 2 begins"))
    limits = dataclasses.replace(LIMITS, max_model_len=first + 5)
    by = engine(lambda text: "a very long answer")
    (trajectory,) = play([2], by=by, limits=limits).trajectories
    assert (trajectory.end_cause, trajectory.truncated, trajectory.success) == ("context_length", True, False)
    (step,) = trajectory.steps
    assert (step.finish_reason, len(step.response_ids)) == ("length", 5)
    assert by.requests[0][1].max_tokens == 5
    (whole,) = play([2]).trajectories
    second = len(whole.steps[1].prompt_ids)
    for room, steps in ((1, 1), (4, 1), (5, 2)):
        (trajectory,) = play([2], limits=dataclasses.replace(LIMITS, max_model_len=second + room)).trajectories
        assert len(trajectory.steps) == steps
        assert steps == 2 or (trajectory.end_cause, trajectory.truncated) == ("context_length", True)


def test_first_prompts_that_do_not_fit():
    first = len(CONTEXT.template.opening("task 2 begins"))
    with pytest.raises(InputError, match=rf"of {first} tokens does not fit max_model_len={first} \(task task-2\)"):
        play([2, 3], limits=dataclasses.replace(LIMITS, max_model_len=first))

    class Wordy(Countdown):
        def reset(self, *, seed=None, options=None):
            observation, info = super().reset(seed=seed, options=options)
            return observation * (100 if self.number == 3 else 1), info

    fits, too_long = play([2, 3], Wordy).trajectories
    assert fits.end_cause == "terminated"
    assert (too_long.end_cause, too_long.steps) == ("context_length", []) and too_long.truncated and not too_long.failed
    rollouts = asyncio.run(
        collect_episodes(specs(2), Countdown, engine(), CONTEXT, dataclasses.replace(LIMITS, max_model_len=5))
    )
    assert "does not fit max_model_len=5" in rollouts.input_error and len(rollouts.trajectories) == 1
    assert asyncio.run(play_episodes([], Countdown, engine(), CONTEXT, LIMITS)).trajectories == []


@pytest.mark.parametrize(
    ("number", "cause", "steps"),
    [(10, "env_error: KeyError: 'no such game'", 0), (11, "env_garbage: reset returned str, not a tuple of 2", 0),
     (12, "env_garbage: reward is str 'one', not a finite number", 2),
     (13, "env_garbage: reward is float nan, not a finite number", 2),
     (17, r"env_garbage: observation is not valid Unicode: str '\ud800'", 2),
     (20, "env_timeout: step: no answer within 0.5 s", 2), (22, "env_error: SystemExit: 3", 2),
     (23, "env_garbage: reward is int 1000", 2)],
)  # fmt: skip
def test_a_failing_environment_ends_its_own_episode_only(number, cause, steps):
    Broken.closed, started = 0, time.monotonic()
    pool = EnvPool(Broken)
    rollouts = play([2, number, 3], pool)
    assert time.monotonic() - started < 60, "nobody waits for what hangs"
    good, failed, lost = rollouts.trajectories
    assert failed.end_cause.startswith(cause)
    assert failed.failed and not failed.success and not failed.terminated and len(failed.steps) == steps
    assert good.end_cause == lost.end_cause == "terminated" and good.success and not lost.success
    assert not rollouts.unfinished and Broken.closed == 1
    play([2, 2], pool)
    assert pool.created == 3  # two were kept, the broken one was not


def test_an_environment_that_cannot_be_created():
    def broken():
        raise OSError("no display")

    (trajectory,) = play([2], broken).trajectories
    assert trajectory.failed
    # The line that raised is named.
    assert re.fullmatch(r"env_error: OSError: no display \(test_agent_loop.py:\d+\)", trajectory.end_cause)

    def unconfigured():
        raise InputError("data folder is missing")

    with pytest.raises(InputError, match="data folder is missing"):
        play([2], unconfigured)


def test_engine_failures_are_not_the_episodes_fault_and_our_own_bugs_are_not_hidden():
    by = engine(fail=lambda text: "task 3" in text and "turn 1" in text)
    rollouts = play([2, 3, 4], by=by)
    assert [t.task_id for t in rollouts.trajectories] == ["task-2", "task-4"]
    assert rollouts.unfinished == [specs(2, 3, 4)[1]]
    assert rollouts.engine_errors == ["engine 0 died during generate"]
    again = asyncio.run(play_episodes(rollouts.unfinished, Countdown, engine(), CONTEXT, LIMITS)).trajectories
    assert again == [play([2, 3, 4]).trajectories[1]]

    def script(text):
        raise AttributeError("a bug")

    with pytest.raises(AttributeError, match="a bug"):
        play([2, 3], by=engine(script))


@pytest.mark.parametrize(
    ("ids", "logprobs"), [([], []), ([5], []), ([5], [float("nan")]), ([5], [0.5]), ([5] * 21, [-1.0] * 21)]
)
def test_malformed_completions_are_engine_errors(ids, logprobs):
    class Malformed:
        async def generate(self, prompt_ids, sampling):
            return Completion(ids, logprobs, 0, "stop")

    rollouts = play([2], by=Malformed())
    assert not rollouts.trajectories and rollouts.engine_errors[0].startswith("engine returned")


def test_environments_that_say_little():
    class Terse(gymnasium.Env):
        def reset(self, *, seed=None, options=None):
            return "begin", {}

        def step(self, action):
            return "end", 1, True, False, {}

    (trajectory,) = play([2], Terse).trajectories
    assert trajectory.success and trajectory.steps[0].anchor == "begin" and trajectory.steps[0].valid
    assert asyncio.run(Episode(specs(2)[0], Terse(), engine(), CONTEXT, LIMITS).play()) == trajectory


def test_windows_use_the_environments_own_format():
    class Formatting(Countdown):
        def render_window(self, task, history, observation):
            return f"{len(history)} before {observation}" if self.number != 19 else 19

    window = make_context("window(1)", qwen())
    good, failed = play([2, 19], Formatting, context=window).trajectories
    for step, shown in zip(good.steps, ("0 before task 2 begins", "1 before turn 1", "1 before turn 2"), strict=True):
        assert shown in qwen().decode(step.prompt_ids)
    assert failed.end_cause == "env_garbage: render_window returned int, not a str"
