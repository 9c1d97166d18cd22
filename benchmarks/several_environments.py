"""Three environments at once against one after the other: ``python -m benchmarks.several_environments``.

All runs begin with the shared warm-start model. In turn, each environment gets about as many sampled tokens as it had
in the run over all three with the same seed; the order of the three rotates with the seed. Finished seeds are kept.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.referee import page_of
from benchmarks.report import RESULTS, command_line, load, markdown, write_figures
from rl_agents.trainer.algorithm import AgentAlgorithm, AgentConfig

NAME, ENVS = "several_environments", ("guess_numbers", "circuit_decoding", "multihop_qa")
KEYS = {"algo": "grpo", "tasks_per_iteration": 12, "group_size": 8, "eval_episodes": 240, "save_pool": False}


def build(env: str, **keys: Any) -> AgentAlgorithm:
    return AgentConfig().environment(env).training(**KEYS, **keys).local().build_algo()


def tested(algo: AgentAlgorithm) -> dict[str, float]:
    found = algo.evaluate()["agent"]
    return {"all": found["eval/success_rate"], **{env: found[f"eval/success_rate/{env}"] for env in ENVS}}


def at_once(seed: int, iterations: int) -> dict[str, Any]:
    algo, started, tokens = build(",".join(ENVS), seed=seed), time.process_time(), dict.fromkeys(ENVS, 0.0)
    run: dict[str, Any] = {"tokens": tokens, "model": algo.config.model_dir, "start": tested(algo)}
    for _ in range(iterations):
        metrics = algo.train()["agent"]
        tokens |= {env: tokens[env] + metrics.get(f"rollout/response_tokens/{env}", 0.0) for env in ENVS}
    run |= {"end": tested(algo), "updates": algo.policy_version, "cpu_seconds": time.process_time() - started}
    algo.stop()
    return run


def in_turn(seed: int, budgets: dict[str, float], model: str, folder: Path) -> dict[str, Any]:
    started, updates, tokens = time.process_time(), 0, dict.fromkeys(ENVS, 0.0)
    for env in [ENVS[(seed + place) % len(ENVS)] for place in range(len(ENVS))]:
        algo, last = build(env, seed=seed, model=model), 0.0
        while budgets[env] - tokens[env] > last / 2:
            last = algo.train()["agent"]["rollout/response_tokens"]
            tokens[env] += last
        updates += algo.policy_version
        algo.save_run_checkpoint(folder / env)
        algo.stop()
        model = str(folder / env / "hf")
    algo = build(",".join(ENVS), seed=seed, model=model)
    end = tested(algo)
    algo.stop()
    return {"tokens": tokens, "end": end, "updates": updates, "cpu_seconds": time.process_time() - started}


def table() -> str:
    """Return the table of docs/how-to/several-environments.md: all seeds have one start, so each counts as one."""
    runs, rows, gaps = load(NAME)["runs"].values(), [], {}
    for env in ("all", *ENVS):
        start, once, turn = ([run[arm][when][env] for run in runs] for arm, when in
                             (("at once", "start"), ("at once", "end"), ("in turn", "end")))  # fmt: skip
        gaps[env] = {(str(seed), "0"): a - b for seed, (a, b) in enumerate(zip(once, turn, strict=True))}
        rows.append([env, *(f"{fmean(values):.2f}" for values in (start, once, turn))])
    differences = page_of(gaps)
    head = ["success on the test tasks", "start", "at once", "in turn", "at once - in turn"]
    return markdown(head, [[*row, str(differences[row[0]])] for row in rows])


def main() -> None:
    args = command_line(__doc__, {"seeds": 6, "iterations": 72}).parse_args()
    runs: dict[str, Any] = load(NAME)["runs"] if (RESULTS / f"{NAME}.json").is_file() else {}
    for seed in range(args.seeds):
        if str(seed) not in runs:
            once = at_once(seed, args.iterations)
            with tempfile.TemporaryDirectory() as folder:
                turn = in_turn(seed, once["tokens"], once.pop("model"), Path(folder))
            runs[str(seed)] = {"at once": once, "in turn": turn}
            print(seed, runs[str(seed)], file=sys.stderr)
            write_figures(
                NAME, f"python -m benchmarks.{NAME} --seeds {args.seeds} --iterations {args.iterations}", {"runs": runs}
            )
    print(table())


if __name__ == "__main__":
    main()
