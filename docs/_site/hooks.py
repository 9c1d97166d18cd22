"""What mkdocs adds to the pages of docs/: generated reference, a recorded run, and files that pages link to."""

from __future__ import annotations

import importlib
import os
import posixpath
import re
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from rl_agents.algorithms import ALGORITHMS
from rl_agents.cli.listing import settings_keys
from rl_agents.cli.parser import COMMANDS
from rl_agents.config.options import plain_text

ROOT = Path(__file__).parents[2]
#: A run that `make docs` records and exports; the home page links to it where it exists.
RECORDED = ROOT / "runs" / "view-example" / "pages"
FIGURE = re.compile(r"<!-- run -->\n(<img[^>]*>)(.*?)<!-- end of run -->", re.DOTALL)
#: Pages outside docs/, under this folder of the site.
PROJECT = ("README.md", "AGENTS.md", "CONTRIBUTING.md", "CHANGELOG.md")
#: Sections between these marks are tabs on the site, and sections where a page is read as it is.
TABS = re.compile(r"<!-- tabs -->\n(.*?)<!-- end of tabs -->\n", re.DOTALL)
LINK = re.compile(r"(\]\(|src=\")((?:\.\./)+[^)\s\"#]+|docs/[^)\s\"#]+)")
CODE_LINK = re.compile(
    r"\[([^\]]+)\]\((?:\.\./)*(?:rl_agents|benchmarks|tests|clusters|tune_configs)/[^)]*\.(?:py|yaml)\)"
)
KEYS = """These are the keys of `--set` and of recipes, as `run.py list --keys` prints them. The keys of an
environment, `env.KEY`, are on its page. If only some algorithms read a key, they are in brackets. *needs* lists the
settings without which a key has no effect. Some algorithms have [their own defaults](#defaults-of-the-algorithms)."""
#: Page -> title and modules, whose docstrings it shows.
MODULES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "advantages": ("Advantages", ("advantages",)),
    "algorithms": (
        "Algorithms: one file per method",
        ("ppo", "grpo", "gigpo", "hgpo", "steppo", "vspo", "pivotrl", "three_spo", "chain_gae"),
    ),
    "python": ("Configuration and algorithm", ("algorithm",)),
    "losses": ("Losses", ("losses",)),
    "environments": ("Environments: the interface", ("spec",)),
}
#: Functions of `docs/examples/grpo_in_one_file.py`, and the records that they exchange.
LOOP = (
    "rl_agents.envs.base.make_env", "rl_agents.envs.base.task_ids", "rl_agents.data.tasks.training_specs",
    "rl_agents.data.tasks.evaluation_specs", "rl_agents.data.trajectory.EpisodeSpec",
    "rl_agents.chat.template.load_tokenizer", "rl_agents.chat.template.make_context",
    "rl_agents.inference.torch_engine.TorchEngine",
    "rl_agents.rollout.turns.Limits", "rl_agents.rollout.agent_loop.collect_episodes",
    "rl_agents.data.trajectory.Trajectory", "rl_agents.data.trajectory.Step", "rl_agents.data.samples.build_samples",
    "rl_agents.data.samples.Row", "rl_agents.inference.torch_model.load_causal_lm",
    "rl_agents.learner.batching.micro_batches", "rl_agents.learner.batching.collate",
    "rl_agents.learner.batching.pad_weights", "rl_agents.learner.logprobs.score_rows",
    "rl_agents.learner.hf.save_hf_folder",
)  # fmt: skip
PACKAGES = {
    "advantages": "rl_agents", "algorithms": "rl_agents.algorithms", "losses": "rl_agents",
    "environments": "rl_agents.envs", "python": "rl_agents.trainer",
}  # fmt: skip


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add generated pages, the project's own, and pictures of the results."""
    pages = {
        "reference/keys.md": keys_page(),
        "reference/commands.md": commands_page(),
        "reference/plugins.md": modules_page("Plugins", ["rl_agents.plugins"]),
        "reference/loop.md": modules_page("Pieces of the loop", LOOP),
        **{f"reference/{name}.md": modules_page(title, _existing(name)) for name, (title, _) in MODULES.items()},
        **{f"project/{name}": (ROOT / name).read_text(encoding="utf-8") for name in PROJECT},
        "_site.css": (ROOT / "docs" / "_site" / "style.css").read_text(encoding="utf-8"),
    }
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    for result in sorted((ROOT / "benchmarks" / "results").iterdir()):
        if result.suffix in (".md", ".png", ".json"):
            files.append(File.generated(config, f"results/{result.name}", content=result.read_bytes()))
    for page in sorted(RECORDED.rglob("*")):
        if page.is_file():
            path = f"recorded-run/{page.relative_to(RECORDED).as_posix()}"
            files.append(File.generated(config, path, content=page.read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links that leave docs/ to where the site has their targets; a source file's link becomes its name."""
    place = page.file.src_uri
    folder = "" if place.startswith("project/") else "docs"
    own_folder = posixpath.dirname(place.removeprefix("project/"))

    def moved(match: re.Match[str]) -> str:
        before, link = match.groups()
        target = posixpath.normpath(posixpath.join(folder, own_folder, link))
        return before + posixpath.relpath(in_site(target), posixpath.dirname(place) or ".")

    if place == "README.md" and (RECORDED / "index.html").is_file():
        markdown = with_recorded_run(markdown)
    return LINK.sub(moved, without_code_links(TABS.sub(as_tabs, markdown)))


def as_tabs(sections: re.Match[str]) -> str:
    """Write each section of a match of `TABS` as a tab with its title."""
    parts = re.split(r"^### (.+)\n", sections[1], flags=re.MULTILINE)[1:]
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return "\n".join(f'=== "{title}"\n\n{textwrap.indent(text.strip(), "    ")}\n' for title, text in pairs)


def with_recorded_run(markdown: str) -> str:
    """Make the picture of the home page a link to the recorded run."""
    link = '<a href="recorded-run/index.html">'
    return FIGURE.sub(rf"{link}\1</a>\2\n{link}Open a recorded run in the browser</a>\n", markdown)


def in_site(path: str) -> str:
    """Where the site has a file of the repository."""
    if path in PROJECT:
        return f"project/{path}"
    if path.startswith("benchmarks/results/"):
        return path.removeprefix("benchmarks/")
    return path.removeprefix("docs/")


def without_code_links(markdown: str) -> str:
    """Links to source files lose their targets, which the site does not have."""
    return CODE_LINK.sub(r"\1", markdown)


def keys_page() -> str:
    """All keys of `--set` and of recipes, by section."""
    lines = ["# Keys", "", KEYS, ""]
    section = ""
    for entry in settings_keys():
        if entry["section"] != section:
            section = entry["section"]
            lines += ["", f"## {section}", "", "| key | default | type | meaning |", "|---|---|---|---|"]
        cells = (f"`{entry['name']}`", f"`{entry['default']}`", _kind(entry), entry["summary"] + _readers(entry))
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join([*lines, "", "## Defaults of the algorithms", "", *algorithm_defaults()])


def algorithm_defaults() -> list[str]:
    """Keys whose default depends on the algorithm, as lines of a table."""
    lines = ["| algorithm | its own defaults |", "|---|---|"]
    for name, spec in ALGORITHMS.items():
        own = ", ".join(f"`{key}={plain_text(value)}`" for key, value in spec.defaults.items())
        lines.append(f"| {name} | {own or 'none'} |")
    return lines


def _kind(entry: Mapping[str, Any]) -> str:
    return f"{entry['type']}{', ' + entry['range'] if entry['range'] else ''}"


def _readers(entry: Mapping[str, Any]) -> str:
    readers = f" ({', '.join(entry['readers'])})" if entry["readers"] else ""
    return readers + (f"; needs {' and '.join(entry['needs'])}" if entry["needs"] else "")


def commands_page() -> str:
    """`--help` of every command."""
    os.environ.setdefault("COLUMNS", "110")
    parts = ["# Commands", "", "What `run.py COMMAND --help` prints; `train` is the default command.", ""]
    for name, (module, summary) in COMMANDS.items():
        parts += [f"## {name}", "", summary[0].upper() + summary[1:] + ".", ""]
        parser = getattr(importlib.import_module(module), "build_parser", None)
        if parser is not None:
            parts += ["```text", parser().format_help().rstrip(), "```", ""]
    return "\n".join(parts)


def modules_page(title: str, modules: Iterable[str]) -> str:
    """Docstrings of modules, by mkdocstrings."""
    return "\n\n".join([f"# {title}", *(f"::: {module}" for module in modules)])


def _existing(name: str) -> list[str]:
    folder = ROOT / PACKAGES[name].replace(".", "/")
    return [f"{PACKAGES[name]}.{module}" for module in MODULES[name][1] if (folder / f"{module}.py").is_file()]
