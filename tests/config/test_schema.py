"""The JSON schema of recipes says what the program says: all recipes pass, what is refused fails."""

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from rl_agents.algorithms import KEYS, Settings
from rl_agents.cli.listing import schema
from rl_agents.config.loading import preset_files
from rl_agents.errors import InputError
from rl_agents.trainer.resolve import resolve

SCHEMA = schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


FLOAT, BOOL = "tag:yaml.org,2002:float", "tag:yaml.org,2002:bool"


class Editor(yaml.SafeLoader):
    """YAML 1.2, as editors read it: 1e-4 is a number, and `on` a text."""


Editor.yaml_implicit_resolvers = {
    first: [
        (tag, pattern) for tag, pattern in found if tag not in ("tag:yaml.org,2002:float", "tag:yaml.org,2002:bool")
    ]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Editor.add_implicit_resolver(BOOL, re.compile("(true|false)$"), list("tf"))
NUMBER = re.compile(r"[-+]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?$")
Editor.add_implicit_resolver(FLOAT, NUMBER, list("-+.0123456789"))


def problems(keys: Any) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(keys)]


def test_it_is_a_schema() -> None:
    VALIDATOR.check_schema(SCHEMA)
    assert set(SCHEMA["properties"]) == set(KEYS)
    assert all(len(entry["description"]) > 5 and "default" in entry for entry in SCHEMA["properties"].values())
    assert SCHEMA["properties"]["lora_alpha"]["description"].endswith(" Needs lora_rank.")


@pytest.mark.parametrize("file", preset_files().values(), ids=lambda file: file.stem)
def test_every_recipe_passes(file: Path) -> None:
    assert problems(yaml.load(file.read_text(encoding="utf-8"), Editor)) == []


def test_all_defaults_pass() -> None:
    assert problems(Settings().to_dict()) == []


REFUSED = [
    {"algo": "grop"}, {"env": "gues_numbers"}, {"lr": "fast"}, {"group_size": 0}, {"group_size": 2.5}, {"top_p": 1.5},
    {"truncation": "t4"}, {"seed": -1}, {"sequence_packing": 2}, {"groupsize": 4},
    {"env": "alfworld", "env.x": 1}, {"env": "guess_numbers", "env.prompt": "short"}, {"betas": 0.9},
]  # fmt: skip


@pytest.mark.parametrize("keys", REFUSED, ids=str)
def test_it_refuses_what_a_run_refuses(keys: dict[str, Any]) -> None:
    assert problems(keys)
    with pytest.raises(InputError):
        resolve(Settings.from_dict(keys))


def test_names_of_ones_own_are_let_through() -> None:
    assert problems({"env": "gymnasium:lock:Lock", "env.anything": 3}) == []
    assert problems({"env": "alfworld", "env.prompt": "compact", "lr": 1e-4}) == []
