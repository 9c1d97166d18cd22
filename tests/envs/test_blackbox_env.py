"""Blackbox as an environment: its keys and tasks, and agents seen from inside out."""

import asyncio
import itertools
import json
import sys
import threading
import time
from dataclasses import replace

import httpx
import psutil
import pytest
from chat_models import save_chat_model
from episodes import play_episodes
from rollout.black_boxes import CONTEXT, LIMITS, Asker, player, specs, task_file, tiny_model, user
from rollout.scripted import Countdown, ScriptedEngine

from rl_agents.algorithms import Settings
from rl_agents.chat.messages import read_message
from rl_agents.chat.template import ChatTemplate, ContextPolicy
from rl_agents.envs import base
from rl_agents.envs.blackbox import BlackboxOptions
from rl_agents.envs.blackbox.agents import load_agent
from rl_agents.envs.blackbox.env import BlackboxEnv
from rl_agents.envs.blackbox.histories import History
from rl_agents.envs.blackbox.tasks import base_environment, task_ids, task_payload
from rl_agents.envs.pivot.demonstrations import build_tokenizer
from rl_agents.errors import AgentFailed, InputError
from rl_agents.gateway.agent_interpreter import close_hosts
from rl_agents.gateway.calls import ModelCall
from rl_agents.gateway.process_supervisor import FunctionAgent
from rl_agents.inference.torch_engine import TorchEngine
from rl_agents.rollout.blackbox import BlackBox, collect_blackbox
from rl_agents.rollout.branching_check import check_branching
from rl_agents.rollout.env_pool import EnvPool
from rl_agents.rollout.turns import Player
from rl_agents.traces import desk
from rl_agents.trainer.measure import ready


def options(**keys) -> BlackboxOptions:
    return BlackboxOptions(**{"agent_command": sys.executable, **keys})


def test_bad_input_is_named_in_one_line(tmp_path):
    for keys, problem in (
        ({"agent_command": ""}, "environment blackbox needs an agent: env.agent_command="),
        ({"agent": "a:b"}, "set env.agent_command or env.agent, not both"),
        ({}, "environment blackbox needs env.tasks: a JSONL file, or an environment such as guess_numbers"),
        ({"tasks": "guess_number"}, "env.tasks=guess_number: no such file, and as an environment: did you mean"),
    ):
        with pytest.raises(InputError, match=problem) as error:
            task_ids("train", options(**keys))
        assert "\n" not in str(error.value)
    for text, problem in (
        ('{"id": "a"}\n{"id"', "tasks.jsonl, line 2: not JSON"),
        ('{"id": "a"}\n{"id": "a"}', "tasks.jsonl, line 2: the task id 'a' occurs twice"),
        ('{"id": "a", "split": "tset"}', "tasks.jsonl, line 1: split is 'tset': did you mean 'test'"),
        ("\n", "tasks.jsonl: no tasks in it"),
    ):
        (tmp_path / "tasks.jsonl").write_text(text)
        with pytest.raises(InputError, match=problem):
            task_ids("train", options(tasks=str(tmp_path / "tasks.jsonl")))


def test_tasks_of_another_environment_are_taken_with_its_model_and_limits():
    keys = {"agent_command": sys.executable, "tasks": "guess_numbers", "task_options": {"progress": "shrunk"}}
    assert base.task_ids("blackbox", "test", keys) == base.task_ids("guess_numbers", "test", keys["task_options"])
    assert base_environment(keys) == "guess_numbers" == base.base_environment("blackbox", keys)
    assert base.base_environment("mcp", {}) == "mcp"
    defaults = base.starter_defaults("blackbox", keys)
    assert defaults["env.task_options"] == {"prompt": "compact"} and "env.prompt" not in defaults
    payload = task_payload("3-4-0-3/123/231", BlackboxOptions(**keys), 7)
    env = base.make_env(payload["env"], payload["options"], payload["max_turns"])
    assert env.reset(options={"task_id": payload["id"]})[0]


def test_a_file_of_tasks_is_split_by_its_records_or_by_hash(tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"id": "a", "split": "test", "x": 1}\n\n{"id": 7}\n{"x": "ü"}\n')
    chosen = options(tasks=str(path))
    assert task_ids("test", chosen) == ["a"] and task_ids("train", chosen) == ["7", "line-4"]
    assert task_payload("line-4", chosen, 5) == {"x": "ü", "id": "line-4"}
    path.write_text("".join(f'{{"id": "t{n}"}}\n' for n in range(50)))
    train, test = task_ids("train", chosen), task_ids("test", chosen)
    assert len(train) == 45 and len(test) == 5 and not set(train) & set(test)
    with pytest.raises(InputError, match=r"unknown blackbox task 't99'"):
        task_payload("t99", chosen, 5)


def test_agents_that_are_coroutines_are_found_in_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "own_agent_a.py").write_text(
        "async def play(task, client): return 1.0\ndef plain(task, client): pass\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert isinstance(load_agent(BlackboxOptions(agent="own_agent_a:play")), FunctionAgent)
    for name, problem in (
        ("own_agent_a:paly", "did you mean 'play'"),
        ("own_agent_a:plain", "is not a coroutine function; write async def plain"),
        ("own_agent_a", "write module:function"),
        ("own_agent_b:play", "env.agent=own_agent_b:play: there is no module own_agent_b"),
    ):
        with pytest.raises(InputError, match=problem):
            load_agent(BlackboxOptions(agent=name))


def call(*messages, **fields) -> ModelCall:
    return ModelCall("chat_completions", "x", tuple(read_message(m) for m in messages), **fields)


SYSTEM = {"role": "system", "content": "Be short."}


def said(answer, **changes):
    return {"role": "assistant", "content": answer.content, **changes}


@pytest.mark.parametrize(
    "rewritten",
    [
        lambda answer: ({**SYSTEM, "content": "Be long."}, user("begin"), said(answer), user("next")),
        lambda answer: (SYSTEM, user("begin"), said(answer, content="something else"), user("next")),
        lambda answer: (SYSTEM, user("begin anew"), said(answer), user("next")),
        lambda answer: (SYSTEM, user("summary of what was said")),
        lambda answer: (SYSTEM, user("begin")),
    ],
)
def test_a_rewritten_history_begins_a_dialogue_with_all_of_it(rewritten):
    history = History()
    history.turn(call(SYSTEM, user("begin")))
    messages = rewritten(history.answer(call(SYSTEM, user("begin")), "fine"))
    info = history.turn(call(*messages)).info()
    assert info["new_dialogue"] and info["messages"] == [read_message(m) for m in messages]


def test_what_is_new_alone_goes_on_and_equal_histories_have_equal_anchors():
    history = History()
    history.turn(call(user("begin")))
    answer = history.answer(call(user("begin")), "fine")
    turn = history.turn(call(user("next"), previous=answer.id))
    whole = History()
    whole.turn(call(user("begin")))
    whole.answer(call(user("begin")), "fine")
    assert turn == whole.turn(call(user("begin"), said(answer), user("next")))

    def anchors(*actions):
        history, messages, found = History(), [user("begin")], []
        for action in actions:
            found.append(history.turn(call(*messages)).anchor)
            messages += [said(history.answer(call(*messages), action)), user("next")]
        return found

    assert anchors("<think>a</think>x", "y", "z") == anchors("<think>b</think>x", "y", "q")
    assert anchors("x", "y")[1] != anchors("w", "y")[1]


@pytest.fixture
def tasks(tmp_path):
    return task_file(tmp_path)


def inside_out(agent, tasks, max_turns=5, **keys) -> BlackboxEnv:
    keys = {"agent_timeout_s": 60.0, **keys}
    env = BlackboxEnv(BlackboxOptions(agent_command=sys.executable, tasks=tasks, **keys), max_turns)
    env.agent = FunctionAgent(agent) if callable(agent) else agent
    return env


def test_the_built_in_loop_plays_an_agent_as_it_plays_the_agents_own_environment(tasks):
    engine = TorchEngine(tiny_model(), max_model_len=400)
    mine = asyncio.run(
        play_episodes(specs(3), lambda: inside_out(player(Countdown), tasks), engine, CONTEXT, LIMITS)
    ).trajectories
    theirs = asyncio.run(play_episodes(specs(3), Countdown, engine, CONTEXT, LIMITS)).trajectories
    for a, b in zip(mine, theirs, strict=True):
        assert [s.prompt_ids for s in a.steps] == [s.prompt_ids for s in b.steps]
        assert [(s.response_ids, s.reward) for s in a.steps] == [(s.response_ids, s.reward) for s in b.steps]
        assert (a.end_cause, a.success, a.metrics) == (b.end_cause, b.success, b.metrics)


def test_calls_beyond_the_turn_limit_are_refused_and_time_that_is_over_truncates(tasks):
    async def chatty(task, client):
        async with Asker(client) as model:
            for number in itertools.count():
                try:
                    await model.say([user(f"turn {number}")])
                except httpx.HTTPStatusError as error:
                    return {"reward": 0.5, "metrics": {"status": error.response.status_code}}

    env = inside_out(chatty, tasks, max_turns=2)
    env.reset(options={"task_id": "task-0"})
    assert env.step("a")[2:4] == (False, False)
    ends = {"metrics": {"status": 403.0}, "references": [], "points": []}
    assert env.step("b") == ("the agent has ended", 0.5, False, True, ends)
    with pytest.raises(RuntimeError, match="call reset"):
        env.step("c")

    async def slow(task, client):
        async with Asker(client) as model:
            await model.say([user("a")])
            await model.reward(0.25)
            await asyncio.sleep(600)

    env = inside_out(slow, tasks, agent_timeout_s=4.0)
    env.reset(options={"task_id": "task-0"})
    assert env.step("a")[1:4] == (0.25, False, True)


def test_agents_that_fail_or_say_nothing_break_their_episode(tasks):
    async def silent(task, client):
        return 1.0

    async def fails(task, client):
        async with Asker(client) as model:
            await model.say([user("a")])
        raise KeyError("door")

    async def forgets(task, client):
        async with Asker(client) as model:
            await model.say([user("a")])

    with pytest.raises(AgentFailed, match="the agent ended without a request to the model"):
        inside_out(silent, tasks).reset(options={"task_id": "task-0"})
    for agent, problem in ((fails, "KeyError: 'door'"), (forgets, "no reward: end with a number")):
        env = inside_out(agent, tasks)
        env.reset(options={"task_id": "task-0"})
        with pytest.raises(AgentFailed, match=problem):
            env.step("a")


@pytest.mark.parametrize("hosted", [False, True])
def test_a_failing_agent_is_named_with_its_line_instead_of_lengths_that_cannot_be_measured(
    tmp_path, monkeypatch, hosted
):
    name = f"bad{hosted}"
    (tmp_path / f"{name}.py").write_text("async def raises(task, client):\n    return task['prise']\n")
    model = save_chat_model(tmp_path / "model")
    monkeypatch.chdir(tmp_path)

    def problem(function):
        keys = {"env.agent": f"{name}.py:{function}", "env.tasks": task_file(tmp_path, 4), "eval_episodes": 0}
        keys |= {"env.agent_python": sys.executable} if hosted else {}
        with pytest.raises(InputError) as raised:
            ready(Settings.from_dict({"env": "blackbox", "engine": "torch", "model": str(model), **keys}))
        return str(raised.value)

    assert problem("raises") == f"blackbox fails in every task that was tried: KeyError: 'prise' ({name}.py:2)"
    assert problem("rases").endswith("'rases' in it: did you mean 'raises'?" if hosted else "did you mean 'raises'?")
    close_hosts()


def test_an_agent_that_neither_asks_nor_ends_is_named_with_its_time_limit(tasks, monkeypatch):
    class Hangs:
        async def run(self, given, timeout_s):
            await asyncio.Event().wait()

    monkeypatch.setattr("rl_agents.envs.blackbox.env.PATIENCE_S", 0.0)
    env = inside_out(Hangs(), tasks, agent_timeout_s=0.01)
    with pytest.raises(
        AgentFailed, match=r"env=blackbox: its agent neither asked nor ended within env.agent_timeout_s"
    ):
        env.reset(options={"task_id": "task-0"})
    env.close()


def test_closing_ends_the_agents_process(tasks):
    from rl_agents.gateway.process_supervisor import CommandAgent

    code = """
import json, os, urllib.request
head = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
body = json.dumps({"model": "x", "messages": [{"role": "user", "content": str(os.getpid())}]}).encode()
urllib.request.urlopen(urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, head)).read()
"""
    env = inside_out(CommandAgent((sys.executable, "-c", code)), tasks)
    pid = int(env.reset(options={"task_id": "task-0"})[0])
    assert psutil.pid_exists(pid)
    env.close()
    assert not psutil.pid_exists(pid)


def test_a_retry_is_the_same_request(tasks):
    given_up = threading.Event()

    async def impatient(task, client):
        async with Asker(client) as model:
            body = {"model": "x", "messages": [user("a")]}
            with pytest.raises(httpx.ReadTimeout):
                await model.http.post(f"{model.url}/chat/completions", json=body, timeout=0.3)
            given_up.set()
            head = {"x-stainless-retry-count": "1"}
            reply = await model.http.post(f"{model.url}/chat/completions", json=body, headers=head)
            again = await model.http.post(f"{model.url}/chat/completions", json=body, headers=head)
        assert reply.json() == again.json()
        return {"reward": 1.0, "references": [reply.json()["choices"][0]["message"]["content"]]}

    env = inside_out(impatient, tasks)
    env.reset(options={"task_id": "task-0"})
    assert given_up.wait(60)
    time.sleep(0.3)  # and it is asked again
    assert env.step("only once")[4]["references"] == ["only once"]


def test_agents_that_replay_are_branched_by_replay(tasks):
    engine = TorchEngine(tiny_model(), max_model_len=400)
    pool = EnvPool(lambda: inside_out(player(Countdown), tasks))
    check = check_branching(specs(2), pool, Player(engine, CONTEXT, LIMITS), "auto", "blackbox")
    found = asyncio.run(check)
    assert not found.input_error and len(found.checked) == 2


DESK = [tool for tool in desk.TOOLS if tool["function"]["name"] == "get_order"]
CALL = '<tool_call>\n{"name": "get_order", "arguments": {"order_id": "12"}}\n</tool_call>'


async def uses_tools(task, client):
    """Sends calls back with other spaces, and two results at once."""
    messages = [{"role": "system", "content": "You help with orders."}, user("Where is order 12?")]
    async with Asker(client) as model:
        for _ in range(2):
            answer = await model.message(messages, tools=DESK)
            for made in answer.get("tool_calls", ()):
                made["function"]["arguments"] = json.dumps(json.loads(made["function"]["arguments"]), indent=1)
            results = [
                {"role": "tool", "tool_call_id": made["id"], "content": '{"status": "shipped"}'}
                for made in answer.get("tool_calls", ())
            ]
            messages += [answer, *results, user("Thanks!")]
        await model.message(messages, tools=DESK)
    return 1.0


async def compacts(task, client):
    """Begins anew with a summary after two turns."""
    messages = [user("Where is order 12?")]
    async with Asker(client) as model:
        for _ in range(2):
            messages += [{"role": "assistant", "content": await model.say(messages)}, user("Thanks!")]
        messages = [user("Order 12: done. Where is order 13?")]
        messages += [{"role": "assistant", "content": await model.say(messages)}, user("Thanks!")]
        await model.say(messages)
    return 1.0


@pytest.mark.parametrize(
    ("agent", "words"),
    [(uses_tools, CALL), (compacts, "<think> 12 </think>Order 12: done.")],
    ids=["tools", "compaction"],
)
@pytest.mark.parametrize("reasoning", ["keep", "as_sent"])
def test_a_search_reads_the_prompts_that_the_gateway_writes(tasks, agent, words, reasoning):
    context = ContextPolicy(ChatTemplate(build_tokenizer()))
    engine = ScriptedEngine(context.template.tokenizer, lambda prompt: words)
    limits = replace(LIMITS, max_response_tokens=60, max_model_len=1000)
    box = BlackBox(FunctionAgent(agent), options(tasks=tasks, reasoning=reasoning, agent_timeout_s=60.0), 5)
    through = asyncio.run(collect_blackbox(specs(1), box, engine, context.template, limits)).trajectories

    def make():
        return inside_out(agent, tasks, reasoning=reasoning)

    inside = asyncio.run(play_episodes(specs(1), make, engine, context, limits)).trajectories
    (mine,), (theirs,) = through, inside
    assert mine.end_cause == theirs.end_cause == "terminated"
    assert [s.prompt_ids for s in mine.steps] == [s.prompt_ids for s in theirs.steps]
    assert [s.action for s in mine.steps] == [s.action for s in theirs.steps] and len(mine.steps) in (3, 4)
