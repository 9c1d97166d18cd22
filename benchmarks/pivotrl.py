"""PivotRL, imitation, ablations and end-to-end RL, compared in the training domain and outside of it.

    python -m benchmarks.pivotrl --local --jobs 2

Built once, in the cache folder: a small base model that imitates mediocre demonstrators in WebShop and situation
puzzles (`benchmarks.domains`), traces of WebShop's scripted expert, and their turns, profile and pivots. Every arm
trains that model on WebShop only. Its checkpoints are evaluated on test tasks of WebShop (in domain) and situation
puzzles (out of domain): complete episodes, temperature 1.

There are two experts. The first writes like the demonstrator of the base, which plays worse. The foreign expert
writes the words of its searches in reverse order, which does not change the search results.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from benchmarks import grid
from benchmarks.domains import DOMAINS, PANELS, register
from benchmarks.grid import RESULTS, Arm, Run, grid_parser, mean_text, read_run, run_command, run_grid, trained
from benchmarks.report import drawn, markdown
from rl_agents.cache import cache_dir
from rl_agents.reporting.run_folder import RunFolder
from rl_agents.trainer.algorithm import AgentAlgorithm
from rl_agents.trainer.warm_start import build_starter

EXPERT_TRACES = 200
#: For up to five words, a similarity of 0.45 means all of them in any order, which the search ignores.
VERIFIER = {"env.verifier": "text_action", "env.threshold": 0.45}
#: The base is mostly right: with 0.6, only a few clicks would remain.
MAX_MEAN = "0.8"
CHECKPOINTS = 5
#: In domain, and out of domain.
SHOP, PUZZLES = BOTH = PANELS["two_domains"]
#: Success in domain at which rollout turns are compared.
LEVEL = 0.85
#: Folder of an expert's turns -> suffix of its arms' names.
EXPERTS = {"expert": "", "foreign": ", foreign expert"}
#: Placeholder in stored flags for the folder with model and turns, which differs between machines.
DATA = "<data>"
_SEARCH = re.compile(r"search\[([^\]]*)\]")


def main() -> None:
    parser = grid_parser(__doc__, "pivotrl")
    parser.add_argument("--ablations", action="store_true", help="one further arm for either expert")
    args = parser.parse_args()
    folder = cache_dir() / "benchmarks" / "pivotrl"
    for expert in EXPERTS:
        prepare(folder, expert)
    base = base_success(folder, args.seeds)
    chosen = [*END_TO_END, *(arm for expert in EXPERTS for arm in expert_arms(expert, args.ablations))]
    arms = run_grid(chosen, args, partial(run_arm, folder))
    print(table(base, arms))
    plot(base, arms, RESULTS / f"{args.name}.png")


# --- preparation


def prepare(folder: Path, name: str, panel: str = "two_domains") -> None:
    """Make what is missing: the base as a warm-start model, the rest by calls of ``run.py``.

    ``name`` is one of `EXPERTS`, ``panel`` one of `benchmarks.domains.PANELS`.
    """
    register()
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "base").exists():
        build_starter(AgentAlgorithm.from_settings, "domains", folder / "base", set={"env.panel": panel})
    expert, traces = folder / name, folder / f"{name}.jsonl"
    choice = ("pivot", "filter", "--traces", str(expert), "--max-mean", MAX_MEAN)
    steps = {
        traces: ("pivot", "demo-traces", "--env", "webshop", "--traces", str(EXPERT_TRACES), "--output", str(traces),
                 *env_keys("webshop")),
        expert: ("pivot", "extract", "--traces", str(traces), "--output", str(expert)),
        expert / "profile.parquet": ("pivot", "profile", "--local", "--traces", str(expert), "--model",
                                     str(folder / "base"), *keys({**VERIFIER, **lengths(SHOP)})),
        expert / "pivots.parquet": choice,
        expert / "random_pivots.parquet": (*choice, "--random"),
    }  # fmt: skip
    for result, argv in steps.items():
        if not result.exists():
            print(f"run.py {' '.join(argv)}\n{run_command(argv)}".replace(str(folder), DATA), flush=True)
            if result == traces and name == "foreign":
                traces.write_text(_SEARCH.sub(_reversed, traces.read_text("utf-8")), "utf-8")


def _reversed(search: re.Match[str]) -> str:
    return f"search[ {' '.join(reversed(search[1].split()))} ]"


def keys(values: Mapping[str, object] | None = None, **further: object) -> tuple[str, ...]:
    pairs = {**(values or {}), **further}
    return tuple(part for name, value in pairs.items() for part in ("--set", f"{name}={value}"))


def env_keys(env: str) -> tuple[str, ...]:
    return keys({f"env.{name}": value for name, value in DOMAINS[env].options.items()})


def lengths(env: str) -> dict[str, int]:
    tokens, response = DOMAINS[env].lengths
    return {"max_model_len": tokens, "max_response_tokens": response}


def base_success(folder: Path, seeds: int) -> list[dict[str, float]]:
    """Return the base's success in both domains by seed; evaluated once."""
    path = folder / "base.json"
    if not path.exists():
        path.write_text("[]")
    known: list[dict[str, float]] = json.loads(path.read_text(encoding="utf-8"))
    if len(known) < seeds:
        rates = {env: play(folder / "base", env, seeds) for env in BOTH}
        known = [{env: rates[env][seed] for env in BOTH} for seed in range(seeds)]
        path.write_text(json.dumps(known), encoding="utf-8")
    return known[:seeds]


def play(model: Path, env: str, seeds: int = 1, first: int = 0) -> list[float]:
    """Return success on the test tasks of an environment by seed: complete episodes, temperature 1."""
    flags = ("--model", str(model), "--env", env, "--episodes", str(DOMAINS[env].episodes), "--seeds", str(seeds),
             "--seed", str(first))  # fmt: skip
    report = json.loads(run_command(["eval", *flags, "--local", "--json", *env_keys(env), *keys(lengths(env))]))
    rates: list[float] = report["success"]["per_seed"]
    return rates


# --- arms


def arm(name: str, algo: str, iterations: int, *further: str) -> Arm:
    """Return an arm with the shared model, learning rate and 128 samples per update."""
    common = keys(
        {**lengths(SHOP), "model": f"{DATA}/base", "lr": "5e-4", "checkpoint_interval": iterations // CHECKPOINTS},
        keep_checkpoints=0, eval_interval=0, eval_episodes=1,
    )  # fmt: skip
    return Arm(name, ("--algo", algo, "--iterations", str(iterations), *common, *further))


GROUPS = keys(tasks_per_iteration=16, group_size=8)
END_TO_END = (arm("end-to-end GRPO", "grpo", 30, "--env", "webshop", *env_keys("webshop"), *GROUPS),)


def expert_arms(expert: str, ablations: bool = False) -> list[Arm]:
    suffix, folder = EXPERTS[expert], f"{DATA}/{expert}"

    def pivots(name: str, file: str, verifier: Mapping[str, object]) -> Arm:
        chosen = keys({"env.pivots": f"{folder}/{file}.parquet", **verifier})
        return arm(f"{name}{suffix}", "pivotrl", 60, "--env", "pivot", *chosen, *GROUPS)

    turns = keys({"env.pivots": f"{folder}/turns.parquet"})
    batches = keys(tasks_per_iteration=128, group_size=1, demonstrations=4096, minibatches=1)
    arms = [
        arm(f"sft{suffix}", "sft", 60, "--env", "pivot", *turns, *batches),
        pivots("random turns, strict reward", "random_pivots", {"env.verifier": "exact"}),
        pivots("random turns", "random_pivots", VERIFIER),
        pivots("PivotRL", "pivots", VERIFIER),
    ]
    if ablations:
        arms.append(pivots("PivotRL, lenient search", "pivots", {**VERIFIER, "env.threshold": 0.3}))
    return arms


def placed(folder: Path, flags: Sequence[str]) -> list[str]:
    return [flag.replace(DATA, str(folder)) for flag in flags]


def run_arm(folder: Path, flags: Sequence[str], seed: int) -> Run:
    """Train one arm, then evaluate every checkpoint on the test tasks of both domains.

    By iteration: ``success`` in WebShop, ``retained`` in the other environment, and ``rollout_turns`` until then,
    without profiling.
    """
    with trained(placed(folder, flags), seed) as output:
        run, own = read_run(output), RunFolder(output)
        records, checkpoints = own.read_metrics(), own.complete_checkpoints()
        inside, outside = ([play(path / "hf", env)[0] for _, path in checkpoints] for env in BOTH)
    marks = [str(iteration) for iteration, _ in checkpoints]
    turns = [grid.total_until(records, iteration, "rollout/turns") for iteration, _ in checkpoints]
    return {
        **run,
        "success": dict(zip(marks, inside, strict=True)),
        "retained": dict(zip(marks, outside, strict=True)),
        "rollout_turns": dict(zip(marks, turns, strict=True)),
    }


# --- tables and plots


def table(base: list[dict[str, float]], arms: dict[str, list[Run]]) -> str:
    """Return one line per arm: final success in both domains, change outside, turns in total and until `LEVEL`, CPU."""
    inside, outside = ([rates[env] for rates in base] for env in BOTH)
    rows = [("base", str(len(base)), mean_text(inside), mean_text(outside), "", "0", "", "")]
    for name, runs in arms.items():
        kept, turns = (_ends(runs, key) for key in ("retained", "rollout_turns"))
        needed = turns_until(LEVEL, [fmean(inside), *_curve(runs, "success")], [0, *_curve(runs, "rollout_turns")])
        change = mean_text([after - fmean(outside) for after in kept])
        success, thousands = mean_text(_ends(runs, "success")), f"{fmean(turns) / 1000:.1f} k"
        own = (
            str(len(runs)),
            success,
            mean_text(kept),
            change,
            thousands,
            needed,
            grid.mean_of("cpu_seconds", 0)(runs),
        )
        rows.append((name, *own))
    head = ("arm", "seeds", SHOP, PUZZLES, "change of it", "rollout turns", f"until {LEVEL}", "CPU-s a run")
    return markdown(head, rows)


def turns_until(level: float, success: Sequence[float], turns: Sequence[float]) -> str:
    """Return thousands of turns until success first reached ``level``, interpolated between two checkpoints."""
    for (low, before), (high, after) in pairwise(zip(success, turns, strict=True)):
        if low < level <= high and after:
            return f"{(before + (after - before) * (level - low) / (high - low)) / 1000:.1f} k"
    return "-"


def _ends(runs: Sequence[Run], key: str) -> list[float]:
    return [list(run[key].values())[-1] for run in runs]


def plot(base: list[dict[str, float]], arms: dict[str, list[Run]], path: Path) -> None:
    """Plot, for each expert, success in domain over rollout turns, and success out of domain over success in domain."""
    start = [fmean(rates[env] for rates in base) for env in BOTH]
    with drawn(path, 2, 2, figsize=(11, 8.4)) as (_, axes):
        for (left, right), (expert, suffix) in zip(axes, EXPERTS.items(), strict=True):
            for number, name in enumerate(own.name for own in (*END_TO_END, *expert_arms(expert))):
                inside, outside, turns = (_curve(arms[name], key) for key in ("success", "retained", "rollout_turns"))
                style = {"color": f"C{number}", "marker": "o", "markersize": 3.5, "label": name.removesuffix(suffix)}
                if turns[-1]:
                    left.plot([0, *turns], [start[0], *inside], **style)
                else:
                    label = f"{style['label']} (no rollouts)"
                    left.axhline(inside[-1], color=f"C{number}", linestyle="--", label=label)
                right.plot([start[0], *inside], [start[1], *outside], **style)
            left.set(xlabel="rollout turns", ylabel=f"{SHOP}: success on the test tasks", ylim=(0, 1))
            right.plot(*start, "k*", markersize=11, label="base")
            right.set(xlabel=f"{SHOP} (trained on)", ylabel=f"{PUZZLES} (not trained on)", xlim=(0.1, 1))
            left.set_title("foreign expert" if suffix else "expert")
            for axis in (left, right):
                axis.grid(alpha=0.3)
                axis.legend(fontsize=7)


def _curve(runs: Sequence[Run], key: str) -> list[float]:
    return [fmean(values) for values in zip(*(run[key].values() for run in runs), strict=True)]


if __name__ == "__main__":
    main()
