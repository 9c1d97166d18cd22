"""Warm-start models: small networks trained from scratch that sometimes solve their environment.

    python run.py sft --env guess_numbers

Runs with ``model=starter`` build theirs if it is missing and keep it in the cache folder (`rl_agents.cache`).
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rl_agents.algorithms import Settings
from rl_agents.envs.base import env_keys, run_starter, starter_spec
from rl_agents.envs.spec import StarterSpec
from rl_agents.inference.hub import model_folder
from rl_agents.trainer.checkpoint import write_atomically
from rl_agents.trainer.model_note import MODEL_NOTE
from rl_agents.trainer.ray_init import quiet_libraries
from rl_agents.trainer.warm_start_folder import (
    STARTER_SEED,
    chosen_training,
    environment_keys,
    imitation,
    imitation_keys,
    starter_folder,
)

#: Builds an algorithm from settings: `AgentAlgorithm.from_settings`, which callers pass to avoid an import cycle.
BuildAlgo = Callable[[Settings], Any]


def ensure_model(settings: Settings, build_algo: BuildAlgo) -> Path:
    """Return the folder of the initial weights; builds the warm-start model if it is requested and missing."""
    if settings.model != "starter":
        return model_folder(settings.model).resolve()
    env, starter = run_starter(settings)
    folder = starter_folder(env, starter, settings.starter_iterations)
    if not (folder / "model.safetensors").is_file():
        print(f"[rl_agents] training the warm-start model for {env} ({starter.takes}, once)", flush=True)
        keys = {**environment_keys(starter.defaults), **chosen_training(settings.starter_iterations)}
        build_starter(build_algo, env, folder, STARTER_SEED, keys, _show_quarters, starter=starter)
    return folder


def _show_quarters(iteration: int, iterations: int, metrics: Mapping[str, float]) -> None:
    if iteration * 4 % iterations < 4:
        print(f"[rl_agents] warm-start model: {iteration / iterations:.0%}", flush=True)


def build_starter(
    build_algo: BuildAlgo,
    env: str,
    output_dir: Path,
    seed: int = STARTER_SEED,
    set: Mapping[str, Any] | None = None,
    on_iteration: Callable[[int, int, dict[str, float]], None] | None = None,
    model: str = "",
    starter: StarterSpec | None = None,
    settings: Settings | None = None,
) -> Path:
    """Train the warm-start model of ``env`` with the `sft` algorithm and write it in Hugging Face layout.

    Args:
        build_algo: builds the algorithm that trains it.
        on_iteration: called with (iteration, iterations, metrics) after each.
        model: a pretrained model to start from; empty: the environment's small network with random weights.
        starter: default: that of ``env``.
        settings: of the imitation (`rl_agents.trainer.warm_start_folder.imitation`), if they are resolved already.
    """
    quiet_libraries()
    starter = starter or starter_spec(env, env_keys(set or {}))
    output_dir = Path(output_dir)
    output_dir.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".base-", dir=output_dir.parent) as base:
        if not model:
            _write_untrained(env, starter, Path(base), seed)
        settings = settings or imitation(env, starter, set or {}, seed, model)
        if not model:
            for own in (settings, *settings.parts.values()):
                own.model = base
        algo = build_algo(settings)
        try:
            for iteration in range(settings.iterations):
                metrics = algo.train()["agent"]
                if on_iteration is not None:
                    on_iteration(iteration + 1, settings.iterations, metrics)

            def fill(folder: Path) -> None:
                _copy_hf(algo, folder)
                if model:
                    _write_note(folder, env, environment_keys(imitation_keys(starter, set or {}, model)))

            write_atomically(output_dir, fill)
        finally:
            algo.stop()
    return output_dir


def _write_untrained(env: str, starter: StarterSpec, folder: Path, seed: int) -> None:
    tokenizer = starter.build_tokenizer()
    starter.build_model(tokenizer, seed).save_pretrained(folder, safe_serialization=True)
    tokenizer.save_pretrained(folder)
    _write_note(folder, env, starter.defaults)


def _write_note(folder: Path, env: str, settings: Mapping[str, Any]) -> None:
    """Write the environment and the settings that runs with this model begin with."""
    note = {"env": env, "settings": dict(settings)}
    (folder / MODEL_NOTE).write_text(json.dumps(note, indent=1), encoding="utf-8")


def _copy_hf(algo: Any, folder: Path) -> None:
    algo.learner_group.save_hf(folder / "hf")
    for path in (folder / "hf").iterdir():
        shutil.move(path, folder / path.name)
    (folder / "hf").rmdir()
