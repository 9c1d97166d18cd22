"""What a model's folder says about runs with it: its note (`MODEL_NOTE`), and its size."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_agents.config import Settings
from rl_agents.durable import read_json
from rl_agents.envs.base import base_environment, borrowed, starter_defaults
from rl_agents.inference.hub import find_folder
from rl_agents.inference.model_shape import ModelShape, model_shape, read_config
from rl_agents.trainer.lengths import KEYS

#: File of a model that was trained from a warm-start model: its environment and settings.
MODEL_NOTE = "rl_agents.json"
#: Keys that name code or programs, their rights, or folders with programs. A model's folder never sets them.
PROGRAMS = {"plugins"} | {
    f"env.{name}"
    for name in (
        "agent", "agent_command", "agent_python", "build", "eval_opponent", "id", "network", "opponent", "path",
        "player", "rewards", "sandbox", "servers",
    )
}  # fmt: skip
#: Parameters from which a model counts as pretrained, and from which it needs lower learning rates.
PRETRAINED, LARGE = 100_000_000, 1_000_000_000
#: Default learning rates of pretrained models; other models have the key's default.
USUAL_LR, USUAL_LARGE_LR, USUAL_LORA_LR = 2e-5, 1e-6, 1e-4


def usual_rates(settings: Settings, shape: ModelShape | None) -> dict[str, float]:
    """Return the default learning rates of a pretrained model; empty for small models."""
    if shape is None or shape.parameters < PRETRAINED:
        return {}
    full = USUAL_LARGE_LR if shape.parameters >= LARGE else USUAL_LR
    return {"lr": USUAL_LORA_LR if settings.lora_rank else full, "critic_lr": 10 * full}


def shape_of(model: str) -> ModelShape | None:
    """Return the size of a model; None if its folder is not here, or does not say, or for a warm-start model."""
    folder = None if model == "starter" else find_folder(model)
    return model_shape(read_config(folder)) if folder and (folder / "config.json").is_file() else None


def model_defaults(settings: Settings) -> Mapping[str, Any]:
    """Return the settings that the model was made for, and those that are usual for its size."""
    return {**_made_for(settings), **usual_rates(settings, shape_of(settings.model))}


def _made_for(settings: Settings) -> Mapping[str, Any]:
    """Return the settings of a warm-start model, or of one that was trained from it.

    For another environment, these are the learning rates, which depend on the weights.
    """
    if settings.model == "starter":
        return starter_defaults(settings.env, settings.env_options)
    made_for = model_note(settings.model, settings.env)
    if not made_for or made_for["env"] == settings.env:
        return made_for.get("settings", {})
    if made_for["env"] == base_environment(settings.env, settings.env_options):
        return borrowed(made_for["settings"])
    return {name: rate for name, rate in made_for["settings"].items() if name in ("lr", "critic_lr")}


def model_note(model: str | Path, env: str = "") -> dict[str, Any]:
    """Return the environment ``env`` that a warm-start model was built for, and its ``settings``; empty for others.

    Args:
        env: if it is among several environments that share the model, only this one's settings are returned.
    """
    file = (find_folder(model) or Path(model)) / MODEL_NOTE
    note = read_json(file, dict) if file.is_file() else {}
    entries = note.get("settings", {}).get("environments", ())
    for own in (note.get("settings", {}), *entries):
        for name in PROGRAMS & own.keys():
            del own[name]
        for name in [name for name in own.get("env.task_options", ()) if f"env.{name}" in PROGRAMS]:
            del own["env.task_options"][name]
    for entry in entries:
        if entry["env"] == env:
            own = {**note["settings"], **entry}
            return {"env": env, "settings": {key: own[key] for key in own.keys() - {"env", "name", "environments"}}}
    return note


def built_for(settings: Settings) -> str:
    """Return that the model was built for another environment, and the settings that are not used; else nothing."""
    note = model_note(settings.model, settings.env)
    if not note or note["env"] in (settings.env, base_environment(settings.env, settings.env_options)):
        return ""
    own = " ".join(f"{name}={value}" for name, value in note["settings"].items() if name in KEYS)
    return f"model={settings.model} was built for {note['env']}; its settings are not used ({own})"
