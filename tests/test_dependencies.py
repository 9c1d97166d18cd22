"""Imported packages equal the declared dependencies."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Imported where the library is used that needs them itself, in versions of its choice.
BROUGHT = {
    "anyio": "mcp", "mcp_types": "mcp", "fastapi": "ray", "starlette": "ray", "uvicorn": "ray",
    "referencing": "jsonschema", "tokenizers": "transformers",
}  # fmt: skip


def imported() -> dict[str, str]:
    """Top-level modules of other projects, with a file that imports each."""
    found: dict[str, str] = {}
    for path in (ROOT / "rl_agents").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [str(node.module)]
            else:
                continue
            found.update({name.partition(".")[0]: str(path.relative_to(ROOT)) for name in names})
    return {name: path for name, path in found.items() if name not in {*sys.stdlib_module_names, "rl_agents"}}


def declared() -> set[str]:
    """Return the declared dependencies, without those for development."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for name, lines in extras.items() if name != "dev" for line in lines)]
    return {re.split(r"[^\w.-]", line)[0].lower() for line in lines}


def test_what_is_imported_is_declared() -> None:
    known, projects = declared(), packages_distributions()
    assert set(BROUGHT.values()) <= known
    missing = {
        name: path
        for name, path in imported().items()
        if name not in BROUGHT and not {each.lower() for each in projects.get(name, [name])} & known
    }
    assert not missing
