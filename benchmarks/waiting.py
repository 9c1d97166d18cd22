"""Environments, tools and judges that take their time: ``python -m benchmarks.waiting environments|services``.

The engine answers at once, so that what is measured is waiting and what the rollout loop adds to it.

environments, each job in a process of its own:
    64 episodes of five turns whose reset and step take 0.2 s; "no waiting": 0 s, which is what the loop itself takes
services, a judge of 0.5 s and an MCP server of 0.2 s a call, each a process of its own:
    prs           64 episodes are scored with reward=prs, one question each
    mcp           64 episodes of five turns, one call each
    mcp 1,000     1,000 episodes of one turn, a call of 1 s each, and a bound of 1,000
    The limits of concurrency are the defaults; "wide" raises that of judges to 64.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.spaces import Text

from benchmarks.report import median_table, write_result
from benchmarks.timing import StubEngine, in_new_process, server
from rl_agents.chat.template import make_context
from rl_agents.config import Settings
from rl_agents.data.trajectory import EpisodeSpec, Step, Trajectory
from rl_agents.envs import base
from rl_agents.envs.small_model import word_tokenizer
from rl_agents.inference.base import Sampling
from rl_agents.rewards.base import make_reward
from rl_agents.rollout.agent_loop import play_episodes
from rl_agents.rollout.env_pool import EnvPool, env_pool
from rl_agents.rollout.turns import Limits

TURNS = 5
JUDGE_S, TOOL_S = 0.5, 0.2
MCP_SERVER = """
import asyncio
from mcp.server.mcpserver import MCPServer

server = MCPServer("slow")


@server.tool()
async def wait(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


server.run()
"""


def main() -> None:
    """Measure, print the table and write results/slow_WHAT.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("environments", "services", "judge"), help="judge: only serves one")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--parts", nargs="+", default=[""], help="only measurements whose names begin so")
    args = parser.parse_args()
    if args.what == "judge":
        return asyncio.run(serve_judge())
    measure = {"environments": environments, "services": services}[args.what]
    rounds = [measure(tuple(args.parts)) for _ in range(args.rounds)]
    print(median_table(rounds))
    if args.parts == [""]:
        command = f"python -m benchmarks.waiting {args.what} --rounds {args.rounds}"
        print(write_result(f"slow_{args.what}", command, rounds, load_at_the_end=os.getloadavg()[0]))
    return None


def play(
    envs: EnvPool, specs: Sequence[EpisodeSpec], tokenizer: Any, turns: int, text_of: Callable[[Sampling], str]
) -> float:
    """Seconds of these episodes, all of which must end well."""
    limits = Limits(turns, max_response_tokens=200, max_model_len=100_000)
    engine, context = StubEngine(tokenizer, text_of), make_context("append", tokenizer)

    async def together() -> tuple[list[Trajectory], float]:
        began = time.monotonic()
        played = await play_episodes(specs, envs, engine, context, limits)
        seconds = time.monotonic() - began
        await envs.close()
        return list(played.trajectories), seconds

    played, seconds = asyncio.run(together())
    failed = [t.end_cause for t in played if t.failed]
    if failed or len(played) < len(specs):
        sys.exit(f"{len(failed)} of {len(specs)} episodes did not end: {failed[:1]}")
    return seconds


# --- environments


class Slow(gymnasium.Env[str, str]):
    """Every call takes ``wait_s``."""

    observation_space = action_space = Text(max_length=1000)

    def __init__(self, wait_s: float = 0.2) -> None:
        self.wait_s, self.turn = wait_s, 0

    @staticmethod
    def task_ids(split: str, **_: Any) -> list[str]:
        return ["task"]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        time.sleep(self.wait_s)
        self.turn = 0
        return "begin", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        time.sleep(self.wait_s)
        return self.answer()

    def answer(self) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.turn += 1
        return "go on", 1.0, self.turn >= TURNS, False, {"success": True}


class SlowCoroutine(Slow):
    """The same as coroutines."""

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:  # type: ignore[override]
        await asyncio.sleep(self.wait_s)
        self.turn = 0
        return "begin", {}

    async def step(self, action: str) -> Any:  # type: ignore[override]
        await asyncio.sleep(self.wait_s)
        return self.answer()


def seconds(env: str, wait_s: float, keys: Mapping[str, Any]) -> float:
    """Of 64 episodes."""
    name = f"gymnasium:benchmarks.waiting:{env}"
    pool = env_pool(Settings.from_dict({"env": name, "env.kwargs": {"wait_s": wait_s}, **keys}))
    specs = [EpisodeSpec("task", number, 0, seed=number) for number in range(64)]
    tokenizer = base.starter_spec("guess_numbers").build_tokenizer()
    return play(pool, specs, tokenizer, TURNS, lambda sampling: "go on")


def environments(parts: tuple[str, ...]) -> dict[str, float]:
    """Seconds by job."""
    jobs: dict[str, tuple[str, float, dict[str, Any]]] = {
        "no waiting, inline": ("Slow", 0.0, {"env_blocking": "inline"}),
        "inline (before)": ("Slow", TOOL_S, {"env_blocking": "inline"}),
        "thread": ("Slow", TOOL_S, {"env_blocking": "thread"}),
        "coroutines": ("SlowCoroutine", TOOL_S, {}),
        "8 processes, first batch": ("Slow", TOOL_S, {"env_blocking": "process", "env_concurrency": 8}),
    }
    chosen = {name: own for name, own in jobs.items() if name.startswith(parts)}
    return {f"64 x 5 x 0.2 s, {name}": in_new_process(seconds, *own) for name, own in chosen.items()}


# --- services


def services(parts: tuple[str, ...]) -> dict[str, float]:
    """Seconds by part."""
    with tempfile.TemporaryDirectory() as name, server("-m", "benchmarks.waiting", "judge") as (_, port):
        folder = Path(name)
        mcp_files(folder)
        keys = {"judge": "openai", "judge_url": f"http://127.0.0.1:{port}/v1", "judge_model": "slow"}
        wide = {"judge_concurrency": 64, **keys}
        works: dict[str, Callable[[], float]] = {
            "prs": lambda: prs(keys),
            "prs, wide": lambda: prs(wide),
            "mcp": lambda: mcp(folder, 64, 5, TOOL_S, {}),
            "mcp 1,000": lambda: mcp(folder, 1000, 1, 1.0, {"call_concurrency": 1000}),
        }
        return {part: work() for part, work in works.items() if part.startswith(parts)}


def prs(keys: Mapping[str, Any]) -> float:
    """Score 64 episodes whose answers differ."""
    reward = make_reward(Settings.from_dict({"reward": "prs", "prs_form": "long", "prs_tags": ["answer"], **keys}))
    batch = []
    for n in range(64):
        step = Step([1], [2], [-0.5], 0, "stop", f"question {n}?", "", f"<answer>answer {n}</answer>")
        batch.append(Trajectory(f"task {n}", n, 0, n, steps=[step], facts={"references": ["x"]}))
    began = time.monotonic()
    metrics = reward.apply(batch)
    if (metrics["reward/judge_calls"], metrics["reward/judge_failures"]) != (64.0, 0.0):
        sys.exit(f"the judge was not asked about all: {metrics}")
    return time.monotonic() - began


def mcp(folder: Path, episodes: int, turns: int, seconds: float, keys: Mapping[str, Any]) -> float:
    """Episodes that call a slow tool in every turn, of a server that runs already."""
    action = f"<tool_call>{json.dumps({'name': 'wait', 'arguments': {'seconds': seconds}})}</tool_call>"
    tokenizer = word_tokenizer(action.split(), [], 100_000)
    tokenizer.chat_template = "{% if tools %}<system> {{ tools | tojson }} {% endif %}" + str(tokenizer.chat_template)
    options = {"servers": str(folder / "servers.json"), "tasks": str(folder / "tasks.jsonl"), **keys}
    specs = [EpisodeSpec("t", n, 0, seed=n) for n in range(episodes)]
    holds = base.named_env("mcp", **options)  # the servers, for as long as it is open
    holds.reset(options={"task_id": "t"})
    try:
        return play(
            EnvPool(lambda: base.make_env("mcp", options, turns)), specs, tokenizer, turns, lambda sampling: action
        )
    finally:
        holds.close()


def mcp_files(folder: Path) -> None:
    """Write the server, the file that names it, and a task."""
    (folder / "server.py").write_text(MCP_SERVER, encoding="utf-8")
    entry = {"command": sys.executable, "args": [str(folder / "server.py")]}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": {"slow": entry}}), encoding="utf-8")
    (folder / "tasks.jsonl").write_text('{"id": "t", "question": "q", "answer": "a"}\n', encoding="utf-8")


async def serve_judge() -> None:
    """Say yes after half a second, to any client; the first line of output is the port."""
    body = json.dumps({"choices": [{"message": {"content": "yes"}}]}).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
                length = next(int(line.split(":")[1]) for line in lines if line.startswith("content-length"))
                await reader.readexactly(length)
                await asyncio.sleep(JUDGE_S)
                writer.write(head + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024, limit=1 << 22)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await listening.serve_forever()


if __name__ == "__main__":
    main()
