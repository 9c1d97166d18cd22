"""``python run.py serve --checkpoint DIR``: serve a trained agent with Ray Serve until interrupted."""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rl_agents.cli.parser import Parser, show_start
from rl_agents.config import merge_flags
from rl_agents.config.options import keys_of
from rl_agents.errors import InputError
from rl_agents.inference.engines import ENGINES
from rl_agents.interrupts import Interrupts
from rl_agents.serving.options import ServingOptions
from rl_agents.trainer.ray_address import cluster_address, describe_session
from rl_agents.web.security import check_address

#: Actors that Serve starts in addition to replicas: controller and proxy.
SERVE_ACTORS = 2
APPLICATION = "rl_agents"
HEALTH_S = 5.0


def build_parser() -> Parser:
    parser = Parser(
        "serve",
        "Serve a trained agent over HTTP in three API dialects (OpenAI Chat Completions, OpenAI Responses,\n"
        "Anthropic Messages), with agent sessions and a web page.",
        epilog="--set takes the server's keys (docs/how-to/serve.md) and the run's (max_model_len, dtype, env.KEY ...)",
    )  # fmt: skip
    parser.add_argument("--checkpoint", metavar="DIR", help="a run folder, a checkpoint, or a model's folder or name")
    parser.add_argument("--follow", action="store_true", help="load each new checkpoint of the run as it is written")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, metavar="N", help="port (default: 8000)")
    parser.add_argument("--api-key-env", metavar="NAME", help="environment variable that holds the API key")
    parser.add_argument("--admin-key-env", metavar="NAME", help="environment variable that holds the key for /admin")
    parser.add_argument("--engine", choices=("auto", *ENGINES), help="engine (default: auto)")
    parser.add_settings_flag({"model": "--checkpoint"}, own=keys_of(ServingOptions))
    return parser


def run(argv: Sequence[str]) -> int:
    args = build_parser().parse(argv)
    names = ("checkpoint", "follow", "api_key_env", "admin_key_env", "engine")
    keys = merge_flags(args.set, {name: getattr(args, name) for name in names})
    check_port(args.host, args.port)
    options, _ = ServingOptions.read(keys)
    check_address(args.host, bool(options.api_key_env))
    show_start(sys.stdout)
    from rl_agents.serving.app import build
    from rl_agents.trainer.ray_init import ensure_ray, quiet_libraries

    quiet_libraries()
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    application = build(keys)  # reports user errors before anything starts
    joined = cluster_address()
    print(f"[rl_agents] {describe_session()}", flush=True)
    with Interrupts() as interrupts:
        with interrupts.abortable():
            # Serve gives its proxy 5 s to start, which is too little on a busy machine.
            os.environ.setdefault("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "60")
            ensure_ray(options.max_replicas + SERVE_ACTORS)
            interrupts.install()
            _start(application, options.checkpoint, args)
        try:
            print(_welcome(options.checkpoint, args), flush=True)
            _wait(interrupts)
        finally:
            _stop(joined)
    return 130


def check_port(host: str, port: int) -> None:
    """Check that a server can listen on an address. Raises `InputError`: it cannot."""
    if not 0 < port < 65536:
        raise InputError(f"--port {port}: must be between 1 and 65535")
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise InputError(f"cannot listen on {host} port {port}: {error.strerror or error}") from None


def _start(application: Any, checkpoint: str, args: argparse.Namespace) -> None:
    """Start Serve and wait until all replicas answer.

    Raises:
        InputError: the cluster already runs Serve, whose address cannot be changed.
    """
    from ray import serve

    if serve.status().proxies:
        place = Path(checkpoint).resolve() if Path(checkpoint).exists() else checkpoint
        raise InputError(
            "this Ray cluster already runs Ray Serve; add the agent to it with: "
            f"serve run rl_agents.serving.app:build checkpoint={place}"
        )
    serve.start(http_options={"host": args.host, "port": args.port}, logging_config={"log_level": "WARNING"})
    serve.run(application, name=APPLICATION, route_prefix="/", logging_config={"log_level": "WARNING"})


def _wait(interrupts: Interrupts) -> None:
    with suppress(KeyboardInterrupt), interrupts.abortable():
        while True:
            time.sleep(HEALTH_S)


def _stop(joined: str) -> None:
    """Finish running responses, then stop Serve; on a cluster (``joined``: its address) Ray itself continues."""
    import ray
    from ray import serve

    print("stopping", flush=True)
    serve.delete(APPLICATION)
    if joined:
        serve.shutdown()
    ray.shutdown()


def _welcome(checkpoint: str, args: argparse.Namespace) -> str:
    host = f"[{args.host}]" if ":" in args.host else args.host
    address = f"http://{host}:{args.port}"
    return f"serving {checkpoint}\n  page  {address}/\n  API   {address}/v1\n  stop  Ctrl-C"
