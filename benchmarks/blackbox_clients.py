"""Released agent frameworks that train on guess_numbers through the gateway, compared with the built-in loop.

    make clients && python -m benchmarks.blackbox_clients --seeds 3 --jobs 1      # curves, tokens, cost per call

All have the same keys, seeds and budget. The agents are those of docs/how-to/train-existing-agents.md, each in its
own interpreter. ``equal_tokens``: iterations in which all calls have the same token ids as those of the built-in
loop. ``cost``: CPU per call of the runner (gateway, environment, stub engine) and of the agents' process.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Sequence

import psutil

from benchmarks.equal_steps import sets
from benchmarks.grid import Arm, Run, grid_parser, markdown, read_run, run_grid, trained
from benchmarks.report import load, save
from benchmarks.timing import StubEngine
from rl_agents.chat.template import make_context
from rl_agents.data.tasks import step_seed
from rl_agents.data.trajectory import EpisodeSpec
from rl_agents.envs.base import make_env, starter_spec, task_ids
from rl_agents.envs.blackbox import BlackboxOptions
from rl_agents.envs.blackbox.agents import load_agent
from rl_agents.rollout.agent_loop import collect_episodes
from rl_agents.rollout.blackbox import BlackBox, collect_blackbox
from rl_agents.rollout.turns import Limits
from rl_agents.store.reader import PoolReader

PYTHON = ".venv-clients/bin/python"
BUILT_IN = "built-in loop"
#: Row -> file in docs/examples/agents and function.
AGENTS = {
    "openai, Chat Completions": "openai_agent.py:chat",
    "openai, Responses": "openai_agent.py:responses",
    "anthropic, Messages": "anthropic_agent.py:agent",
    "openai-agents, Responses": "openai_agents_agent.py:responses",
    "openai-agents, Chat Completions": "openai_agents_agent.py:chat",
    "smolagents, model": "smolagents_agent.py:chat",
    "langgraph": "langgraph_agent.py:agent",
    "pydantic-ai": "pydantic_ai_agent.py:agent",
    "autogen": "autogen_agent.py:agent",
}
#: Agents call at other times than the built-in loop, so batches differ, and with them the last digits of logprobs.
BUDGET = ("iterations=10", "tasks_per_iteration=8", "group_size=8", "eval_episodes=128", "old_logprobs=learner")
COMPACT = {"prompt": "compact"}


def main() -> None:
    parser = grid_parser(__doc__, "blackbox_clients")
    parser.add_argument("--agents", nargs="+", default=list(AGENTS), choices=list(AGENTS), metavar="NAME")
    parser.set_defaults(local=True)
    args = parser.parse_args()
    runs = run_grid([arm(name) for name in (BUILT_IN, *args.agents)], args, cell=run_cell)
    print(markdown(runs))
    data = load(args.name)
    data["equal_tokens"] = {name: equal_iterations(runs[name], runs[BUILT_IN]) for name in args.agents}
    data["cost"] = {name: cost(name) for name in args.agents}
    save(args.name, data)
    for name in args.agents:
        print(f"{name:32} {data['equal_tokens'][name]}  {data['cost'][name]}")


def arm(name: str) -> Arm:
    if name == BUILT_IN:
        return Arm(name, ("--algo", "grpo", *sets(BUDGET)))
    agent = (f"env.agent=docs/examples/agents/{AGENTS[name]}", f"env.agent_python={PYTHON}", "env.agent_concurrency=64")
    return Arm(name, ("--algo", "grpo", "--env", "blackbox", *sets((*BUDGET, "env.tasks=guess_numbers", *agent))))


def run_cell(flags: Sequence[str], seed: int) -> Run:
    """Train once, and keep a digest of all token ids of every iteration."""
    with trained(flags, seed) as output:
        with PoolReader(output / "pool.sqlite") as pool:
            calls = sorted((call.policy_version, call.id, call.prompt_ids, call.response_ids) for call in pool.calls())
        versions = sorted({version for version, *_ in calls})
        texts = {v: json.dumps([c for c in calls if c[0] == v]).encode() for v in versions}
        digests = [hashlib.sha256(texts[v]).hexdigest()[:16] for v in versions]
        return read_run(output) | {"calls": len(calls), "digests": digests}


def equal_iterations(mine: Sequence[Run], theirs: Sequence[Run]) -> str:
    """Return the number of iterations, over all seeds, whose tokens all equal those of the built-in loop."""
    pairs = [(a, b) for run, other in zip(mine, theirs, strict=True)
             for a, b in zip(run["digests"], other["digests"], strict=True)]  # fmt: skip
    return f"{sum(a == b for a, b in pairs)} of {len(pairs)}"


def cost(name: str, episodes: int = 64, turns: int = 4) -> dict[str, float]:
    """Return CPU milliseconds per call of the runner, of the built-in loop, and of the agents' process."""
    tokenizer = starter_spec("guess_numbers").build_tokenizer()
    context = make_context("append", tokenizer)
    engine = StubEngine(tokenizer, "<interact> 1 2 </interact>")  # a wrong guess
    limits = Limits(max_turns=turns, max_response_tokens=24, max_model_len=256)
    names = task_ids("guess_numbers", "train", COMPACT)
    specs = [EpisodeSpec(names[n % len(names)], n, 0, step_seed(7, n)) for n in range(episodes)]
    options = BlackboxOptions(
        agent=f"docs/examples/agents/{AGENTS[name]}", agent_python=PYTHON, tasks="guess_numbers", task_options=COMPACT
    )
    box = BlackBox(load_agent(options), options, turns)

    async def measured() -> dict[str, float]:
        await collect_blackbox(specs[:8], box, engine, context.template, limits)  # imports, connections
        began, inside, outside = time.monotonic(), time.process_time(), children_seconds()
        played = (await collect_blackbox(specs, box, engine, context.template, limits)).trajectories
        wall, inside, outside = time.monotonic() - began, time.process_time() - inside, children_seconds() - outside
        calls = sum(len(t.steps) for t in played)
        began_cpu = time.process_time()
        await collect_episodes(specs, lambda: make_env("guess_numbers", COMPACT, turns), engine, context, limits)
        loop = time.process_time() - began_cpu
        values = {"runner_ms": inside, "built_in_ms": loop, "agents_ms": outside, "wall_ms": wall}
        return {key: round(1000 * value / calls, 2) for key, value in values.items()} | {"calls": calls}

    return asyncio.run(measured())


def children_seconds() -> float:
    times = [child.cpu_times() for child in psutil.Process().children(recursive=True)]
    return sum(t.user + t.system for t in times)


if __name__ == "__main__":
    main()
