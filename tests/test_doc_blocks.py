"""Code blocks of the documentation: Python compiles and its imports from here exist; JSON and YAML parse."""

import ast
import importlib.util
import json
import re
import textwrap
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "AGENTS.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
#: Shown, not checked here.
UNCHECKED = {"bash", "sh", "text", "toml", "console"}
PACKAGES = ("rl_agents", "benchmarks", "clusters")


def blocks_in(text: str) -> list[tuple[int, str, str]]:
    """(line, language, code) of each fenced block with a language."""
    found = BLOCK.finditer(text)
    return [(text.count("\n", 0, b.start()) + 1, b[2], textwrap.dedent(b[3])) for b in found]


def is_there(module: str, name: str) -> bool:
    """Whether `from module import name` names a module or a name in the module's source, which is not run."""
    try:
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            return False
        if not name or (spec.submodule_search_locations and importlib.util.find_spec(f"{module}.{name}")):
            return True
    except ModuleNotFoundError:
        return False
    return re.search(rf"\b{re.escape(name)}\b", Path(spec.origin).read_text(encoding="utf-8")) is not None


def missing_imports(code: str) -> list[str]:
    wanted: list[tuple[str, str]] = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            wanted += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            wanted += [(node.module, alias.name) for alias in node.names]
    ours = [(module, name) for module, name in wanted if module.split(".")[0] in PACKAGES]
    return [f"{module}: {name}" for module, name in ours if not is_there(module, name)]


def problem_of(language: str, code: str) -> str:
    """Return a block's error, or an empty text."""
    try:
        if language == "python":
            return "; ".join(missing_imports(code))
        if language == "json":
            json.loads(code)
        elif language == "yaml":
            list(yaml.safe_load_all(code))
        elif language not in UNCHECKED:
            return f"a language that no check knows: {language}"
    except (SyntaxError, ValueError, yaml.YAMLError) as error:
        return str(error)
    return ""


def test_blocks_parse_and_import_what_exists() -> None:
    found = [
        f"{page.relative_to(ROOT)}:{line}: {problem}"
        for page in PAGES
        for line, language, code in blocks_in(page.read_text(encoding="utf-8"))
        if (problem := problem_of(language, code))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", "def f(:"),
        ("python", "from rl_agents import NoSuchName"),
        ("python", "import rl_agents.no_such"),
        ("json", "{a: 1}"),
        ("yaml", "a: [1"),
        ("cobol", ""),
    ],
)
def test_a_wrong_block_is_found(language: str, code: str) -> None:
    assert problem_of(language, code)
    assert [b[1] for b in blocks_in(f"text\n```{language}\n{code}\n```\n")] == [language]
