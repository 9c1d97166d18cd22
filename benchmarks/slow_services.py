"""Judges and tools that take their time: ``python -m benchmarks.slow_services``.

A judge of half a second, an MCP server of 0.2 s a call, each a process of its own on this machine. What is measured is
wall time with an engine that answers at once: all of it is waiting, and what this library adds to it.

    prs           64 episodes are scored with reward=prs, one question each
    long_form_qa  64 episodes of searches and an answer, which the environment's judge is asked about twice
    mcp           64 episodes of five turns, one call each
    mcp 1,000     1,000 episodes of one turn, a call of 1 s each, and a bound of 1,000

The limits of concurrency are the defaults; "wide" raises them to 64 (judges) and to 1,000 (mcp 1,000).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.report import median_table, write_result
from rl_agents.chat.template import make_context
from rl_agents.config import Settings
from rl_agents.data.tasks import step_seed
from rl_agents.data.trajectory import EpisodeSpec, Step, Trajectory
from rl_agents.envs.base import (
    env_spec,
    make_env,
    named_env,
    read_env_options,
    starter_defaults,
    starter_spec,
    task_ids,
)
from rl_agents.envs.small_model import word_tokenizer
from rl_agents.inference.base import Completion
from rl_agents.rewards.base import make_reward
from rl_agents.rollout.agent_loop import Limits, play_episodes

Says = Callable[[EpisodeSpec], Sequence[str]]
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


class Scripted:
    """An engine that says at once what each episode shall say."""

    def __init__(
        self, tokenizer: Any, specs: Sequence[EpisodeSpec], says: Callable[[EpisodeSpec], Sequence[str]]
    ) -> None:
        self.tokenizer = tokenizer
        self.texts = {step_seed(spec.seed, n): text for spec in specs for n, text in enumerate(says(spec))}

    async def generate(self, prompt_ids: list[int], sampling: Any) -> Completion:
        ids = [*self.tokenizer.encode(self.texts[sampling.seed], add_special_tokens=False), sampling.stop_token_ids[0]]
        return Completion(ids, [-0.5] * len(ids), 0, "stop")


def play(
    env: str, options: Mapping[str, Any], tokenizer: Any, specs: Sequence[EpisodeSpec],
    says: Says, turns: int,
) -> float:  # fmt: skip
    """Play episodes and return the seconds; all of them must end well."""
    limits = Limits(turns, max_response_tokens=200, max_model_len=100_000)
    engine, context = Scripted(tokenizer, specs, says), make_context("append", tokenizer)
    begun = time.monotonic()
    played = asyncio.run(play_episodes(specs, lambda: make_env(env, options, turns), engine, context, limits))
    seconds = time.monotonic() - begun
    failed = [t.end_cause for t in played.trajectories if t.failed]
    if failed or len(played.trajectories) < len(specs):
        sys.exit(f"{env}: {len(failed)} of {len(specs)} episodes failed: {failed[:1]}")
    return seconds


def long_form_qa(keys: Mapping[str, Any]) -> float:
    """64 episodes of the scripted demonstrator, judged by a server."""
    starter, name = starter_spec("long_form_qa"), "long_form_qa"
    given = starter_defaults(name, {})
    options = {key[4:]: value for key, value in given.items() if key.startswith("env.")} | {"judge": "openai", **keys}
    specs = [EpisodeSpec(task, n, 0, seed=n) for n, task in enumerate(task_ids(name, "train", options)[:64])]
    read = read_env_options(env_spec(name), {key: value for key, value in options.items() if "judge" not in key})
    said = {s: [action for _, action in starter.demonstrate(s.task_id, random.Random(s.seed), read, 0)] for s in specs}
    return play(name, options, starter.build_tokenizer(), specs, lambda spec: said[spec], 6)


def mcp(folder: Path, episodes: int, turns: int, seconds: float, keys: Mapping[str, Any]) -> float:
    """Episodes that call a slow tool in every turn, of a server that runs already."""
    call = json.dumps({"name": "wait", "arguments": {"seconds": seconds}})
    action = f"<tool_call>{call}</tool_call>"
    tokenizer = word_tokenizer(action.split(), [], 100_000)
    tokenizer.chat_template = "{% if tools %}<system> {{ tools | tojson }} {% endif %}" + str(tokenizer.chat_template)
    options = {"servers": str(folder / "servers.json"), "tasks": str(folder / "tasks.jsonl"), **keys}
    specs = [EpisodeSpec("t", n, 0, seed=n) for n in range(episodes)]
    holds = named_env("mcp", **options)  # the servers, for as long as it is open
    holds.reset(options={"task_id": "t"})
    try:
        return play("mcp", options, tokenizer, specs, lambda spec: [action] * turns, turns)
    finally:
        holds.close()


def prs(keys: Mapping[str, Any]) -> float:
    """Score 64 episodes whose answers differ."""
    settings = Settings.from_dict(
        {"reward": "prs", "prs_form": "long", "prs_tags": ["answer"], "judge": "openai", **keys}
    )
    reward = make_reward(settings)
    batch = []
    for n in range(64):
        step = Step([1], [2], [-0.5], 0, "stop", f"question {n}?", "", f"<answer>answer {n}</answer>")
        batch.append(Trajectory(f"task {n}", n, 0, n, steps=[step], facts={"references": ["x"]}))
    begun = time.monotonic()
    metrics = reward.apply(batch)
    if (metrics["reward/judge_calls"], metrics["reward/judge_failures"]) != (64.0, 0.0):
        sys.exit(f"the judge was not asked about all: {metrics}")
    return time.monotonic() - begun


async def serve_judge() -> None:
    """Say yes after half a second, to anybody; the first line of output is the port."""
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

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024, limit=1 << 22)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def judge() -> Iterator[dict[str, Any]]:
    """The keys of a judge that runs meanwhile."""
    command = [sys.executable, "-m", "benchmarks.slow_services", "--serve-judge"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        yield {"judge_url": url, "judge_model": "slow"}
    finally:
        process.kill()
        process.wait()


def mcp_files(folder: Path) -> None:
    """Write the server, the file that names it, and a task."""
    (folder / "server.py").write_text(MCP_SERVER, encoding="utf-8")
    entry = {"command": sys.executable, "args": [str(folder / "server.py")]}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": {"slow": entry}}), encoding="utf-8")
    (folder / "tasks.jsonl").write_text('{"id": "t", "question": "q", "answer": "a"}\n', encoding="utf-8")


def measure(parts: Sequence[str], before: bool) -> dict[str, float]:
    """Return seconds by part."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name, judge() as keys:
        folder = Path(name)
        mcp_files(folder)
        wide = {"judge_concurrency": 64, **keys}
        works: dict[str, Callable[[], float]] = {
            "prs": lambda: prs(keys),
            "prs, wide": lambda: prs(wide),
            "long_form_qa": lambda: long_form_qa(keys),
            "long_form_qa, wide": lambda: long_form_qa(wide),
            "mcp": lambda: mcp(folder, 64, 5, TOOL_S, {}),
            "mcp 1,000": lambda: mcp(folder, 1000, 1, 1.0, {"call_concurrency": 1000}),
        }
        for part, work in works.items():
            if any(part.startswith(wanted) for wanted in parts) and not (
                before and ("wide" in part or "1,000" in part)
            ):
                figures[part] = work()
                print(f"{part:24} {figures[part]:8.2f} s", flush=True)
    return figures


def main() -> None:
    """Measure, print the table and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=["prs", "long_form_qa", "mcp"])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--before", action="store_true", help="of a version that has no bounds to widen: leave those out"
    )
    parser.add_argument("--name", default="slow_services")
    parser.add_argument("--serve-judge", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve_judge:
        asyncio.run(serve_judge())
        return
    rounds = [measure(args.parts, args.before) for _ in range(args.rounds)]
    print(median_table(rounds))
    print(write_result(args.name, f"python -m benchmarks.slow_services --rounds {args.rounds}", rounds))


if __name__ == "__main__":
    main()
