"""The key tables of environments' pages are the declarations; ``python tests/envs/test_key_tables.py`` writes them."""

import re
import typing
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import pytest

from rl_agents.config.options import Key, Need, keys_of, plain_text
from rl_agents.envs.base import ENVIRONMENTS, EnvSpec, env_spec
from rl_agents.envs.options import AgentKeys, JudgeKeys, PlayerKey, PromptKey

DOCS = Path(__file__).parents[2] / "docs"
TABLE = re.compile(r"\| key \| default \| values \| meaning \|\n(?:\|.*\n)*")


#: Keys that several environments have stand below those of one alone.
SHARED = {name for keys in (AgentKeys, PlayerKey, PromptKey, JudgeKeys) for name in keys_of(keys)}


def key_table(spec: EnvSpec) -> str:
    lines = ["| key | default | values | meaning |", "|---|---|---|---|"]
    for key in sorted(keys_of(spec.options).values(), key=lambda key: key.name in SHARED):
        default = plain_text(key.default if key.kind in (int, float, bool) else key.default or "")
        needs = "".join(f"; only with `env.{condition(need)}`" for need in key.needs)
        lines.append(f"| `env.{key.name}` | {default} | {values_text(key)} | {key.help}{needs} |")
    lines.append(f"| `max_turns` | {spec.max_turns} | | turn limit of the run, which is the environment's |")
    return "\n".join(lines) + "\n"


def condition(need: Need) -> str:
    relation = ("!=" if need.other else "=") if need.values else ""
    return f"{' or '.join(need.names)}{relation}{'` or `'.join(map(plain_text, need.values))}"


def values_text(key: Key) -> str:
    if typing.get_origin(key.kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in typing.get_args(key.kind))
    if key.bounds.keys() == {"ge", "le"} and key.also is None:
        return f"{plain_text(key.bounds['ge'])} to {plain_text(key.bounds['le'])}"
    return key.range


#: Environment -> spec; one of gymnasium's has keys of its own, and those of the adapter.
SPECS = {
    **{name: spec for name, spec in ENVIRONMENTS.items() if spec.module.startswith("rl_agents.")},  # not those of tests
    "gymnasium": env_spec("gymnasium:Taxi-v3"),
    "class": env_spec("class:docs/examples/class/dial.py:Dial"),
}
#: Of packages that may be absent.
SPECS |= {
    package: env_spec(name)
    for package, name in {"reasoning_gym": "reasoning_gym:chain_sum", "textarena": "textarena:TicTacToe-v0"}.items()
    if find_spec(package)
}
#: Environments whose page has several, each below a heading with its name.
SHARED_PAGES = {
    **dict.fromkeys(
        ("guess_numbers", "circuit_decoding", "situation_puzzles", "preference_estimation", "movie_recommendation"),
        "active_reasoning",
    ),
    **dict.fromkeys(("multihop_qa", "paper_search", "long_form_qa"), "question_answering"),
}


def page_of(name: str) -> Path:
    if name == "pivot":  # the environment of one algorithm
        return DOCS / "algorithms" / "pivotrl.md"
    return DOCS / "environments" / f"{SHARED_PAGES.get(name, name)}.md"


def section_of(page: str, name: str) -> int:
    """Where the environment's part of its page begins."""
    return page.index(f"\n## {name}\n") if name in SHARED_PAGES else 0


@pytest.mark.parametrize("name", SPECS)
def test_the_page_has_the_declared_keys(name: str) -> None:
    page = page_of(name).read_text(encoding="utf-8")
    found = TABLE.search(page, section_of(page, name))
    assert found and found[0] == key_table(SPECS[name]), f"run python {__file__}"


def write() -> None:
    for name, spec in SPECS.items():
        page = page_of(name).read_text(encoding="utf-8")
        begin = section_of(page, name)
        page_of(name).write_text(page[:begin] + TABLE.sub(key_table(spec), page[begin:], count=1), encoding="utf-8")


if __name__ == "__main__":
    write()
