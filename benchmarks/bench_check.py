"""Check whether a run does more work than before: ``make bench-check``, or ``python -m benchmarks.bench_check``.

A few small local runs with fixed seeds count their work, which a busy machine does not change. A count above its
recorded budget fails. ``--record`` records the current counts; commit the file with the reason. The learning rate is
0 and the model untrained, so samples depend on seeds only, not on how gradients are rounded.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium

from benchmarks.report import RESULTS, command_line

BUDGET = RESULTS / "budget.json"
ENVIRONMENT = "benchmarks/Counting-v0"
Counts = dict[str, int]

#: Share by which a count may exceed its budget; 0 for all others. Pickles differ between versions of Python.
TOLERANCE = {"trajectory_bytes": 0.02}


class Counting(gymnasium.Env[str, str]):
    """Shows 20 numbers of the task, then two after each action; only its text decides whether an action is good."""

    blocking = "inline"  # a step takes microseconds, and runs repeat bit for bit
    observation_space = action_space = gymnasium.spaces.Text(1 << 16)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        rng = random.Random(str(options))
        self._words = [f"{rng.randrange(1, 10)}{rng.randrange(1, 10)}{rng.randrange(1, 10)}" for _ in range(20)]
        return " ".join(self._words), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Score the action by the sum of its letters: one in three ends the episode, half of these solved."""
        value = sum(map(ord, action))
        self._words = [*self._words[2:], self._words[value % 20], self._words[value % 7]]
        won = value % 6 == 0
        return " ".join(self._words[-2:]), float(won), value % 3 == 0, False, {"success": won}


@dataclass(frozen=True)
class Case:
    """A run of a few iterations, with settings in addition to `COMMON`."""

    name: str
    keys: Mapping[str, Any]
    iterations: int = 2


COMMON: dict[str, Any] = {
    "env": f"gymnasium:{ENVIRONMENT}", "lr": 0.0, "max_turns": 4, "max_response_tokens": 6, "max_model_len": 256,
    "collapse_monitor": "off", "engine": "torch", "eval_episodes": 0,
}  # fmt: skip
GRPO = {"algo": "grpo", "tasks_per_iteration": 4, "group_size": 8}
SPO = {"algo": "3spo", "tasks_per_iteration": 4, "group_size": 8, "search_steps": 96}
STEPPO = {"algo": "steppo", "tasks_per_iteration": 12, "group_size": 1, "sample_layout": "per_step", "critic_lr": 0.0}
CASES = (
    Case("grpo, merged rows", GRPO),
    Case("grpo, shared rows", {**GRPO, "prefix_sharing": True}),
    Case("3spo, flat rows", SPO),
    Case("3spo, shared rows", {**SPO, "prefix_sharing": True}),
    Case("steppo, a row per step", STEPPO),
    Case("steppo, a row per step, shared", {**STEPPO, "prefix_sharing": True}),
)


@contextlib.contextmanager
def watched(owner: Any, name: str, note: Callable[..., None]) -> Iterator[None]:
    """Pass the result and the arguments of every call of ``owner.name`` to ``note``."""
    original = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        note(result, *args, **kwargs)
        return result

    setattr(owner, name, call)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextlib.contextmanager
def counting() -> Iterator[Counter[str]]:
    from rl_agents.learner.optimizers import OptimizerSet
    from rl_agents.orchestrator.collector import Collector
    from rl_agents.rollout.env_runner import TextEnvRunner
    from rl_agents.rollout.env_worker import EnvGuard
    from rl_agents.store.trajectory_store import PoolWriter

    counts: Counter[str] = Counter()

    def synced(_: Any, runner: Any, weights: Any, version: int) -> None:
        counts.update(weight_syncs=1, weight_bytes=sum(tensor.nbytes for tensor in weights.values()))

    def gathered(collected: Any, *args: Any, **kwargs: Any) -> None:
        counts["trajectory_bytes"] += len(pickle.dumps(collected.answers, protocol=5))

    def written(_: Any, writer: Any, *records: Any) -> None:
        counts.update(pool_writes=1, pool_records=len(records))

    seams = [
        (TextEnvRunner, "exchange", lambda *_, **__: counts.update(runner_calls=1)),
        (TextEnvRunner, "sync_engine", synced),
        (Collector, "gather", gathered),
        (EnvGuard, "call", lambda *_, **__: counts.update(environment_calls=1)),
        (OptimizerSet, "step", lambda *_, **__: counts.update(optimizer_steps=1)),
        (PoolWriter, "add", written),
    ]
    with contextlib.ExitStack() as stack:
        for owner, name, note in seams:
            stack.enter_context(watched(owner, name, note))
        yield counts


def untrained_model(folder: Path) -> str:
    from rl_agents.envs.base import starter_spec

    starter = starter_spec("guess_numbers")
    tokenizer = starter.build_tokenizer()
    starter.build_model(tokenizer, 0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def measure(case: Case, model: str, folder: Path) -> Counts:
    from rl_agents.trainer.algorithm import AgentConfig

    gymnasium.register(ENVIRONMENT, entry_point=f"{__name__}:Counting")
    keys = {**COMMON, **case.keys, "model": model}
    algo = AgentConfig().environment(keys.pop("env")).training(**keys).local().build_algo()
    try:
        with counting() as counts:
            algo.open_pool(folder / "pool.sqlite")
            for _ in range(case.iterations):
                metrics = algo.train()["agent"]
                counts["learner_rows"] += int(metrics.get("rows/count", 0))
                counts["trained_tokens"] += int(metrics.get("rows/trained_tokens", 0))
        workers: Any = algo.rollout_workers
        engine, learner = workers.engine, algo.learner_group._learner
        counts.update(
            engine_passes=engine.passes, prefill_tokens=engine.prefill_tokens, decode_tokens=engine.decode_tokens,
            learner_tokens=learner.forwarded,
        )  # fmt: skip
        return dict(sorted(counts.items()))
    finally:
        algo.stop()
        gymnasium.registry.pop(ENVIRONMENT, None)


def measure_all(cases: tuple[Case, ...] = CASES) -> dict[str, Counts]:
    found: dict[str, Counts] = {}
    with tempfile.TemporaryDirectory() as folder:
        model = untrained_model(Path(folder) / "model")
        for number, case in enumerate(cases):
            place = Path(folder) / str(number)
            place.mkdir()
            found[case.name] = measure(case, model, place)
    return found


def excesses(found: Mapping[str, Counts], budget: Mapping[str, Counts]) -> list[str]:
    """Return a line for each count that is above its budget, or that has none."""
    lines = []
    for case, counts in found.items():
        known = budget.get(case, {})
        for name, count in counts.items():
            allowed = known.get(name)
            if allowed is None:
                lines.append(f"{case}: {name} is {count:,} and has no budget")
            elif count > allowed * (1 + TOLERANCE.get(name, 0.0)):
                share = f", {100 * (count / allowed - 1):.3g} % more" if allowed else ""
                lines.append(f"{case}: {name} is {count:,}, its budget {allowed:,}{share}")
    return lines


def savings(found: Mapping[str, Counts], budget: Mapping[str, Counts]) -> list[str]:
    """Return a line for each count below its budget, which should be lowered."""
    return [
        f"{case}: {name} is {found[case].get(name, 0):,}, its budget {allowed:,}"
        for case, known in budget.items()
        if case in found
        for name, allowed in known.items()
        if found[case].get(name, 0) < allowed * (1 - TOLERANCE.get(name, 0.0))
    ]


def check(budget_file: Path, found: Mapping[str, Counts]) -> int:
    """Print the counts above the budget on file; return the exit code, 1 if there are any."""
    budget = json.loads(budget_file.read_text(encoding="utf-8")) if budget_file.is_file() else {}
    for line in savings(found, budget):
        print(f"[bench-check] less work than the budget: {line}")
    lines = excesses(found, budget)
    for line in lines:
        print(f"[bench-check] {line}")
    if lines:
        print(f"[bench-check] to accept: python -m benchmarks.bench_check --record; then commit {budget_file}")
    else:
        print(f"[bench-check] {sum(map(len, found.values()))} counts of {len(found)} runs are within their budget")
    return int(bool(lines))


def main(arguments: list[str] | None = None) -> int:
    parser = command_line(__doc__, {"record": False})
    parser.add_argument("--budget", type=Path, default=BUDGET, help="file with the budget")
    args = parser.parse_args(arguments)
    found = measure_all()
    if args.record:
        args.budget.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"[bench-check] recorded in {args.budget}")
        return 0
    return check(args.budget, found)


if __name__ == "__main__":
    sys.exit(main())
