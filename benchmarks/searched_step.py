"""CPU time of 3spo and GRPO on SmolLM2-135M-Instruct, by environment step and by trained token.

    python -m benchmarks.searched_step

Both play treasure from the start of `benchmarks.real_model`, with its keys, in one process and without evaluation. The
first iteration warms up, and the second is counted. What 3spo spends on watching the plain policy is part of its time.
3spo trains on many sampled steps twice: among siblings, and as a step of a path.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.equal_steps import sets
from benchmarks.grid import trained
from benchmarks.real_methods import methods as compared
from benchmarks.real_model import TRAIN, WORLDS, methods, start_of
from benchmarks.report import command_line, write_result
from benchmarks.timing import in_new_process
from rl_agents.reporting.run_folder import RunFolder

#: Part -> the metric with its seconds.
PARTS = {
    "sampling": "timing_s/rollout",
    "learning": "timing_s/learn",
    "weight sync": "timing_s/sync",
    "watching": "timing_s/collapse_monitor",
}


def main() -> None:
    args = command_line(__doc__, {"rounds": 3}).parse_args()
    start = start_of("treasure")
    rounds = []
    for number in range(args.rounds):
        figures = {name: in_new_process(spent, name, number, start) for name in ("grpo", "3spo")}
        ratios = {
            f"grpo over 3spo{unit}": figures["grpo"][cost] / figures["3spo"][cost]
            for unit, cost in (("", "CPU-s a step"), (", a trained token", "CPU-s a trained token"))
        }
        parts = {f"{name}: {part}": value for name, own in figures.items() for part, value in own.items()}
        rounds.append({**parts, **ratios})
        print(rounds[-1], flush=True)
    write_result("searched_step", f"python -m benchmarks.searched_step --rounds {args.rounds}", rounds)


def spent(name: str, seed: int, start: Path) -> dict[str, float]:
    """CPU seconds by environment step and by trained token, and the parts' shares of wall time, in the second
    iteration."""
    world = WORLDS["treasure"]
    keys = (*{**compared(world), **methods(world)}[name], *TRAIN, f"env={world.env}", f"model={start}", *world.keys)
    limits = ("env.success_return=1", "iterations=2", "eval_interval=0", "eval_episodes=0", "checkpoint_interval=0")
    with trained(("--local", *sets((*keys, *limits))), seed) as output:
        first, last = RunFolder(output).read_metrics()[-2:]
    steps = last.get("search/sampled_steps", last.get("rollout/turns", 0))
    shares = {part: last.get(tag, 0.0) / last["timing_s/iteration"] for part, tag in PARTS.items()}
    seconds = last["cpu_seconds"] - first["cpu_seconds"]
    return {"CPU-s a step": seconds / steps, "CPU-s a trained token": seconds / last["rows/trained_tokens"], **shares}


if __name__ == "__main__":
    main()
