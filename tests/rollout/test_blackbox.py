"""Episodes of agents that nobody rewrote, through a real gateway: what they become, and what goes wrong."""

import asyncio
import json
import shlex
import sys
import textwrap
from dataclasses import replace
from functools import partial

import httpx
import pytest
from episodes import play_episodes
from rollout.black_boxes import CONTEXT, LIMITS, Asker, collect, player, specs, task_file, tiny_model, user
from rollout.scripted import Countdown, ScriptedEngine

from rl_agents.data.tasks import step_seed
from rl_agents.data.trajectory import EpisodeSpec
from rl_agents.data.tree import followers
from rl_agents.envs.base import named_env, task_ids
from rl_agents.envs.blackbox import BlackboxOptions
from rl_agents.envs.blackbox.agents import load_agent
from rl_agents.gateway.process_supervisor import CommandAgent
from rl_agents.inference.base import EngineError, RequestRefused
from rl_agents.inference.torch_engine import TorchEngine
from rl_agents.orchestrator.rollout_batch import rollout_metrics
from rl_agents.rollout.blackbox import BlackBox, collect_blackbox
from rl_agents.rollout.recording import Recorder
from rl_agents.rollout.truncation import ANSWER_INSTRUCTION, StallRule, Truncation
from rl_agents.rollout.turns import Limits
from rl_agents.store.reader import PoolReader
from rl_agents.store.trajectory_store import PoolWriter


@pytest.fixture
def tasks(tmp_path):
    return task_file(tmp_path)


def command(code: str) -> CommandAgent:
    return CommandAgent((sys.executable, "-c", textwrap.dedent(code)), 0.3)


#: A process that asks with the standard library alone; `ask(messages)` returns the text.
ASK = """
import json, os, sys, time, urllib.request
def ask(messages):
    body = json.dumps({"model": "x", "messages": messages}).encode()
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"] or ""
"""


@pytest.mark.parametrize("stream", [False, True])
def test_a_linear_agent_is_the_built_in_loop_token_for_token(tasks, stream):
    engine = TorchEngine(tiny_model(), max_model_len=400)
    built_in = asyncio.run(play_episodes(specs(4), Countdown, engine, CONTEXT, LIMITS)).trajectories
    found = collect(player(Countdown, stream), tasks, 4).trajectories
    for mine, theirs in zip(found, built_in, strict=True):
        assert [s.prompt_ids for s in mine.steps] == [s.prompt_ids for s in theirs.steps]
        assert [s.response_ids for s in mine.steps] == [s.response_ids for s in theirs.steps]
        assert [s.reward for s in mine.steps] == [s.reward for s in theirs.steps]
        assert [s.call for s in mine.steps] == [step_seed(theirs.seed, n) for n in range(3)]
        assert (mine.metrics, mine.success) == (theirs.metrics, theirs.success)
        assert (mine.end_cause, mine.terminated, mine.truncated) == ("terminated", True, False)
        for a, b in zip(mine.steps, theirs.steps, strict=True):
            assert a.logprobs == pytest.approx(b.logprobs, abs=1e-5)
    assert [t.success for t in found] == [True, False, True, False]


def test_turn_and_context_limits_end_agents_as_they_end_dialogues(tasks):
    class Long(Countdown):
        length = 9

    class Wordy(Long):
        def step(self, action):
            return ("word " * 40, *super().step(action)[1:])

    full = replace(LIMITS, max_turns=9)
    for env, limits in ((Long, LIMITS), (Wordy, full), (Countdown, replace(LIMITS, max_model_len=8))):
        engine = TorchEngine(tiny_model(), max_model_len=400)
        found = collect(player(env), tasks, 2, limits)
        if limits.max_model_len == 8:
            assert "no first prompt fits max_model_len=8" in found.input_error
            continue
        built_in = asyncio.run(play_episodes(specs(2), env, engine, CONTEXT, limits)).trajectories
        for mine, theirs in zip(found.trajectories, built_in, strict=True):
            assert [s.response_ids for s in mine.steps] == [s.response_ids for s in theirs.steps]
            assert (mine.end_cause, mine.truncated, mine.failed) == (theirs.end_cause, True, False)


def test_an_agent_whose_time_is_over_is_trained_with_its_cause(tasks):
    async def slow(task, client):
        async with Asker(client) as model:
            await model.say([user("hello")])
            await model.reward(0.25)
            await asyncio.sleep(600)

    (trajectory,) = collect(slow, tasks, agent_timeout_s=5.0).trajectories
    assert (trajectory.end_cause, trajectory.truncated, trajectory.failed) == ("agent_timeout", True, False)
    assert [step.reward for step in trajectory.steps] == [0.25] and trajectory.success

    async def idle(task, client):
        await asyncio.sleep(600)

    (trajectory,) = collect(idle, tasks, agent_timeout_s=0.2).trajectories
    assert trajectory.failed and trajectory.end_cause == "agent_timeout: it made no request"


def test_agents_that_fail_say_how(tasks):
    crash = command(
        ASK + "ask([{'role': 'user', 'content': 'a'}]); print('door is shut', file=sys.stderr); sys.exit(3)"
    )
    (trajectory,) = collect(crash, tasks).trajectories
    assert trajectory.failed and trajectory.end_cause == "agent_error: exit code 3: door is shut"
    assert len(trajectory.steps) == 1 and not trajectory.success
    (trajectory,) = collect(command("print('{\"reward\": 1}')"), tasks).trajectories
    assert trajectory.failed and trajectory.end_cause == "agent_error: it asked the model nothing"
    (trajectory,) = collect(command(ASK + "ask([{'role': 'user', 'content': 'a'}])"), tasks).trajectories
    assert trajectory.failed and "no reward: end with a number, or with a line such as" in trajectory.end_cause
    for number, reward in (("0", 0.0), ("-2.5e-1\\n\\n", -0.25)):
        said = ASK + f"ask([{{'role': 'user', 'content': 'a'}}]); print('{number}')"
        (trajectory,) = collect(command(said), tasks).trajectories
        assert (trajectory.end_cause, trajectory.episode_return) == ("terminated", reward)


def test_an_agents_errors_are_excluded_and_counted_or_trained_on_with_a_reward(tasks):
    async def agent(task, client):
        async with Asker(client) as model:
            await model.say([user("a")])
            await model.reward(2.0, step_seed(client.seed, 0))
            if task["id"] != "task-3":
                errors = {"task-0": ValueError("no JSON"), "task-1": asyncio.CancelledError()}
                raise errors.get(task["id"], BaseExceptionGroup("both", [SystemExit(3)]))
        return 1.0

    for reward, failed in ((None, [True, True, True, False]), (-0.5, [False] * 4)):
        rollouts = collect(agent, tasks, 4, error_reward=reward)
        found = rollouts.trajectories
        assert not rollouts.unfinished and [t.failed for t in found] == failed
        assert found[0].end_cause.startswith("agent_error: ValueError: no JSON (test_blackbox.py:")
        assert "CancelledError" in found[1].end_cause and "BaseExceptionGroup" in found[2].end_cause
        assert [t.success for t in found] == [False, False, False, True]
        assert rollout_metrics(found)["rollout/agent_errors"] == 3
        if reward is not None:
            assert [t.episode_return for t in found] == [1.5, 1.5, 1.5, 3.0] and all(t.terminated for t in found)


def test_rewards_of_calls_stay_and_the_result_goes_to_the_last_word(tasks):
    async def agent(task, client):
        async with Asker(client) as model:
            first = await model.say([user("main")])
            helper = await model.say([user("a subagent's own conversation")])
            await model.reward(0.5, step_seed(client.seed, 0))
            await model.say([user("main"), {"role": "assistant", "content": first}, user(f"it says: {helper}")])
        return {"reward": 2.0, "references": ["x"], "evidence": ["y"], "points": ["z"]}

    (trajectory,) = collect(agent, tasks).trajectories
    main = [step for step in trajectory.steps if "subagent" not in step.observation]
    assert [step.reward for step in main] == [0.5, 2.0]
    assert trajectory.episode_return == 2.5 and len(trajectory.steps) == 3
    assert trajectory.facts == {"references": ["x"], "points": ["z"], "evidence": ["y"]}


def test_agents_at_once_are_bounded(tasks):
    running, most = 0, 0

    async def agent(task, client):
        nonlocal running, most
        running += 1
        most = max(most, running)
        async with Asker(client) as model:
            await model.say([user("a")])
        running -= 1
        return 1.0

    rollouts = collect(agent, tasks, 7, agent_concurrency=3)
    assert most == 3 and [t.member for t in rollouts.trajectories] == list(range(7))


class Failing:
    """An engine that fails where it is told to."""

    def __init__(self, fails, error=EngineError):
        self.inner, self.fails, self.calls = TorchEngine(tiny_model(), max_model_len=400), fails, 0
        self.error = error

    async def generate(self, prompt_ids, sampling):
        self.calls += 1
        if self.fails(self.calls, sampling.seed):
            raise self.error("engine 0 died during generate")
        return await self.inner.generate(prompt_ids, sampling)


def test_an_engine_that_fails_leaves_the_episode_to_be_played_again_with_the_same_tokens(tasks):
    spoilt = step_seed(specs(2)[1].seed, 1)
    engine = Failing(lambda calls, seed: seed == spoilt)
    broken = collect(player(Countdown), tasks, 2, engine=engine)
    assert [t.member for t in broken.trajectories] == [0] and broken.unfinished == specs(2)[1:]
    assert broken.engine_errors == ["the model cannot answer: engine 0 died during generate"]
    whole = collect(player(Countdown), tasks, 2).trajectories
    assert whole[0].steps[1].response_ids == broken.trajectories[0].steps[1].response_ids


def test_a_request_that_the_engine_refuses_is_the_agents_error_and_repeats_no_episode(tasks):
    rollouts = collect(player(Countdown), tasks, 2, engine=Failing(lambda calls, seed: True, RequestRefused))
    assert not rollouts.unfinished and not rollouts.engine_errors
    assert [t.member for t in rollouts.trajectories] == [0, 1] and not any(t.steps for t in rollouts.trajectories)


def test_calls_are_in_the_pool_under_the_names_that_steps_have_and_are_served_again(tasks, tmp_path):
    writer = PoolWriter(tmp_path / "pool.sqlite")
    recorder = Recorder(writer)
    recorder.attempt = 1  # the second time that this is asked for
    first = collect(player(Countdown), tasks, 2, recorder=recorder).trajectories
    writer.flush(10)
    with PoolReader(tmp_path / "pool.sqlite") as pool:
        calls = {call.id: call for call in pool.calls()}
    for trajectory in first:
        for number, step in enumerate(trajectory.steps):
            assert step.call == step_seed(step_seed(trajectory.seed, number), 1)
            assert calls[step.call].response_ids == step.response_ids and calls[step.call].prompt_ids == step.prompt_ids
            assert calls[step.call].sampling_seed == step_seed(trajectory.seed, number)
    again = Recorder(writer, {call.sampling_seed: call for call in calls.values()})
    again.attempt = 64
    engine = Failing(lambda calls, seed: True)
    second = collect(player(Countdown), tasks, 2, engine=engine, recorder=again).trajectories
    writer.close()
    assert engine.calls == 0
    assert [[(s.call, s.response_ids) for s in t.steps] for t in second] == [
        [(s.call, s.response_ids) for s in t.steps] for t in first
    ]


def test_an_agent_that_hides_an_engines_failure_is_not_believed(tasks):
    async def hides(task, client):
        async with Asker(client) as model:
            await model.say([user("a")])
            with pytest.raises(httpx.HTTPStatusError):
                await model.say([user("b")])
        return 1.0

    async def retries(task, client):
        async with Asker(client) as model:
            await model.say([user("a")])
            for _ in range(3):
                try:
                    await model.say([user("b")])
                    return 1.0
                except httpx.HTTPStatusError:
                    pass

    once = Failing(lambda calls, seed: calls == 2)
    assert collect(hides, tasks, engine=once).unfinished == specs(1)
    (trajectory,) = collect(retries, tasks, engine=Failing(lambda calls, seed: calls == 2)).trajectories
    assert len(trajectory.steps) == 2 and trajectory.end_cause == "terminated"


def scripted(text: str = "w") -> ScriptedEngine:
    return ScriptedEngine(CONTEXT.template.tokenizer, lambda prompt: text)


class Stalls:
    """Fires at the second turn without progress in a row."""

    def __init__(self, seed):
        self.rule = StallRule(2)
        self.seen = []

    def fires(self, turn):
        self.seen.append((turn.number, turn.progress))
        return self.rule.fires(turn)


def cutting(after: str) -> Limits:
    return replace(LIMITS, max_model_len=4000, max_turns=9, truncation=Truncation("t3", after, Stalls))


async def stalling(task, client):
    """Six turns; from the second on it says that it makes no progress."""
    messages = [user("begin")]
    async with Asker(client) as model:
        for turn in range(6):
            metadata = {"metadata": {"progress": "true" if turn == 1 else "false"}} if turn else {}
            try:
                text = await model.say(messages, **metadata)
            except httpx.HTTPStatusError:
                return {"reward": 0.5, "truncated": True}
            messages += [{"role": "assistant", "content": text}, user("on")]
            if text == "the answer":
                return {"reward": 1.0, "success": True}
    return 1.0


def test_t3_asks_for_the_answer_and_ends_with_nothing_without_one(tasks):
    def script(prompt):
        return "the answer" if ANSWER_INSTRUCTION in prompt else "w"

    engine = ScriptedEngine(CONTEXT.template.tokenizer, script)
    (trajectory,) = collect(stalling, tasks, limits=cutting("force_answer"), engine=engine).trajectories
    fact = {"rule": "t3", "turn": 3, "because": {}, "outcome": "answered"}  # this rule has no `reasons`
    assert trajectory.facts["truncation"] == fact
    assert [step.reward for step in trajectory.steps] == [0, 0, 0, 1] and trajectory.success
    assert trajectory.terminated and not trajectory.truncated
    (trajectory,) = collect(stalling, tasks, limits=cutting("force_answer"), engine=scripted()).trajectories
    assert trajectory.end_cause == "truncated_by_rule: t3 after turn 3, no answer"
    assert len(trajectory.steps) == 4 and trajectory.steps[-1].observation.endswith(ANSWER_INSTRUCTION)
    assert trajectory.terminated and trajectory.episode_return == 0 and not trajectory.success


@pytest.mark.parametrize(("after", "outcome"), [("zero", "return 0"), ("keep_prefix", "prefix kept")])
def test_t3_stops_the_agent(tasks, after, outcome):
    async def rewarded(task, client):
        async with Asker(client) as model:
            await model.reward(0.5)
        return await stalling(task, client)

    (trajectory,) = collect(rewarded, tasks, limits=cutting(after), engine=scripted()).trajectories
    assert trajectory.end_cause == f"truncated_by_rule: t3 after turn 3, {outcome}"
    assert len(trajectory.steps) == 3 and trajectory.episode_return == (0.5 if after == "keep_prefix" else 0)


def test_t3_does_not_count_a_retry_as_a_turn(tasks):
    rules = []

    def start(seed):
        rules.append(Stalls(seed))
        return rules[-1]

    async def agent(task, client):
        async with Asker(client) as model:
            first = await model.say([user("begin")], metadata={"progress": "true"})
            model.http.headers["x-stainless-retry-count"] = "1"
            await model.say([user("begin")], metadata={"progress": "true"})
            del model.http.headers["x-stainless-retry-count"]
            history = [user("begin"), {"role": "assistant", "content": first}, user("on")]
            await model.say(history, metadata={"progress": "false"})
        return 1.0

    limits = replace(cutting("zero"), truncation=Truncation("t3", "zero", start))
    (trajectory,) = collect(agent, tasks, limits=limits, engine=scripted()).trajectories
    assert rules[0].seen == [(1, False)] and len(trajectory.steps) == 2


@pytest.mark.servers
def test_the_example_with_openais_client_plays_like_the_built_in_loop():
    pytest.importorskip("openai")
    limits = Limits(max_turns=3, max_response_tokens=6, max_model_len=400)
    asked = [EpisodeSpec(task, 0, n, 70 + n) for n, task in enumerate(task_ids("guess_numbers", "train", {})[:2])]
    engine = TorchEngine(tiny_model(), max_model_len=400)
    make = partial(named_env, "guess_numbers", 3, prompt="compact")
    built_in = asyncio.run(play_episodes(asked, make, engine, CONTEXT, limits)).trajectories
    line = f"{shlex.quote(sys.executable)} docs/examples/agents/openai_chat.py"
    options = BlackboxOptions(agent_command=line, tasks="guess_numbers", task_options={"prompt": "compact"})
    box = BlackBox(CommandAgent.read(line), options, 3)
    found = asyncio.run(collect_blackbox(asked, box, engine, CONTEXT.template, limits)).trajectories
    for mine, theirs in zip(found, built_in, strict=True):
        assert [s.response_ids for s in mine.steps] == [s.response_ids for s in theirs.steps]
        assert (mine.end_cause, mine.metrics) == (theirs.end_cause, theirs.metrics)
        assert json.dumps(mine.facts) == "{}"


@pytest.mark.servers
def test_the_example_with_a_subagent_joins_its_answer_to_the_turn_that_quotes_it():
    pytest.importorskip("openai")
    said = iter(["north", "south", "the red door", "east", "west"])
    engine = ScriptedEngine(CONTEXT.template.tokenizer, lambda prompt: next(said))
    keys = {"agent": "docs/examples/agents/subagent.py:agent", "tasks": "guess_numbers"}
    options = BlackboxOptions(**keys, task_options={"prompt": "compact"})
    asked = [EpisodeSpec(task_ids("guess_numbers", "train", {})[0], 0, 0, 70)]
    limits = Limits(max_turns=6, max_response_tokens=30, max_model_len=800)
    rollouts = asyncio.run(
        collect_blackbox(asked, BlackBox(load_agent(options), options, 3), engine, CONTEXT.template, limits)
    )
    (trajectory,) = rollouts.trajectories
    assert trajectory.end_cause == "env_truncated" and not trajectory.success
    calls = {step.action: number for number, step in enumerate(trajectory.steps)}
    following = followers(trajectory)
    order = {said: trajectory.steps[following[n]].action if following[n] >= 0 else "" for said, n in calls.items()}
    assert order == {"north": "east", "south": "the red door", "the red door": "east", "east": "west", "west": ""}
    assert trajectory.steps[calls["north"]].prompt_ids == trajectory.steps[calls["south"]].prompt_ids
    assert "the red door" in CONTEXT.template.tokenizer.decode(trajectory.steps[calls["east"]].prompt_ids)
