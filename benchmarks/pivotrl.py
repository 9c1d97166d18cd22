"""PivotRL, imitation, ablations and end-to-end RL, compared in the training domain and outside of it.

    python -m benchmarks.pivotrl --local --jobs 2
    python -m benchmarks.pivotrl --panel five_domains --local --jobs 2 --seeds 5

Built once, in the cache folder: a small base model that imitates mediocre demonstrators of the panel's environments
(`benchmarks.domains`), traces of WebShop's scripted expert, and their turns, profile and pivots. Every arm trains that
model on WebShop only. Its checkpoints are evaluated on test tasks of WebShop (in domain) and of the others (out of
domain): complete episodes, temperature 1. Of two domains every checkpoint is evaluated, of five the last one. The base
itself is an arm without training.

There are two experts. The first writes like the demonstrator of the base, which plays worse. The foreign expert
writes the words of its searches in reverse order, which does not change the search results.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

from benchmarks import grid
from benchmarks.domains import DOMAINS, PANELS, register
from benchmarks.grid import Arm, Run, grid_parser, markdown, read_run, run_command, run_grid, trained
from benchmarks.report import RESULTS, drawn
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
#: Panel -> file of its results.
FILES = {"two_domains": "pivotrl", "five_domains": "pivotrl_panel"}
#: Trained on, and the other one of two.
SHOP, PUZZLES = PANELS["two_domains"]
#: Arms of five domains, for each expert.
COMPARED = ("sft", "PivotRL")
#: Costs of an arm without training.
NOTHING = {"seconds": 0.0, "cpu_seconds": 0.0, "sampled_tokens": 0, "engine_logprob_gap_max": 0.0}
#: Folder of an expert's turns -> suffix of its arms' names.
EXPERTS = {"expert": "", "foreign": ", foreign expert"}
#: Placeholder in stored flags for the folder with model and turns, which differs between machines.
DATA = "<data>"
_SEARCH = re.compile(r"search\[([^\]]*)\]")


def main() -> None:
    parser = grid_parser(__doc__, "")
    parser.add_argument("--panel", default="two_domains", choices=list(FILES))
    args = parser.parse_args()
    args.name = args.name or FILES[args.panel]
    folder = cache_dir() / "benchmarks" / FILES[args.panel]
    for expert in EXPERTS:
        prepare(folder, expert, args.panel)
    two = args.panel == "two_domains"
    arms = [arm for expert in EXPERTS for arm in expert_arms(expert) if two or arm.name.partition(",")[0] in COMPARED]
    runs = run_grid([BASE, END_TO_END, *arms], args, partial(run_arm, folder, args.panel))
    print(markdown(runs))
    if two:
        plot(runs, RESULTS / f"{args.name}.png")


# --- preparation


def prepare(folder: Path, name: str, panel: str) -> None:
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


def play(model: Path, env: str, seed: int) -> float:
    """Return success on the test tasks of an environment: complete episodes, temperature 1."""
    flags = ("--model", str(model), "--env", env, "--episodes", str(DOMAINS[env].episodes), "--seed", str(seed))
    report = json.loads(run_command(["eval", *flags, "--local", "--json", *env_keys(env), *keys(lengths(env))]))
    return float(report["success"]["per_seed"][0])


# --- arms


def arm(name: str, algo: str, iterations: int, *further: str) -> Arm:
    """Return an arm with the shared model, learning rate and 128 samples per update."""
    common = keys(
        {**lengths(SHOP), "model": f"{DATA}/base", "lr": "5e-4", "checkpoint_interval": iterations // CHECKPOINTS},
        keep_checkpoints=0, eval_interval=0, eval_episodes=1,
    )  # fmt: skip
    return Arm(name, ("--algo", algo, "--iterations", str(iterations), *common, *further))


GROUPS = keys(tasks_per_iteration=16, group_size=8)
BASE = Arm("base", ())
END_TO_END = arm("end-to-end GRPO", "grpo", 30, "--env", "webshop", *env_keys("webshop"), *GROUPS)


def expert_arms(expert: str) -> list[Arm]:
    suffix, folder = EXPERTS[expert], f"{DATA}/{expert}"

    def pivots(name: str, file: str, verifier: Mapping[str, object]) -> Arm:
        chosen = keys({"env.pivots": f"{folder}/{file}.parquet", **verifier})
        return arm(f"{name}{suffix}", "pivotrl", 60, "--env", "pivot", *chosen, *GROUPS)

    turns = keys({"env.pivots": f"{folder}/turns.parquet"})
    batches = keys(tasks_per_iteration=128, group_size=1, demonstrations=4096, minibatches=1)
    return [
        arm(f"sft{suffix}", "sft", 60, "--env", "pivot", *turns, *batches),
        pivots("random turns, strict reward", "random_pivots", {"env.verifier": "exact"}),
        pivots("random turns", "random_pivots", VERIFIER),
        pivots("PivotRL", "pivots", VERIFIER),
    ]


def placed(folder: Path, flags: Sequence[str]) -> list[str]:
    return [flag.replace(DATA, str(folder)) for flag in flags]


def run_arm(folder: Path, panel: str, flags: Sequence[str], seed: int) -> Run:
    """Train one arm, then evaluate checkpoints on the test tasks of the panel; the base is only evaluated.

    By iteration: ``success`` in WebShop, ``retained``, the mean of the others, and ``rollout_turns`` until then,
    without profiling. ``panel``: each of the others at last.
    """
    if "--algo" not in flags:
        return {**shown([("0", folder / "base")], panel, seed), **NOTHING}
    with trained(placed(folder, flags), seed) as output:
        run, own = read_run(output), RunFolder(output)
        checkpoints = own.complete_checkpoints()[0 if panel == "two_domains" else -1 :]
        records = own.read_metrics()
        found = shown([(str(iteration), path / "hf") for iteration, path in checkpoints], panel, seed)
    turns = {str(n): grid.total_until(records, n, "rollout/turns") for n, _ in checkpoints}
    return {**run, **found, "rollout_turns": turns}


def shown(models: Sequence[tuple[str, Path]], panel: str, seed: int) -> Run:
    rates = {mark: {env: play(model, env, seed) for env in PANELS[panel]} for mark, model in models}
    others = {mark: {env: rate for env, rate in own.items() if env != SHOP} for mark, own in rates.items()}
    return {
        "success": {mark: own[SHOP] for mark, own in rates.items()},
        "retained": {mark: fmean(own.values()) for mark, own in others.items()},
        "panel": list(others.values())[-1],
    }


# --- pictures


def plot(arms: dict[str, list[Run]], path: Path) -> None:
    """Plot, for each expert, success in domain over rollout turns, and success out of domain over success in domain."""
    start = [_curve(arms["base"], key)[-1] for key in ("success", "retained")]
    with drawn(path, 2, 2, figsize=(11, 8.4)) as (_, axes):
        for (left, right), (expert, suffix) in zip(axes, EXPERTS.items(), strict=True):
            for number, name in enumerate(own.name for own in (END_TO_END, *expert_arms(expert))):
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
