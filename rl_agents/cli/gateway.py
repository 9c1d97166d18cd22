"""``python run.py gateway``: a model server for any agent framework that records every call as a step."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rl_agents.chat.template import ChatOptions, ChatTemplate, load_tokenizer
from rl_agents.cli.parser import Parser, show_start
from rl_agents.cli.serve import check_port
from rl_agents.config import parse_assignments
from rl_agents.data.trajectory import Trajectory
from rl_agents.errors import InputError
from rl_agents.gateway.calls import GatewayLimits
from rl_agents.gateway.gateway import Gateway
from rl_agents.gateway.server import serving
from rl_agents.gateway.sessions import SessionTrace
from rl_agents.inference.base import EngineSettings
from rl_agents.inference.engines import ENGINES, build_engine, resolve_engine, run_engine
from rl_agents.interrupts import EXIT_CODE, Interrupts, event_loop
from rl_agents.store.files import POOL_FILE
from rl_agents.store.reader import PoolReader
from rl_agents.store.records import SessionStart, session_records
from rl_agents.store.trajectory_store import PoolWriter
from rl_agents.web.security import read_key

WAKE_S = 0.2
#: End causes of sessions that the agent did not choose.
CUT = ("context_length", "max_calls")


def build_parser() -> Parser:
    parser = Parser(
        "gateway",
        epilog="--set takes a run's keys (max_model_len, max_response_tokens, ...); see docs/reference/gateway.md",
    )
    parser.add_argument("--model", metavar="DIR", help="a Hugging Face model: a folder or a public name")
    parser.add_argument("--checkpoint", metavar="DIR", help="a run folder (its newest checkpoint) or a checkpoint")
    parser.add_argument("--pool", metavar="FILE", help="file that records sessions and calls; created if missing")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8100, metavar="N", help="port (default: 8100)")
    parser.add_argument(
        "--admin-key-env", metavar="NAME", help="environment variable with the key for opening sessions"
    )
    parser.add_argument("--engine", choices=("auto", *ENGINES), default="auto", help="engine (default: auto)")
    parser.add_argument(
        "--reasoning", choices=("keep", "as_sent"), default="keep",
        help="reasoning that a client does not send back: keep it in the prompt (default), or use messages as sent",
    )  # fmt: skip
    parser.add_count("--max-calls", 0, "most calls per session (default: no limit)", least=0)
    parser.add_settings_flag({"model": "--model", "engine": "--engine", "pool": "--pool"})
    return parser


def run(argv: Sequence[str]) -> int:
    args = build_parser().parse(argv)
    if bool(args.model) == bool(args.checkpoint):
        raise InputError("gateway needs either --model DIR or --checkpoint DIR")
    if not args.pool:
        raise InputError("gateway needs --pool FILE, which records sessions and calls")
    if Path(args.pool).is_dir():
        raise InputError(f"--pool {args.pool}: a folder; name a file, such as {Path(args.pool) / POOL_FILE}")
    check_port(args.host, args.port)
    admin = admin_key(args.admin_key_env)
    show_start(sys.stdout)
    from rl_agents.serving.source import find_checkpoint, served_settings

    checkpoint = find_checkpoint(args.model or args.checkpoint)
    settings = served_settings(checkpoint, {**parse_assignments(args.set), "engine": args.engine})
    template = ChatTemplate(load_tokenizer(checkpoint.hf_dir), ChatOptions.from_settings(settings))
    kind, _ = resolve_engine(settings.engine)
    limits = GatewayLimits(
        max_model_len=settings.max_model_len, max_response_tokens=settings.max_response_tokens,
        temperature=settings.temperature, top_p=settings.top_p, reasoning=args.reasoning,
        model_name=checkpoint.label, max_calls=args.max_calls, logprobs="top" if ENGINES[kind].extras else "sampled",
    )  # fmt: skip
    with Interrupts() as interrupts, interrupts.abortable(), PoolWriter(args.pool) as pool:
        engine = run_engine(settings, str(checkpoint.hf_dir), kind)
        with event_loop() as runner:
            runner.run(_serve(args, engine, template, limits, pool, admin, interrupts))
    return EXIT_CODE


def admin_key(variable: str | None) -> str:
    """Return the key that opens sessions; without a variable, generate and print one.

    Raises:
        InputError: the variable is not set, or its key is too short.
    """
    if variable is None:
        key = secrets.token_urlsafe(24)
        print(f"admin key for POST /rl/sessions (shown only here): {key}", flush=True)
        return key
    return read_key(variable)


async def _serve(
    args: argparse.Namespace, settings: EngineSettings, template: ChatTemplate, limits: GatewayLimits,
    pool: PoolWriter, admin: str, interrupts: Interrupts,
) -> None:  # fmt: skip
    """Serve until a signal; a restarted gateway resumes open sessions."""
    with closing(build_engine(settings)) as engine, PoolReader(args.pool) as reader:
        gateway = Gateway(engine, template, limits, pool)
        again = gateway.resume(reader)

        async def on_end(opening: SessionStart, trace: SessionTrace) -> None:
            records = session_records(ended_trajectory(opening, trace), opening.session, kind="gateway")
            await asyncio.wrap_future(pool.add(*records))

        async with serving(gateway, admin, args.host, args.port, on_end) as url:
            resumed = f"; {len(again)} open sessions resumed" if again else ""
            print(f"gateway of {limits.model_name} at {url}/v1, sessions at {url}/rl/sessions{resumed}", flush=True)
            with interrupts.abortable(lambda: False):
                while not interrupts.requested:
                    await asyncio.sleep(WAKE_S)
            left = f"; {len(gateway.sessions)} open sessions, with their rewards, resume with {args.pool}"
            print(f"stopping{left if gateway.sessions else ''}", flush=True)


def ended_trajectory(opening: SessionStart, trace: SessionTrace) -> Trajectory:
    """Return the trajectory of an ended session, with the session's reward added to the last step."""
    cut = trace.end in CUT
    if trace.steps:
        trace.steps[-1].reward += trace.reward or 0.0
    trajectory = Trajectory(
        opening.task_id, opening.group_id, opening.member, opening.seed, trace.steps, not cut, cut,
        trace.end or "terminated",
    )  # fmt: skip
    trajectory.facts = trace.facts()
    trajectory.success = trajectory.episode_return > 0
    return trajectory
