"""``python run.py doctor --engines``: which engine is cheaper for a model on this machine, measured and remembered."""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date
from typing import TYPE_CHECKING

from rl_agents.cli.train import chosen_settings, resolve_settings
from rl_agents.engines.measured import Measured, keep, subject
from rl_agents.engines.model_shape import model_shape
from rl_agents.engines.select import resolve_engine
from rl_agents.errors import InputError
from rl_agents.settings import Settings, parse_assignments
from rl_agents.settings.presets import load_preset

if TYPE_CHECKING:
    from rl_agents.core.engine_trial import Cost

#: That count; more come before (`rl_agents.core.engine_trial`).
ROUNDS = 4


def examine_engines(args: argparse.Namespace) -> int:
    """Play rollouts with both engines in turns, print what a token costs with each, and keep it for ``engine=auto``.

    Raises:
        InputError: keys that a run would refuse, or vLLM cannot run here.
    """
    import torch

    resolve_engine("vllm")
    if torch.cuda.is_available():
        raise InputError("--engines: with a GPU engine=auto takes vLLM; there is nothing to measure")
    recipe = load_preset(args.config) if args.config else {}
    flags = {**parse_assignments(args.set), **({"model": args.model} if args.model else {})}
    settings = chosen_settings(recipe, flags, args.config)
    with contextlib.redirect_stdout(sys.stderr) if args.json else contextlib.nullcontext():
        print(f"both engines play {settings.env} in turns: a minute, and longer for larger models", flush=True)
        costs, measured, file = measure_engines(settings, ROUNDS)
    if args.json:
        print(json.dumps({**asdict(measured), "cheaper": measured.cheaper, "file": file}))
        return 0
    for kind, rounds in costs.items():
        print(f"{kind:6} {_spread([c.cpu_us for c in rounds])} us of CPU a token, "
              f"{_spread([c.wall_us for c in rounds])} us on the clock")  # fmt: skip
    print(f"engine=auto takes {measured.cheaper} for this shape of model and length of context from now on: {file}")
    return 0


def measure_engines(settings: Settings, rounds: int) -> tuple[dict[str, Sequence[Cost]], Measured, str]:
    """Return the rounds by engine, what they say, and the file that keeps it.

    Args:
        settings: of the run, not resolved yet; its engine does not matter.
        rounds: that count.

    Raises:
        InputError: the model's config.json does not say its size, or the cache folder cannot be written to.
    """
    import ray

    from rl_agents.core.engine_choice import model_config
    from rl_agents.core.engine_trial import Arm, measure
    from rl_agents.core.session import quiet_libraries

    quiet_libraries()
    settings = resolve_settings(settings)
    shape = model_shape(model_config(settings))
    if shape is None:
        raise InputError(f"--engines: config.json of model={settings.model} does not say its size")
    arms = [Arm(kind, settings.placement) for kind in ("torch", "vllm")]
    own_ray = not ray.is_initialized()
    try:
        found = measure(settings, arms, rounds)
    finally:
        if own_ray:
            ray.shutdown()
    costs: dict[str, Sequence[Cost]] = {arm.kind: found[arm] for arm in arms}
    measured = summary(costs, settings.env)
    return costs, measured, str(keep(subject(shape, settings.dtype, settings.max_model_len), measured))


def summary(costs: Mapping[str, Sequence[Cost]], env: str) -> Measured:
    """Put rounds of both engines, which took turns, into one measurement."""
    ratios = [vllm.cpu_us / torch.cpu_us for torch, vllm in zip(costs["torch"], costs["vllm"], strict=True)]
    torch_us, vllm_us = (statistics.median(cost.cpu_us for cost in costs[kind]) for kind in ("torch", "vllm"))
    return Measured(torch_us, vllm_us, min(ratios), max(ratios), len(ratios), env, date.today().isoformat())


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"
