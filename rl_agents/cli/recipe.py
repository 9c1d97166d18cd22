"""``python run.py doctor --config RECIPE``: whether a recipe can do what it says, one line for each thing checked."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from rl_agents.cli.train import chosen_settings
from rl_agents.config import parse_assignments
from rl_agents.config.presets import load_preset
from rl_agents.errors import InputError


def examine_recipe(args: argparse.Namespace) -> int:
    """Print what was checked; return 1 when something fails.

    Raises:
        InputError: keys that a run would refuse.
    """
    from rl_agents.trainer.preflight import check_settings

    if args.gpu_memory <= 0:
        raise InputError(f"--gpu-memory {args.gpu_memory:g}: must be above 0")
    recipe = load_preset(args.config) if args.config else {}
    settings = chosen_settings(recipe, parse_assignments(args.set), args.config)
    findings = check_settings(settings, args.gpu_memory)
    failed = any(finding.status == "fails" for finding in findings)
    if args.json:
        print(json.dumps({"findings": [asdict(finding) for finding in findings], "fits": not failed}))
    else:
        for finding in findings:
            print(f"{finding.status:5}  {finding.about:8} {finding.text}")
    return 1 if failed else 0
