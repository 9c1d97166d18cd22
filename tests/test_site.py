"""The documentation builds as a site: strictly, with its reference, and without requests to other servers."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: Resources that pages load; ordinary links are not included.
LOADED = re.compile(r"<(?:script|img|link|iframe)[^>]+(?:src|href)=\"(https?:[^\"]+)\"")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="needs the extra `docs`")
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)], cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
        timeout=1200,  # a hang; a busy machine needs minutes
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md") if "examples" not in page.parts]
    missing = [page for page in pages if page.name != "README.md" and not (site / page.with_suffix(".html")).is_file()]
    assert not missing


def test_the_reference_is_generated(site: Path) -> None:
    def text(page: str) -> str:
        return (site / "reference" / f"{page}.html").read_text(encoding="utf-8")

    assert "max_response_tokens" in text("keys") and "tasks_per_iteration" in text("keys")
    assert "--resume" in text("commands") and "--checkpoint" in text("commands")
    assert "statistics, returns and GAE, groups, and chain values" in text("advantages")
    assert "effective_share" in text("losses")


def test_pictures_and_pages_from_outside_docs_are_found(site: Path) -> None:
    assert (site / "results" / "real_methods.png").is_file()
    assert 'src="../results/real_methods.png"' in (site / "research" / "benchmarks.html").read_text(encoding="utf-8")
    assert 'href="project/CHANGELOG.html"' in (site / "index.html").read_text(encoding="utf-8")


def test_frameworks_are_tabs(site: Path) -> None:
    page = (site / "how-to" / "train-existing-agents.html").read_text(encoding="utf-8")
    tabs = re.findall(r"<label for=\"[^\"]+\">([^<]+)</label>", page)
    assert {"OpenAI client", "LangGraph", "Haystack"} <= set(tabs) and "&lt;!-- tabs" not in page


def test_nothing_is_loaded_from_other_servers(site: Path) -> None:
    found = {url for page in site.rglob("*.html") for url in LOADED.findall(page.read_text(encoding="utf-8"))}
    assert not found


def test_the_home_page_links_to_a_recorded_run() -> None:
    pytest.importorskip("mkdocs", reason="needs the extra `docs`")
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "_site" / "hooks.py")
    assert spec and spec.loader
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    page = hooks.with_recorded_run((ROOT / "docs" / "README.md").read_text(encoding="utf-8"))
    assert page.count('<a href="recorded-run/index.html">') == 2 and "<!-- run -->" not in page
