"""A shop behind HTTP, so that many environments share one store, as StepPO trained (appendix B.2).

    python -m rl_agents.envs.webshop.service --catalogue DIR [--port 8123] [--workers 2]
    python run.py --set env=webshop env.service_url=http://127.0.0.1:8123

| request | body | answer |
|---|---|---|
| ``GET /health`` | | catalogue, number of products and of goals |
| ``GET /tasks?split=test&goals=human`` | | ``{"task_ids": [...]}`` |
| ``POST /reset`` | ``{"task_id": ...}`` | a turn: instruction, state, page |
| ``POST /step`` | ``{"task_id": ..., "state": ..., "command": ...}`` | a turn, with the score after a purchase |

The state of a session travels with it and holds nothing secret, so the service keeps none: sessions cost nothing, there
are as many as one likes, any worker answers any of them, a request may be repeated, and a service that was restarted
goes on with the sessions of the one before. What ends with ``"error"`` in place of a turn has changed nothing.

It listens on this machine alone unless ``--host`` says otherwise, and then wants a key from its callers: the text in
the environment variable ``RL_AGENTS_WEBSHOP_KEY``, on both sides. Speak to it through TLS or a private network, as the
key travels in clear.
"""

from __future__ import annotations

import argparse
import hmac
import ipaddress
import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from rl_agents.envs.webshop.client import KEY_VARIABLE
from rl_agents.envs.webshop.pages import State
from rl_agents.envs.webshop.shop import LocalShop
from rl_agents.envs.webshop.store import GOAL_KINDS
from rl_agents.errors import InputError
from rl_agents.tools.strict_json import strict_json

MODULE = "rl_agents.envs.webshop.service"  # run as a program, this module is called __main__
CATALOGUE_VARIABLE = "RL_AGENTS_WEBSHOP_CATALOGUE"
MIN_KEY = 16
MAX_BODY = 64 * 1024
BACKLOG = 4096
KEEP_ALIVE_S = 600
DEFAULT_PORT = 8123

Handler = Callable[[Request], Awaitable[Any]]


class Refusal(Exception):
    """A request that is answered with an error status and one sentence."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


def make_app(shop: LocalShop, key: str = "") -> Starlette:
    """Return the ASGI application.

    Args:
        key: what callers must send as ``Authorization: Bearer KEY``; empty lets everybody in.
    """

    async def health(request: Request) -> dict[str, Any]:
        goals = {kind: shop.store.goal_count(kind) for kind in GOAL_KINDS}
        return {"catalogue": shop.catalogue, "products": shop.store.products, "goals": goals}

    async def tasks(request: Request) -> dict[str, Any]:
        split, goals = (request.query_params.get(name, "") for name in ("split", "goals"))
        return {"task_ids": shop.task_ids(split, goals)}

    async def reset(request: Request) -> dict[str, Any]:
        body = await _body(request, {"task_id": str})
        return shop.reset(body["task_id"]).to_json()

    async def step(request: Request) -> dict[str, Any]:
        body = await _body(request, {"task_id": str, "state": dict, "command": str})
        return shop.step(body["task_id"], State.from_json(body["state"]), body["command"]).to_json()

    return Starlette(
        routes=[
            Route("/health", _guarded(health, key), methods=["GET"]),
            Route("/tasks", _guarded(tasks, key), methods=["GET"]),
            Route("/reset", _guarded(reset, key), methods=["POST"]),
            Route("/step", _guarded(step, key), methods=["POST"]),
        ]
    )


def _guarded(handler: Handler, key: str) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            _check_key(request, key)
            return _answer(200, await handler(request))
        except Refusal as refusal:
            return _answer(refusal.status, {"error": refusal.reason})
        except (InputError, ValueError) as error:
            return _answer(400, {"error": str(error)})
        except ClientDisconnect:
            return _answer(400, {"error": "the request was cut short"})

    return endpoint


def _answer(status: int, content: dict[str, Any]) -> Response:
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Response(text.encode(), status, media_type="application/json")


def _check_key(request: Request, key: str) -> None:
    sent = request.headers.get("authorization", "")
    if key and not hmac.compare_digest(sent.encode("utf-8", "replace"), f"Bearer {key}".encode()):
        raise Refusal(401, f"the key of this service is needed: set {KEY_VARIABLE}")


async def _body(request: Request, fields: dict[str, type]) -> dict[str, Any]:
    """Read a JSON object with exactly these fields.

    Raises:
        Refusal: it is too long.
        ValueError: it is something else.
    """
    received = b""
    async for chunk in request.stream():
        received += chunk
        if len(received) > MAX_BODY:
            raise Refusal(413, f"a request has at most {MAX_BODY} bytes")
    try:
        data = strict_json(received.decode())
    except UnicodeDecodeError:
        raise ValueError("the request is not UTF-8") from None
    if not isinstance(data, dict) or {k: type(v) for k, v in data.items()} != fields:
        wanted = ", ".join(f"{name} ({kind.__name__})" for name, kind in fields.items())
        raise ValueError(f"the request must be a JSON object with exactly: {wanted}")
    return data


def check_host(host: str, key: str) -> None:
    """Raise `InputError` when other machines could reach ``host`` and no good key is set."""
    try:
        own = ipaddress.ip_address(host).is_loopback
    except ValueError:
        own = host == "localhost"
    if not own and len(key) < MIN_KEY:
        raise InputError(
            f"--host {host}: other machines could reach this; set {KEY_VARIABLE} to a key of at least "
            f"{MIN_KEY} characters, here and where the environments run"
        )


def app_from_environment() -> Starlette:
    """Return the application that the environment variables describe; each worker process calls this."""
    return make_app(LocalShop(os.environ[CATALOGUE_VARIABLE]), os.environ.get(KEY_VARIABLE, ""))


def main() -> None:
    """Serve until stopped."""
    import uvicorn

    parser = argparse.ArgumentParser(description="Serve a WebShop store over HTTP.")
    parser.add_argument("--catalogue", default="generated", help="as the key env.catalogue")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT)
    parser.add_argument("--workers", type=int, default=1, help="processes that answer requests")
    arguments = parser.parse_args()
    try:
        check_host(arguments.host, os.environ.get(KEY_VARIABLE, ""))
        LocalShop(arguments.catalogue)  # builds the store once, before several workers want it
    except InputError as error:
        parser.exit(2, f"error: {error}\n")
    os.environ[CATALOGUE_VARIABLE] = arguments.catalogue
    uvicorn.run(
        f"{MODULE}:app_from_environment",
        factory=True,
        host=arguments.host,
        port=arguments.port,
        workers=arguments.workers,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        access_log=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
