"""The layers of the code base: imports go down, never up, and never in a circle."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
#: From the bottom up: a layer may import the layers below it. The package itself is the top.
FLOORS = (
    "version", "errors", "startup", "installation", "interrupts", "queues", "time_limits", "background",
    "cache", "durable", "plugins", "config", "tools", "chat", "web", "advantages", "data", "store", "losses",
    "retrieval", "traces", "rewards", "inference", "resources", "gateway", "envs", "rollout", "algorithms",
    "reporting", "learner", "orchestrator", "trainer", "pivot", "tuning", "viewer", "serving", "cli",
    "__main__", "",
)  # fmt: skip
#: Libraries that take long to import: what needs them may be imported late.
HEAVY = {"torch", "vllm", "ray", "transformers", "tokenizers", "matplotlib", "pyarrow", "sentence_transformers", "peft"}


class Import(NamedTuple):
    source: str
    target: str
    late: bool
    line: int


def modules() -> dict[str, Path]:
    paths = {path.relative_to(ROOT).with_suffix(""): path for path in (ROOT / "rl_agents").rglob("*.py")}
    return {".".join(name.parts).removesuffix(".__init__"): path for name, path in paths.items()}


MODULES = modules()


def found_in(node: ast.AST, late: bool = False) -> Iterator[tuple[str, bool, int]]:
    """(imported name, inside a function, line) of everything below a node; names for type checkers count."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((alias.name, late, child.lineno) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from ((f"{child.module}.{alias.name}", late, child.lineno) for alias in child.names)
        yield from found_in(child, late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


def module_of(name: str) -> str:
    while name not in MODULES:
        name = name.rpartition(".")[0]
    return name


TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}
IMPORTS = [
    Import(name, module_of(target), late, line)
    for name, tree in TREES.items()
    for target, late, line in found_in(tree)
    if target.startswith("rl_agents")
]


def floor(module: str) -> str:
    return (*module.split("."), "")[1]


def test_every_room_has_a_floor():
    assert {floor(name) for name in MODULES} == set(FLOORS)


def test_imports_go_down():
    height = {name: number for number, name in enumerate(FLOORS)}
    upward = [i for i in IMPORTS if height[floor(i.target)] > height[floor(i.source)]]
    assert not upward, "\n".join(f"{i.source}:{i.line} imports {i.target}" for i in upward)


#: A way of training and no family: the rollout runs its agents.
SHARED = {"blackbox"}


def family(module: str) -> str:
    """The folder of environments that a module belongs to; empty for all other modules."""
    parts = module.split(".")
    folder = len(parts) > 2 and parts[:2] == ["rl_agents", "envs"] and MODULES[".".join(parts[:3])].stem == "__init__"
    return parts[2] if folder and parts[2] not in SHARED else ""


def test_nothing_outside_a_family_of_environments_imports_it():
    assert {"alfworld", "textarena"} < {family(name) for name in MODULES}
    entered = [i for i in IMPORTS if family(i.target) not in ("", family(i.source))]
    assert not entered, "\n".join(f"{i.source}:{i.line} imports {i.target}" for i in entered)


def heavy_modules() -> set[str]:
    """Modules that import a heavy library as soon as they are imported, on their own or through others."""
    heavy = {
        name
        for name, tree in TREES.items()
        if any(target.split(".")[0] in HEAVY and not late for target, late, _ in found_in(tree))
    }
    while more := {i.source for i in IMPORTS if not i.late and i.target in heavy} - heavy:
        heavy |= more
    return heavy


def test_only_heavy_modules_are_imported_late():
    heavy = heavy_modules()
    needless = [i for i in IMPORTS if i.late and i.target not in heavy and i.source != "rl_agents"]
    assert not needless, "\n".join(f"{i.source}:{i.line} imports {i.target} late for nothing" for i in needless)


def test_no_module_imports_itself_through_others():
    arrows: dict[str, set[str]] = {}
    for i in IMPORTS:
        if i.source != i.target:
            arrows.setdefault(i.source, set()).add(i.target)
    reached = {name: reachable(name, arrows) for name in MODULES}
    circles = {(a, b) for a, targets in arrows.items() for b in targets if a in reached[b]}
    assert not circles, "in circles:\n" + "\n".join(f"{source} -> {target}" for source, target in sorted(circles))


def reachable(start: str, arrows: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        new = arrows.get(waiting.pop(), set()) - seen
        seen |= new
        waiting += new
    return seen


def test_no_file_is_longer_than_a_reader_keeps_in_mind() -> None:
    lengths = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in MODULES.items()}
    assert not {name: lines for name, lines in lengths.items() if lines > 800}
