"""The model card of a checkpoint: base model, training, settings and success."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rl_agents.config import Settings
from rl_agents.data.hub import CARD, card_header
from rl_agents.errors import InputError
from rl_agents.inference.hub import find_folder
from rl_agents.installation import called
from rl_agents.reporting.run_folder import Record, RunFolder
from rl_agents.reporting.trackers import shown_config

#: Keys of the installation, not of the method.
LEFT_OUT = {"trackers", "tracker_project", "plugins", "num_env_runners", "num_engines", "num_learners"}


@dataclass(frozen=True)
class CardOf:
    """A checkpoint of a run.

    Attributes:
        records: of the run, see `RunFolder.read_metrics`.
        chosen: keys that differ from the defaults, without secrets.
        build: version and commit of the run.
        adapter: publish only peft's adapter.
        license: license fields of the card (`license_of`); empty: none.
    """

    folder: RunFolder
    iteration: int
    records: Sequence[Record]
    chosen: dict[str, Any]
    build: dict[str, Any]
    adapter: bool
    license: Mapping[str, str]


def card_of(folder: RunFolder, iteration: int, adapter: bool, license: Mapping[str, str]) -> CardOf:
    """Return the data of a checkpoint's card from the run's folder."""
    settings = folder.load_settings()
    defaults = type(settings)().to_dict()
    chosen = {k: v for k, v in published_config(settings).items() if v != defaults.get(k) and k not in LEFT_OUT}
    builds = folder.read_builds()
    return CardOf(folder, iteration, folder.read_metrics(), chosen, builds[-1] if builds else {}, adapter, license)


def published_config(settings: Settings) -> dict[str, Any]:
    """Return the settings of a run for publication: no secrets, and only the folder name of a local model."""
    shown = shown_config(settings.to_dict())
    model = str(shown.get("model", "starter"))
    return {**shown, "model": model if is_public(model) else Path(model).name}


def model_card(card: CardOf, name: str) -> str:
    """Return README.md: metadata of the Hub, numbers, keys."""
    base = str(card.chosen.get("model", "starter"))
    algo, env = card.chosen.get("algo", "grpo"), card.chosen.get("env", "guess_numbers")
    front = {
        "library_name": "peft" if card.adapter else "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["reinforcement-learning", "agent", "rl_agents", algo, *(["lora"] if card.adapter else [])],
        **({"base_model": base.partition("@")[0]} if is_public(base) else {}),
        **({"base_model_relation": "adapter"} if card.adapter and is_public(base) else {}),
        **card.license,
    }
    picture = "\n![success over iterations](success.png)" if card.folder.plot_file.is_file() else ""
    tokens = sum(record.get("rollout/response_tokens") or 0 for record in _until(card))
    version = f"{card.build.get('version', '?')}, commit {str(card.build.get('commit', '?'))[:12]}"
    return f"""---
{yaml.safe_dump(front, sort_keys=False).strip()}
---

# {name}

An agent trained with rl_agents ({version}): `{algo}` on `{env}`,
{card.iteration} iterations, {tokens / 1000:,.0f} k sampled tokens, from {_from(base)}.

{_figures(card)}
{picture}

Keys that were set; the others are defaults (`config.yaml` has all of them):

```yaml
{yaml.safe_dump(card.chosen, sort_keys=False, allow_unicode=True).strip()}
```

{_use(card, base, str(env))}
"""


def _use(card: CardOf, base: str, env: str) -> str:
    again = f"    {called()} --config config.yaml --model BASE"
    if not card.adapter:
        return f"{again}\n    {called()} eval --model . --env {env}"
    named = base.partition("@")[0] if is_public(base) else "BASE"
    return f"""{again}
    vllm serve BASE --enable-lora --lora-modules NAME=.

This is a LoRA adapter (peft): it needs its base model, {_from(base)}.

```python
from peft import PeftModel
from transformers import AutoModelForCausalLM

model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("{named}"), ".")
```"""


def is_public(model: str) -> bool:
    """Return whether a model's name is one of the Hub, not a folder."""
    return model.count("/") == 1 and not Path(model).exists() and not model.startswith((".", "/"))


def _from(base: str) -> str:
    if base == "starter":
        return "the environment's warm-start model"
    return f"`{base}`" if is_public(base) else "a model in a local folder"


def _until(card: CardOf) -> list[Record]:
    return [record for record in card.records if record["iteration"] <= card.iteration]


def _figures(card: CardOf) -> str:
    rows = [record for record in _until(card) if record.get("eval/success_rate") is not None]
    if not rows:
        return "It was not evaluated."
    lines = ["| iteration | success on the test tasks | 95 % interval | episodes |", "|---|---|---|---|"]
    for record in rows if len(rows) < 3 else (rows[0], rows[-1]):
        low, high = record.get("eval/success_low"), record.get("eval/success_high")
        interval = f"[{low:.2f}, {high:.2f}]" if low is not None and high is not None else "-"
        episodes = f"{record['eval/episodes']:.0f}" if record.get("eval/episodes") else "-"
        lines.append(f"| {record['iteration']} | {record['eval/success_rate']:.3f} | {interval} | {episodes} |")
    return "\n".join(lines)


#: License fields of a model card.
LICENSE_FIELDS = ("license", "license_name", "license_link")


def check_license(name: str) -> str:
    """Return a license identifier of the Hub: ``apache-2.0``, ``mit``, ``other``.

    Raises:
        InputError: it is invalid.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", name.lower()):
        raise InputError(f"--license {name}: an identifier of the Hub's, such as apache-2.0, mit or other")
    return name.lower()


def license_of(model: str) -> dict[str, str]:
    """Return the license fields of a base model's card, else of its config.json; empty if there are none.

    Args:
        model: a folder, or the name of a public model in the cache.
    """
    folder = find_folder(model)
    if folder is None:
        return {}
    said = _read_fields(folder / CARD, card_header)
    if "license" not in said:
        said = _read_fields(folder / "config.json", json.loads)
    fields = {name: said[name] for name in LICENSE_FIELDS if isinstance(said.get(name), str) and said[name]}
    return fields if "license" in fields else {}


def _read_fields(path: Path, parse: Callable[[str], Any]) -> dict[str, Any]:
    try:
        fields = parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return fields if isinstance(fields, dict) else {}
