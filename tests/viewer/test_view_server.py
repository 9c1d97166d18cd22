"""Access control: this machine under its own name, or a token; never another site's page."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from viewer.made_run import write_run

from rl_agents.viewer.runs import find_runs
from rl_agents.viewer.server import make_app

TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_run(tmp_path_factory.mktemp("runs") / "run", iterations=1))


def call(
    app: Any, path: str, method: str = "GET", client: str = "127.0.0.1", host: str = "127.0.0.1:8200",
    data: Any = None, **headers: str,
) -> httpx.Response:  # fmt: skip
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=(client, 5))
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as http:
            return await http.request(method, path, headers=names, json=data)

    return asyncio.run(send())


def test_the_page_and_its_files(folder):
    app = make_app(find_runs([folder]))
    page = call(app, "/")
    assert page.status_code == 200 and "<script src=" in page.text
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    for part in page.text.split('"'):
        if part.startswith("static/"):
            assert call(app, f"/{part}").status_code == 200, part
    for path in ("/static/index.html", "/static/..%2fserver.py", "/static/../server.py", "/nothing", "/static/"):
        assert call(app, path).status_code == 404, path


def test_answers_are_json_of_ascii_and_never_kept(folder):
    found = call(make_app(find_runs([folder])), "/api/episode?run=run&session=i0.g0.m0")
    assert found.status_code == 200 and found.content.isascii() and found.headers["cache-control"] == "no-store"
    assert found.headers["content-type"] == "application/json" and found.headers["x-content-type-options"] == "nosniff"
    refused = call(make_app(find_runs([folder])), "/api/episode?run=nobody&session=x")
    assert refused.status_code == 404 and "unknown run 'nobody'" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({}, 200),
        ({"host": "localhost:8200"}, 200),
        ({"host": "[::1]:8200"}, 200),
        ({"host": "localhost.evil.example"}, 403),
        ({"host": "evil.example"}, 403),  # a name that was made to lead here
        ({"client": "10.0.0.7"}, 403),
        ({"origin": "http://127.0.0.1:8200"}, 200),
        ({"origin": "http://127.0.0.1:9999"}, 403),  # another server on this machine
        ({"origin": "null"}, 403),
        ({"sec_fetch_site": "same-origin"}, 200),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
    ],
)
def test_who_is_answered(folder, asked, status):
    assert call(make_app(find_runs([folder])), "/api/runs", **asked).status_code == status


def test_with_a_token_it_is_asked_for_everywhere(folder):
    app = make_app(find_runs([folder]), TOKEN)
    elsewhere = {"client": "10.0.0.7", "host": "machine.example:8200"}
    assert call(app, "/api/runs").status_code == call(app, "/api/runs", **elsewhere).status_code == 401
    assert call(app, "/api/runs", **elsewhere, authorization=f"Bearer {TOKEN}").status_code == 200
    assert call(app, "/api/runs", **elsewhere, authorization="Bearer wrong").status_code == 401
    assert call(app, "/", **elsewhere).status_code == 200  # the page itself holds nothing


def test_the_server_only_answers_questions(folder):
    app = make_app(find_runs([folder]))
    assert call(app, "/api/runs", "POST", data={}).status_code == 405
    assert call(app, "/api/runs", "POST", data={"why": "x" * 200_000}).status_code == 413


def test_a_pool_that_is_damaged_is_one_sentence(tmp_path):
    folder = write_run(tmp_path / "run", iterations=1)
    app = make_app(find_runs([str(folder)]))
    (folder / "pool.sqlite").write_bytes(b"SQLite format 3\0" + b"\1" * 5000)
    (folder / "pool.sqlite-wal").unlink(missing_ok=True)
    found = call(app, "/api/groups?run=run&iteration=0")
    assert found.status_code in (409, 503) and "pool" in json.loads(found.text)["error"]["message"]
