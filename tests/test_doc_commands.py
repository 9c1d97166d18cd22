"""Command lines in the documentation: their commands, flags, keys, recipes, targets and benchmarks exist."""

import dataclasses
import importlib
import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from rl_agents.algorithms import ALGORITHMS
from rl_agents.algorithms import KEYS as RUN_KEYS
from rl_agents.cli import _imports, _split
from rl_agents.cli.parser import COMMANDS, Parser
from rl_agents.config.aliases import ALIASES
from rl_agents.config.loading import preset_files
from rl_agents.config.options import keys_of
from rl_agents.envs.base import ENVIRONMENTS, env_spec
from rl_agents.envs.reasoning_gym import ReasoningOptions
from rl_agents.envs.textarena import GameOptions
from rl_agents.errors import InputError
from rl_agents.serving.options import ServingOptions

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "AGENTS.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINE = re.compile(r"^(?: {4}|\t)\s*(?P<indented>\S[^\n]*)$|^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELLS = {"", "bash", "sh", "console"}
#: A command in a cell of a table.
CELL = re.compile(r"^\|.*\| `(?P<cell>python run\.py [^`]+)` \|$", re.MULTILINE)
OURS = re.compile(r"(?:\S*/)?(?:run\.py|rl-agents)$")
TARGETS = set(re.findall(r"^([\w./-]+):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
KEYS = {*RUN_KEYS, *keys_of(ServingOptions), *ALIASES}
SPECS = [*ENVIRONMENTS.values(), env_spec("class:docs/examples/class/dial.py:Dial")]
OPTIONS = [*(spec.options for spec in SPECS), ReasoningOptions, GameOptions]
ENV_KEYS = {f"env.{name}" for options in OPTIONS if dataclasses.is_dataclass(options) for name in keys_of(options)}
#: Of the examples of plugins and pages.
OWN = re.compile(r"own[-_]|my_|gymnasium:")


def commands_in(text: str) -> list[str]:
    """Return the command lines of indented and fenced blocks and of tables; a backslash at the end joins two."""
    text = re.sub(r"\\\n\s*", "", text)
    found = [match["indented"] or (match[3] if match[2] in SHELLS else "") for match in LINE.finditer(text)]
    lines = [line.strip() for block in found for line in block.splitlines()]
    return lines + [match["cell"] for match in CELL.finditer(text)]


def problem_of(line: str) -> str:
    """Return a command line's error, or an empty text, also for commands of other programs."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # no shell: a sample of output
        return ""
    if "`" in line or re.search(r"run\.py  +\w", line) or any("..." in word or "…" in word for word in words):
        return ""
    words = words[: next((i for i, word in enumerate(words) if word in ("|", "&&", ">", "&", ";")), len(words))]
    words = [word for i, word in enumerate(words) if not re.fullmatch(r"\$\w+", word) or not i]
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):  # variables before the command
        words.pop(0)
    if not words:
        return ""
    if words[0] == "make":
        wrong = [word for word in words[1:] if "=" not in word and word not in TARGETS]
        return f"no such target: {wrong}" if wrong else ""
    if "-m" in words and (module := words[words.index("-m") + 1]).startswith("benchmarks."):
        return "" if importlib.util.find_spec(module) else f"no such module: {module}"
    place = next((i for i, word in enumerate(words[:6]) if OURS.fullmatch(word)), None)
    if place is None or (place and not re.search(r"python[\d.]*$|^--$|^rl-agents$", words[place - 1])):
        return ""
    try:
        return problem_of_call(words[place + 1 :])
    except InputError as error:
        return str(error)
    except SystemExit:  # --help, --version
        return ""


def problem_of_call(argv: list[str]) -> str:
    """Of the arguments of ``run.py``."""
    command, rest = _split(_without_plugins(argv))
    module = importlib.import_module(COMMANDS[command][0])
    parser = getattr(module, "build_parser", None)
    if parser is None:
        return ""
    built = parser()
    if not isinstance(built, Parser):
        return ""
    given = built.parse_known_intermixed_args(rest)
    if wrong := [word for word in given[1] if word.startswith("--")]:
        return f"unknown flag {wrong[0]}"
    args = vars(given[0])
    wrong = [item for item in args.get("set") or [] if not _is_key(item.partition("=")[0])]
    if wrong:
        return f"unknown key in --set {wrong[0]}"
    if (name := args.get("algo")) and name not in ALGORITHMS and not OWN.match(name) and name.lower() == name:
        return f"unknown algorithm {name}"
    config = args.get("config")
    if isinstance(config, str | Path) and str(config).lower() == str(config) and not _is_preset(str(config)):
        return f"no such recipe: {config}"
    return ""


def _without_plugins(argv: list[str]) -> list[str]:
    """The plugins' modules are not importable here, so only the flag's spelling is checked."""
    words = [word for i, word in enumerate(argv) if word != "--import" and (not i or argv[i - 1] != "--import")]
    _imports(words)
    return words


def _is_key(name: str) -> bool:
    return name in KEYS or name in ENV_KEYS or bool(OWN.match(name)) or name.upper() == name


def _is_preset(name: str) -> bool:
    known = {**preset_files("recipes"), **preset_files("sweeps")}
    return name in known or (ROOT / name).exists() or bool(OWN.match(Path(name).name)) or name.startswith("runs/")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_command_line_names_exists(page: Path) -> None:
    found = [(line, problem) for line in commands_in(page.read_text(encoding="utf-8")) if (problem := problem_of(line))]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "python run.py --algos grpo", "run.py evl --checkpoint DIR", "python run.py --set learning_rates=3",
        "python run.py --config no_such_recipe", "make demos", "python -m benchmarks.nothing", "rl-agents --algo grop",
    ],
)  # fmt: skip
def test_a_wrong_line_is_found(line: str) -> None:
    assert problem_of(line)
    assert commands_in(f"Text:\n\n    {line} \\\n        --x\n") == [f"{line} --x"]
