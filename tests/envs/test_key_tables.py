"""The key tables of docs/environments are the declarations; ``python tests/envs/test_key_tables.py`` writes them."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest

from rl_agents.config.options import option_types, plain_text, range_text
from rl_agents.envs.base import ENVIRONMENTS, EnvSpec, env_spec
from rl_agents.envs.options import JudgeKeys, PromptKey, RetrieverKeys

PAGES = Path(__file__).parents[2] / "docs" / "environments"
TABLE = re.compile(r"\| key \| default \| values \| meaning \|\n(?:\|.*\n)*")


#: Keys that several environments have stand below those of one alone.
SHARED = {name for keys in (PromptKey, RetrieverKeys, JudgeKeys) for name in option_types(keys)}


def key_table(spec: EnvSpec) -> str:
    lines = ["| key | default | values | meaning |", "|---|---|---|---|"]
    defaults, kinds = spec.options(), option_types(spec.options)
    for item in sorted(dataclasses.fields(spec.options), key=lambda item: item.name in SHARED):
        default = plain_text(getattr(defaults, item.name) or "") if kinds[item.name] is not bool else "false"
        default = plain_text(getattr(defaults, item.name)) if kinds[item.name] in (int, float) else default
        values = values_text(kinds[item.name], item.metadata)
        needs = "".join(f"; only with `env.{need}`" for need in item.metadata["needs"]).replace("|", "` or `")
        lines.append(f"| `env.{item.name}` | {default} | {values} | {item.metadata['help']}{needs} |")
    lines.append(f"| `max_turns` | {spec.max_turns} | | turn limit of the run, which is the environment's |")
    return "\n".join(lines) + "\n"


def values_text(kind: Any, bounds: Mapping[str, Any]) -> str:
    if typing.get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in typing.get_args(kind))
    if bounds["at_least"] is not None and bounds["at_most"] is not None and bounds["also"] is None:
        return f"{plain_text(bounds['at_least'])} to {plain_text(bounds['at_most'])}"
    return range_text(bounds)


#: Environment -> spec; one of gymnasium's has keys of its own, and those of the adapter.
SPECS = {**ENVIRONMENTS, "gymnasium": env_spec("gymnasium:Taxi-v3")}
#: Environments whose page has several, each below a heading with its name.
SHARED_PAGES = {
    **dict.fromkeys(
        ("guess_numbers", "circuit_decoding", "situation_puzzles", "preference_estimation", "movie_recommendation"),
        "active_reasoning",
    ),
    **dict.fromkeys(("multihop_qa", "paper_search", "long_form_qa"), "question_answering"),
}


def page_of(name: str) -> Path:
    return PAGES / f"{SHARED_PAGES.get(name, name)}.md"


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
