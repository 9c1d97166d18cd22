"""Agent frameworks as they are released, through the real gateway: each page plays, exactly as the built-in loop would.

They need ``make clients``. All of them live in one process, which imports every framework once (`hosted`).
"""

import asyncio
import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest
import torch
from episodes import play_episodes
from gateway.models import tiny_model, tokenizer
from rollout.scripted import ScriptedEngine

from rl_agents.chat.template import make_context
from rl_agents.data.trajectory import EpisodeSpec, Trajectory
from rl_agents.envs.base import named_env, starter_spec, task_ids
from rl_agents.envs.blackbox import BlackboxOptions
from rl_agents.envs.blackbox.agents import TaskWorld
from rl_agents.envs.multihop_qa import MultihopQAOptions
from rl_agents.gateway.agent_interpreter import HostedAgent
from rl_agents.inference.torch_engine import TorchEngine
from rl_agents.rollout.blackbox import BlackBox, collect_blackbox
from rl_agents.rollout.turns import Limits

CONTEXT = make_context("append", tokenizer())
ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".venv-clients" / "bin" / "python"
GUIDE = (ROOT / "docs" / "how-to" / "train-existing-agents.md").read_text("utf-8")
#: Name of an example -> the code that the page shows.
SECTION = re.compile(r"`env\.agent=docs/examples/agents/(\w+)_agent\.py:(\w+)`\n\n```python\n(.*?)```", re.DOTALL)
CODE = {name: code for name, _, code in SECTION.findall(GUIDE)}
#: Examples whose agents keep one conversation of plain text, and their functions.
LINEAR = [
    "openai:chat", "openai:responses", "anthropic:agent", "openai_agents:responses", "openai_agents:chat",
    "smolagents:chat", "langgraph:agent", "pydantic_ai:agent", "autogen:agent",
    "agno:agent", "ag2:agent", "agent_framework:agent", "haystack:agent",
]  # fmt: skip
GAMES = [
    {"id": task, "env": "guess_numbers", "options": {"prompt": "compact"}, "max_turns": 3}
    for task in task_ids("guess_numbers", "train", {})[:2]
]
#: Seeds and length let every answer say something and end by itself: OpenAI's agents insist on that over Responses, and
#: leave empty answers out of a history over Chat Completions.
SEED = 14
LIMITS = Limits(max_turns=3, max_response_tokens=150, max_model_len=2000)
WIDE = Limits(max_turns=4, max_response_tokens=400, max_model_len=60_000)
needs_clients = pytest.mark.skipif(not PYTHON.is_file(), reason="no .venv-clients: make clients")
pytestmark = pytest.mark.servers


def game_of(given):
    """The world of a task that carries its game; others have none."""
    return TaskWorld(replace(given, task=given.task.get("game", given.task)))


def collect(tasks: list[dict], engine, tmp_path: Path, limits: Limits, context=CONTEXT) -> dict[str, Trajectory]:
    """Play every task at once in the process that has all frameworks; return trajectories by task id."""
    return asyncio.run(collected(tasks, engine, tmp_path / "tasks.jsonl", limits, context))


async def collected(tasks: list[dict], engine, file: Path, limits: Limits, context=CONTEXT) -> dict[str, Trajectory]:
    """See `collect`."""
    file.write_text("".join(json.dumps({"split": "train", **task}) + "\n" for task in tasks))
    options = BlackboxOptions(agent="x:y", tasks=str(file), agent_timeout_s=120.0, agent_concurrency=40)
    agent = HostedAgent(str(PYTHON), str(Path(__file__).with_name("hosted.py")), "agent", game_of)
    specs = [EpisodeSpec(task["id"], 0, n, seed=SEED + n) for n, task in enumerate(tasks)]
    rollouts = await collect_blackbox(
        specs, BlackBox(agent, options, limits.max_turns), engine, context.template, limits
    )
    assert not rollouts.input_error and not rollouts.engine_errors
    return {trajectory.task_id: trajectory for trajectory in rollouts.trajectories}


async def side_by_side(tasks: dict[str, list[dict]], engine, tmp_path: Path, limits: Limits) -> list[dict]:
    """Play every list of tasks with a gateway of its own: with equal seeds."""
    files = [tmp_path / f"tasks-{n}.jsonl" for n in range(len(tasks))]
    pairs = zip(tasks.values(), files, strict=True)
    return await asyncio.gather(*(collected(own, engine, file, limits) for own, file in pairs))


def ids(trajectory: Trajectory) -> list[tuple[list[int], list[int]]]:
    return [(step.prompt_ids, step.response_ids) for step in trajectory.steps]


def eager_model():
    """A random model that ends its turns soon."""
    model = tiny_model()
    with torch.no_grad():
        model.get_input_embeddings().weight[tokenizer().eos_token_id] *= 12
    return model


def page_files(tmp_path: Path) -> dict[str, str]:
    for name, code in CODE.items():
        (tmp_path / f"{name}_page.py").write_text(code)
    return {name: str(tmp_path / f"{name}_page.py") for name in CODE}


def test_the_code_of_the_page_is_the_examples():
    assert len(CODE) == 13
    for name, function, code in SECTION.findall(GUIDE):
        assert code == (ROOT / f"docs/examples/agents/{name}_agent.py").read_text("utf-8"), name
        assert f"async def {function}(task, client" in code


@needs_clients
def test_every_page_plays_the_built_in_loops_tokens(tmp_path):
    files, engine = page_files(tmp_path), TorchEngine(eager_model(), max_model_len=2000)
    tasks = {
        row: [{"id": str(n), "file": files[name], "function": function, "game": game}
              for n, game in enumerate(GAMES)]
        for row in LINEAR for name, function in [row.split(":")]
    }  # fmt: skip
    found = asyncio.run(side_by_side(tasks, engine, tmp_path, LIMITS))
    specs = [EpisodeSpec(game["id"], 0, n, SEED + n) for n, game in enumerate(GAMES)]
    make = partial(named_env, "guess_numbers", 3, prompt="compact")
    built_in = asyncio.run(play_episodes(specs, make, engine, CONTEXT, LIMITS)).trajectories
    assert [len(theirs.steps) for theirs in built_in] == [3, 3]
    assert all(
        len(s.response_ids) > 1 and s.response_ids[-1] == tokenizer().eos_token_id for t in built_in for s in t.steps
    )
    for row, trajectories in zip(LINEAR, found, strict=True):
        for mine, theirs in zip(trajectories.values(), built_in, strict=True):
            assert ids(mine) == ids(theirs), (row, mine.end_cause)
            assert (mine.end_cause, mine.metrics) == (theirs.end_cause, theirs.metrics), row
            assert not {"rewrites", "abandoned"} & set(mine.facts.get("gateway", ())), row


@needs_clients
@pytest.mark.parametrize("kind", ["tools", "code"])
def test_smolagents_with_tools_win_a_game(tmp_path, kind):
    secret = named_env("guess_numbers")
    _, info = secret.reset(options={"task_id": GAMES[0]["id"]})
    (code,) = info["references"]
    turn = f"<answer> {code} </answer>"
    call = '<tool_call>{"name": "%s", "arguments": %s}</tool_call>'

    def script(prompt: str) -> str:
        acted = "correct" in prompt
        if kind == "code":
            line = "final_answer(1)" if acted else f"print(act({turn!r}))"
            return f"I know it.\n<code>\n{line}\n</code>"
        return call % (("final_answer", '{"answer": "1"}') if acted else ("act", json.dumps({"response": turn})))

    engine = ScriptedEngine(tokenizer(), script)
    file = page_files(tmp_path)["smolagents_tools"]
    task = {"id": kind, "file": file, "function": kind, "game": GAMES[0]}
    (trajectory,) = collect([task], engine, tmp_path, WIDE).values()
    assert (trajectory.end_cause, trajectory.success, trajectory.episode_return) == ("terminated", True, 1.0)
    assert len(trajectory.steps) == 2


@needs_clients
def test_a_tool_of_pydantic_ai_is_called_by_a_warm_start_model_with_the_built_in_loops_tokens(tmp_path):
    """The model of the page's command: it searches and answers as in its environment, which it has learned."""
    starter = starter_spec("multihop_qa", {})
    words = starter.build_tokenizer()
    context = make_context("append", words)
    keys = {"prompt": "compact", "questions": "small"}
    task = task_ids("multihop_qa", "train", keys)[0]
    turns = [action for _, action in starter.expert(task, Random(0), MultihopQAOptions(**keys), 5)]

    def script(prompt: str) -> str:
        return turns[min(prompt.count("<assistant>"), len(turns)) - 1]

    game = {"id": task, "env": "multihop_qa", "options": keys, "max_turns": 5}
    file, limits = page_files(tmp_path)["pydantic_ai_tools"], Limits(5, 40, 512)
    tasks = [{"id": "0", "file": file, "function": "tools", "game": game}]
    (mine,) = collect(tasks, ScriptedEngine(words, script), tmp_path, limits, context).values()
    make = partial(named_env, "multihop_qa", 5, **keys)
    spec = EpisodeSpec(task, 0, 0, SEED)
    (theirs,) = asyncio.run(play_episodes([spec], make, ScriptedEngine(words, script), context, limits)).trajectories
    assert len(turns) > 1 and all("tool_call" in turn for turn in turns[:-1])
    assert (mine.end_cause, mine.success, theirs.success) == ("terminated", True, True)
    assert ids(mine) == ids(theirs)
