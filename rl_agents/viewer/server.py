"""The pages over HTTP, for this machine or with a token, and never for pages of other origins."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rl_agents.viewer.answers import answer
from rl_agents.viewer.runs import Catalog
from rl_agents.web.errors import ApiError, handlers
from rl_agents.web.security import Guard, Keys, digest

logger = logging.getLogger("rl_agents.viewer")

STATIC = Path(__file__).parent / "static"
#: The page's scripts in order, which the server sends as one file, because twenty requests are slow.
SCRIPTS, ALL = re.compile(r'<script src="static/(\w+\.js)" defer></script>\n'), "all.js"
KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
MAX_BODY_BYTES = 100_000
#: Concurrent answers.
THREADS = 4
#: Only scripts from our own files; no inline scripts, frames or form targets.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def make_app(catalog: Catalog, token: str = "") -> Any:
    """Build the ASGI application.

    Args:
        token: required as ``Authorization: Bearer``; empty: none, and only this machine is answered.
    """
    page, files = pages()
    limiter = CapacityLimiter(THREADS)

    async def show(_: Request) -> Response:
        return Response(page, media_type="text/html", headers=HEADERS)

    async def send(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in files:
            raise HTTPException(404, "no such file")
        return Response(files[name], media_type=KINDS[Path(name).suffix], headers=HEADERS)

    async def ask(request: Request) -> Response:
        _check_origin(request)
        view, values = request.path_params["view"], dict(request.query_params)
        body = await to_thread.run_sync(lambda: answer(catalog, view, values), limiter=limiter)
        return Response(body, media_type="application/json", headers=HEADERS)

    routes = [Route("/", show), Route("/static/{name}", send), Route("/api/{view}", ask)]
    app = Starlette(routes=routes, exception_handlers=handlers(logger, "terminal", _written, HEADERS))
    keys = Keys(api=digest(token)) if token else Keys()
    return Guard(app, keys, MAX_BODY_BYTES, write=_written)


def _written(error: ApiError, *_: object) -> dict[str, Any]:
    return error.body()


def pages() -> tuple[str, dict[str, bytes]]:
    """Return the page, and its files by name, with all scripts in one."""
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    names = SCRIPTS.findall(page)
    files = {
        file.name: file.read_bytes() for file in STATIC.iterdir() if file.suffix in KINDS and file.name not in names
    }
    files[ALL] = b"".join((STATIC / name).read_bytes() for name in names)
    return SCRIPTS.sub("", page).replace("<!--export-->", f'<script src="static/{ALL}" defer></script>'), files


def _check_origin(request: Request) -> None:
    """Refuse requests of other pages, including those of other servers on this machine. Raises `ApiError`: 403."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "none")
    own = {f"{scheme}://{request.headers.get('host', '')}" for scheme in ("http", "https")}
    if (origin is not None and origin not in own) or site not in ("none", "same-origin"):
        raise ApiError(403, "only the viewer's own page may make requests", "other_origin")
