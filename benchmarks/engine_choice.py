"""Which engine is cheaper for which size: ``python -m benchmarks.engine_choice``.

Plays the rollouts of a run (driver, env runner, engine) with the torch engine and with vLLM, each in an actor of its
own (``placement=apart``) and in the env runner's process (``together``). All four take turns, round by round, with
weights and tasks that are new for every round, and answer: CPU of all processes and threads on the way, per sampled
token.

Models are of the starters' kind with untrained weights: every episode is ``max_turns=4`` long and every response as
long as the environment allows: 24 tokens with guess_numbers (mostly sampling), 4 with alfworld (mostly reading).
The starters themselves, which were taught, end their responses and episodes when they like. The sizes between which the
two engines change places are the rule of ``engine=auto`` where nobody has measured (`rl_agents.core.engine_choice`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from benchmarks.report import RESULTS, summarise, write_figures
from rl_agents.algorithms import Settings
from rl_agents.core.engine_trial import Arm, Cost, measure
from rl_agents.core.resolve import MODEL_NOTE
from rl_agents.envs.base import starter_spec
from rl_agents.envs.small_model import small_qwen3

KINDS, PLACES = ("torch", "vllm"), ("apart", "together")
ARMS = [Arm(kind, placement) for kind in KINDS for placement in PLACES]
ENVS = ("guess_numbers", "alfworld")
#: Width and layers by name; heads are 32 wide.
SIZES = {"0.1 M": (64, 2), "0.5 M": (128, 3), "2 M": (224, 4), "6 M": (352, 5), "20 M": (512, 8)}
#: Groups of eight episodes that are played at once: fewer where a token costs milliseconds.
GROUPS = {"20 M": 8}


@dataclass(frozen=True)
class Case:
    """A model and what it plays; ``size`` starter: the environment's own, taught."""

    env: str
    size: str

    def __str__(self) -> str:
        return f"{self.env}, {self.size}"

    def settings(self, folder: Path) -> Settings:
        """Write the model and return the settings of a run with it."""
        keys: dict[str, Any] = {"algo": "grpo", "env": self.env, "tasks_per_iteration": GROUPS.get(self.size, 16)}
        if self.size != "starter":
            keys |= {"model": untrained_model(folder, self.env, *SIZES[self.size]), "max_turns": 4}
        return Settings.from_dict(keys)


CASES = [Case(env, size) for size in ("starter", *SIZES) for env in ENVS]


def untrained_model(folder: Path, env: str, hidden: int, layers: int) -> str:
    """Write a model of the starter's kind with untrained weights, with its tokenizer and its settings."""
    spec = starter_spec(env)
    tokenizer = spec.build_tokenizer()
    small_qwen3(tokenizer, 0, hidden_size=hidden, layers=layers, heads=hidden // 32).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    note = {"env": env, "settings": {name: v for name, v in spec.defaults.items() if name != "max_turns"}}
    (folder / MODEL_NOTE).write_text(json.dumps(note), encoding="utf-8")
    return str(folder)


def figures(costs: Mapping[Arm, Cost]) -> dict[str, float]:
    """Return what one round says: microseconds by arm, and ratios: above 1 the torch engine is better, or together."""
    apart, together = ({kind: costs[Arm(kind, place)] for kind in KINDS} for place in PLACES)
    best = {kind: min(apart[kind].cpu_us, together[kind].cpu_us) for kind in KINDS}
    return {
        **{f"{arm} us per token": cost.cpu_us for arm, cost in costs.items()},
        **{f"{arm} busiest process, us per token": cost.busiest_us for arm, cost in costs.items()},
        **{f"{arm} wall us per token": cost.wall_us for arm, cost in costs.items()},
        "vllm over torch": best["vllm"] / best["torch"],
        "vllm over torch, apart": apart["vllm"].cpu_us / apart["torch"].cpu_us,
        "vllm over torch, together": together["vllm"].cpu_us / together["torch"].cpu_us,
        **{f"apart over together, {kind}": apart[kind].cpu_us / together[kind].cpu_us for kind in KINDS},
        **{
            f"apart over together, {kind}, busiest process": apart[kind].busiest_us / together[kind].busiest_us
            for kind in KINDS
        },
        **{f"apart over together, {kind}, wall": apart[kind].wall_us / together[kind].wall_us for kind in KINDS},
        **{f"{kind} tokens": apart[kind].tokens for kind in KINDS},
    }


def parameters(model_dir: str) -> int:
    """Count weights as the engines' rule counts them."""
    from rl_agents.engines.model_shape import model_shape, read_config

    shape = model_shape(read_config(model_dir))
    assert shape is not None
    return shape.parameters


def main() -> None:
    """Print the table and write the figures; cases that are not played stay on file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=4, help="measured rounds")
    parser.add_argument("--only", nargs="+", help="cases by name, such as 'alfworld, 2 M'")
    args = parser.parse_args()
    file = RESULTS / "engine_choice.json"
    found: dict[str, Any] = json.loads(file.read_text())["cases"] if args.only and file.is_file() else {}
    for case in CASES:
        if args.only and str(case) not in args.only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            settings = case.settings(Path(folder))
            costs = measure(settings, ARMS, args.rounds)
            size = parameters(folder) if case.size != "starter" else None
        ray.shutdown()
        rounds = [figures({arm: costs[arm][number] for arm in ARMS}) for number in range(args.rounds)]
        found[str(case)] = {"parameters": size, **summarise(rounds)}
        ratio = statistics.median(r["vllm over torch"] for r in rounds)
        cells = "  ".join(f"{arm} {statistics.median(c.cpu_us for c in costs[arm]):,.0f}" for arm in ARMS)
        print(f"{case}: {cells} us per token; vLLM costs {ratio:.2f} times what torch costs", flush=True)
        write_figures("engine_choice", f"python -m benchmarks.engine_choice --rounds {args.rounds}", {"cases": found})


if __name__ == "__main__":
    main()
