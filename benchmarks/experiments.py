"""Grids of training runs: ``python -m benchmarks.experiments NAME [flags]``; ``NAME --help`` has the flags of one.

Each writes benchmarks/results/NAME.json and NAME.png: success on fixed test tasks (sampling temperature 1) before,
during and after training. Finished runs are not repeated, so a second command adds its arms to those of the first.
"""

from __future__ import annotations

import inspect
import itertools
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.equal_steps import sets
from benchmarks.grid import Arm, Column, Run, grid_parser, markdown, mean_of, plot, run_cell, run_grid
from benchmarks.long_thoughts import ROOMS
from benchmarks.report import RESULTS, add_options, command_line
from rl_agents.algorithms import ALGORITHMS
from rl_agents.config import Settings
from rl_agents.envs.base import env_spec
from rl_agents.errors import InputError

RECIPES = Path(__file__).parents[1] / "tune_configs" / "recipes"
Keys = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Experiment:
    """A comparison of arms; the docstring of ``arms`` is its help text.

    Attributes:
        options: further flags of the command line and their defaults.
        columns: of the table, in addition to those of every grid.
        keys: of every arm.
        title: of the picture; empty: the environment.
        name: of the results; empty: the experiment's.
        local: always run in one process.
        cell: makes one run; `run_cell` by default.
    """

    arms: Callable[[Namespace], Sequence[Arm]]
    options: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, Column] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    title: str = ""
    name: str = ""
    local: bool = False
    cell: Callable[[Namespace], Callable[..., Run] | None] = lambda args: None


def main(argv: Sequence[str] | None = None) -> None:
    argv = sys.argv[1:] if argv is None else list(argv)
    if not argv or argv[0] not in EXPERIMENTS:
        chosen = command_line(__doc__)
        chosen.usage = "%(prog)s NAME [flags]"
        chosen.add_argument("name", choices=list(EXPERIMENTS), metavar="NAME", help=", ".join(EXPERIMENTS))
        chosen.parse_args(argv[:1])
        return
    experiment = EXPERIMENTS[argv[0]]
    parser = grid_parser(inspect.getdoc(experiment.arms), experiment.name or argv[0])
    parser.add_argument("--arms", nargs="+", metavar="NAME", help="some of the arms (default: all)")
    add_options(parser, experiment.options)
    args = parser.parse_args(argv[1:])
    args.set, args.local = [*experiment.keys, *args.set], args.local or experiment.local
    grids = [{"env": "guess_numbers", **vars(args)}]
    if "envs" in experiment.options:
        grids = [{**vars(args), "env": env, "name": f"{args.name}_{env}"} for env in args.envs]
    try:
        for grid in grids:
            run(experiment, Namespace(**grid))
    except InputError as error:
        parser.error(str(error))


def run(experiment: Experiment, args: Namespace) -> None:
    """Run one grid.

    Raises:
        InputError: ``--arms`` names none of its arms.
    """
    arms = {arm.name: arm for arm in experiment.arms(args)}
    if wrong := set(args.arms or ()) - arms.keys():
        raise InputError(f"--arms {wrong.pop()}: known: {', '.join(arms)}")
    runs = run_grid([arms[name] for name in args.arms or arms], args, experiment.cell(args))
    print(f"\n{args.name}\n\n{markdown(runs, experiment.columns)}")
    plot(runs, RESULTS / f"{args.name}.png", f"{experiment.title or args.env}, {args.seeds} seeds")


# --- columns


#: Share of truncated training episodes.
truncated = mean_of(lambda run: run.get("truncation_ratio", 0.0))
turns = mean_of("turns")
#: Share of groups of the first iteration whose episodes all have the same reward.
silent = mean_of(lambda run: run["zero_advantage"][0])
#: Share of an iteration in which the learner waited for rollouts, and in which no response was being sampled.
learner_idle = mean_of(lambda run: run.get("wait_seconds", run["rollout_seconds"]) / run["iteration_seconds"])
engine_idle = mean_of(lambda run: 1 - run["engine_busy"])


def updates(runs: list[Run], target: float = 0.70, window: int = 5) -> str:
    """First iteration whose last ``window`` have a mean training success of ``target``; else the run's length."""

    def first(successes: list[float]) -> int:
        ends = range(window, len(successes) + 1)
        return next((end for end in ends if fmean(successes[end - window : end]) >= target), len(successes))

    return f"{fmean(first(run['training_success']) for run in runs):.1f}"


def right(room: str) -> Column:
    """Return a column: how often the room's door was right in the last iterations of training."""
    return mean_of(lambda run: run["environment"][f"right_{room}"])


def effective(runs: list[Run]) -> str:
    return mean_of("ess")(runs) if "ess" in runs[0] else "-"


def staleness_seen(runs: list[Run]) -> str:
    """Mean and largest staleness of steps, in versions."""
    return f"{mean_of('staleness', 1)(runs)} ({max(run['staleness_max'] for run in runs):.1f})"


# --- arms


def preset(algo: str, env: str) -> Path:
    """Return a recipe for two cores; its name ends in ``_small`` if the plain name is that of the paper's size."""
    name = algo.replace("reinforce++", "reinforce_pp").replace("-", "_")
    small = RECIPES / f"{env}_{name}_small.yaml"
    return small if small.is_file() else RECIPES / f"{env}_{name}.yaml"


def flags(algo: str, env: str, presets: bool) -> tuple[str, ...]:
    """Return flags for an algorithm: its small recipe, else that of guess_numbers, or only its defaults."""
    if not presets:
        return ("--algo", algo, "--env", env)
    own, borrowed = preset(algo, env), preset(algo, "guess_numbers")
    config = ("--config", str((own if own.is_file() else borrowed).relative_to(Path.cwd())))
    return config if own.is_file() else (*config, "--env", env)


def changed(base: Sequence[str], variants: Keys) -> list[Arm]:
    return [Arm(name, (*base, *sets(keys))) for name, keys in variants.items()]


def learning_curves(args: Namespace) -> list[Arm]:
    """Learning curves, their intervals and costs. ``--presets``: with each algorithm's small recipe."""
    return [Arm(algo, flags(algo, args.env, args.presets)) for algo in args.algos]


def t3(args: Namespace) -> list[Arm]:
    """Every algorithm with and without T3, evaluated without truncation.

    ``--rules``: the environment's progress rules (`default` keeps its own); ``--windows``: T3's k.
    """
    return [arm for algo in args.algos for arm in t3_arms(algo, args)]


def t3_arms(algo: str, args: Namespace) -> list[Arm]:
    base = flags(algo, args.env, args.presets)
    arms = [Arm(algo, base)]
    for rule, after, window in itertools.product(args.rules, args.after, args.windows):
        keys = ("truncation=t3", f"truncation_window={window}", f"truncation_after={after}")
        keys += () if rule == "default" else (f"env.progress={rule}",)
        name = f"{algo} + T3, {'' if rule == 'default' else rule + ', '}{after}, k={window}"
        arms.append(Arm(name, (*base, *sets(keys))))
    return arms


def active_reasoning(args: Namespace) -> list[Arm]:
    """T3's four further tasks: GRPO, GRPO with T3 (--windows 0: the environment's own), and StepPO."""
    own = env_spec(args.env).progress_window
    chosen = Namespace(env=args.env, presets=True, rules=["default"], after=["force_answer"])
    chosen.windows = [window or own for window in args.windows]
    arms = [arm for algo in args.algos for arm in t3_arms(algo, chosen)]
    return [*arms, *(Arm(algo, flags(algo, args.env, True)) for algo in args.plain)]


def vspo(args: Namespace) -> list[Arm]:
    """VSPO and GRPO on guess_numbers. Small groups often agree, which is the case that VSPO addresses."""
    variants: Keys = {
        "vspo": (), "vspo, random draws": ("vspo_mode=random",), "vspo, no clip": ("vspo_clip=false",),
        "vspo, alpha 4": ("vspo_alpha=4",), "vspo, T 1": ("vspo_temperature=1",),
    }  # fmt: skip
    plain = [Arm(algo, ("--algo", algo)) for algo in ("grpo", "dapo")]
    return [*plain, *changed(("--algo", "vspo"), variants)]


MIXED = (
    "env=gymnasium:benchmarks.mixed_doors:Doors", "starter_iterations=4", "env.test_tasks=400", "eval_episodes=400",
    "eval_interval=4", "iterations=24", "tasks_per_iteration=16", "group_size=8", "lr=1e-3",
)  # fmt: skip


def vspo_mixed(args: Namespace) -> list[Arm]:
    """VSPO against GRPO on tasks of mixed difficulty (benchmarks/mixed_doors.py), with as many episodes; GRPO gets
    VSPO's aggregation and KL term.

    V grows with the third power of the reward's span, so dividing T by 4.1**3 draws tasks as the paper's T does with
    rewards in [-1, 3.1], the span of its reward for long answers.
    """
    return changed((), vspo_keys())


#: An arm of VSPO that draws as with the span of rewards of the paper.
SPAN = "vspo, span 4.1"


def vspo_keys() -> Keys:
    """The keys of each arm of `vspo_mixed`."""
    own = ("algo=vspo", *MIXED)
    return {
        "grpo": ("algo=grpo", *MIXED, "loss_agg_mode=seq-mean-token-mean", "kl_coef=0.001"),
        "vspo": own,
        "vspo, random draws": (*own, "vspo_mode=random"),
        "vspo, no clip": (*own, "vspo_clip=false"),
        "vspo, random draws, no clip": (*own, "vspo_mode=random", "vspo_clip=false"),
        SPAN: (*own, "vspo_temperature=0.00145"),
        f"{SPAN}, no clip": (*own, "vspo_temperature=0.00145", "vspo_clip=false"),
    }


def prs(args: Namespace) -> list[Arm]:
    """Progressive reward shaping and the 0-1 reward. Success is always the environment's exact match.

    On multihop_qa the arms have the small recipes, and the format reward looks for the tags of the warm-start model.
    """
    tags = ('prs_tags=["answer"]',) if args.env == "multihop_qa" else ()
    found = []
    for algo in args.algos:
        base = ("--algo", algo) if args.env == "guess_numbers" else flags(algo, args.env, presets=True)
        found += [Arm(algo, base), Arm(f"{algo} + prs", (*base, *sets(("reward=prs", *tags))))]
    return found


WEAK_STARTER, WEAK_ITERATIONS = Path("runs/long_form_qa-weak"), 8


def prs_long_form(args: Namespace) -> list[Arm]:
    """Progressive reward shaping, long form, on long_form_qa. Success is always the environment's.

    The training reward is this (0-1), agreement with the reference (match, the paper's baseline), or the stages.
    ``--weak``: from a warm-start model after a third of the imitation steps.
    """
    rewards: Keys = {
        "0-1": (), "match": ("env.reward=match",), "prs": ("reward=prs", "prs_form=long", "prs_tags=[answer]"),
    }  # fmt: skip
    base = ("--config", "tune_configs/recipes/long_form_qa_grpo_small.yaml")  # VSPO has no small recipe here
    if args.weak and not WEAK_STARTER.is_dir():
        from rl_agents.trainer.algorithm import AgentAlgorithm
        from rl_agents.trainer.warm_start import build_starter

        build_starter(AgentAlgorithm.from_settings, "long_form_qa", WEAK_STARTER, set={"iterations": WEAK_ITERATIONS})
    chosen = {"grpo": ("0-1", "prs")} if args.weak else {"grpo": tuple(rewards), "vspo": ("0-1", "prs")}
    model = (f"model={WEAK_STARTER}",) if args.weak else ()
    return [
        Arm(f"{algo}, {name}", (*base, "--algo", algo, *(("--set", *keys) if keys else ())))
        for algo, names in chosen.items()
        for name in names
        for keys in [(*model, *rewards[name])]
    ]


TOKEN_RATIO, TOKEN_GAE = ("ratio_level=token", "clip_low=0.2", "clip_high=0.2"), ("steppo_credit=token_gae",)


def steppo(args: Namespace) -> list[Arm]:
    """StepPO and PPO at two discounts, and three ablations, on guess_numbers."""
    discounts: Keys = {f"ppo, gamma {gamma}": (f"gamma={gamma}",) for gamma in ("0.99", "0.95")}
    variants: Keys = {
        "steppo": (), "steppo, no KL": ("kl_coef=0",), "steppo, token GAE": TOKEN_GAE,
        "steppo, token ratio": TOKEN_RATIO, "steppo, both": (*TOKEN_GAE, *TOKEN_RATIO, "loss_agg_mode=token-mean"),
    }  # fmt: skip
    config = "tune_configs/recipes/guess_numbers_{}.yaml".format
    return [*changed(("--config", config("ppo")), discounts), *changed(("--config", config("steppo")), variants)]


LONG_STEPS = (
    "env=gymnasium:benchmarks.long_thoughts:Rooms", "starter_iterations=8", "env.test_tasks=200", "eval_episodes=200",
    "eval_interval=0", "iterations=14", "tasks_per_iteration=64", "group_size=1", "minibatches=4", "lr=1e-3",
    "critic_lr=1e-3", "critic_warmup=2", "gae_lambda=1", "kl_coef=0",
)  # fmt: skip
STEP_RATIO = ("algo=steppo", *LONG_STEPS, "clip_low=0.02", "clip_high=0.03")
LONG_STEP_KEYS: Keys = {
    **{f"ppo, gamma {gamma}": ("algo=ppo", *LONG_STEPS, f"gamma={gamma}") for gamma in ("0.99", "0.95")},
    **{f"steppo, gamma {gamma}": (*STEP_RATIO, f"gamma={gamma}") for gamma in ("0.99", "0.95")},
    "token GAE": (*STEP_RATIO, *TOKEN_GAE, "gamma=0.99"),
    "token ratio": ("algo=steppo", *LONG_STEPS, *TOKEN_RATIO, "gamma=0.99"),
}


def steppo_rooms(args: Namespace) -> list[Arm]:
    """StepPO and PPO with long steps: doors after thoughts of sixty tokens (benchmarks/long_thoughts.py).

    Both have two discounts; further arms are StepPO without one of its parts. Lambda is 1 as in the paper, and there
    is no KL term. Step ratios are clipped at 0.02 and 0.03, token ratios at 0.2, as in our small recipes.
    """
    return changed((), LONG_STEP_KEYS)


#: Corrections of stale rollouts; the learner's logprobs are those of the proximal policy, except in the first.
CORRECTIONS: Keys = {
    "naive": ("old_logprobs=engine",),
    "tis": (),
    "decoupled": ("old_logprobs=learner", "rollout_correction=icepop", "rollout_correction_bounds=[0,5]"),
    "icepop": ("old_logprobs=learner", "rollout_correction=icepop", "rollout_correction_bounds=[0.5,5]"),
}
#: Sizes for runs of about half a minute on one core, including evaluations.
STALE: Keys = {
    "grpo": ("iterations=40", "tasks_per_iteration=16"),
    "steppo": ("iterations=30", "tasks_per_iteration=128"),
}


def staleness(args: Namespace) -> list[Arm]:
    """Success with stale rollouts, with and without corrections (AReaL's table 3, at the level of steps).

    In one process, ``async_level=k`` samples batch i with the weights of iteration i - k. naive: ratios to the
    sampling policy. tis: the default; one weight per token (grpo) or step (steppo), capped at 2. decoupled: AReaL's
    code; one weight per token, tokens above 5 are dropped. icepop: also tokens below 0.5.
    """
    found = []
    for method, own in STALE.items():
        base = ("--config", f"tune_configs/recipes/guess_numbers_{method}.yaml")
        base += sets((*own, "eval_episodes=382", "eval_interval=0", "save_pool=false"))
        found.append(Arm(f"{method}, lag 0", base))
        lags: Keys = {
            f"{method}, lag {lag}, {name}": (f"async_level={lag}", *keys)
            for lag in (1, 2, 4, 8)
            for name, keys in CORRECTIONS.items()
        }
        found += changed(base, lags)
    return found


def asynchrony(args: Namespace) -> list[Arm]:
    """Wall time and success of asynchronous training and lag 0, with the same number of optimizer steps.

    Tools are slow (benchmarks/slow_tools.py); ``--quick-tools``: they are not, so that only overlap counts.
    """
    common = ("tasks_per_iteration=8", "group_size=8", "eval_interval=0", "eval_episodes=382", "checkpoint_interval=0")
    variants: Keys = {
        "lag 0": (),
        **{f"lag {lag}": (f"async_level={lag}",) for lag in (1, 2)},
        **{f"stream, staleness {most}": ("stream=true", f"max_staleness={most}") for most in (1, 2, 4)},
    }
    return changed(("--algo", "grpo", "--iterations", str(args.iterations), *sets(common)), variants)


def asynchrony_cell(args: Namespace) -> Callable[..., Run]:
    from rl_agents.trainer.algorithm import AgentAlgorithm
    from rl_agents.trainer.warm_start import ensure_model

    # Before tools become slow: the demonstrations have thousands of steps.
    ensure_model(Settings.from_dict({"env": "guess_numbers"}), AgentAlgorithm.from_settings)
    args.name += "_quick" if args.quick_tools else ""
    return partial(run_with_tools, slow=not args.quick_tools)


def run_with_tools(slow: bool, **cell: Any) -> Run:
    from benchmarks import slow_tools

    if slow:
        slow_tools.install()
        slow_tools.start_session(actors=3)
    return run_cell(**cell)


T3_COLUMNS: Mapping[str, Column] = {"truncated": truncated, "turns": turns}
EXPERIMENTS: Mapping[str, Experiment] = {
    "learning_curves": Experiment(
        learning_curves,
        {
            "algos": [name for name, spec in ALGORITHMS.items() if spec.source == "rollouts" and not spec.teacher],
            "env": "guess_numbers", "presets": False,
        },
        name="default_job",
    ),
    "active_reasoning": Experiment(
        active_reasoning,
        {
            "envs": ["circuit_decoding", "preference_estimation", "movie_recommendation", "situation_puzzles"],
            "algos": ["grpo"], "plain": ["steppo"], "windows": [0],
        },
        T3_COLUMNS, keys=("eval_episodes=300",), name="active",
    ),
    "t3": Experiment(
        t3,
        {
            "env": "guess_numbers", "algos": ["grpo", "ppo", "gspo"], "windows": [1, 2, 4], "rules": ["consistent"],
            "after": ["force_answer"], "presets": False,
        },
        T3_COLUMNS,
    ),
    "vspo": Experiment(vspo, columns={"updates to 0.70": updates}),
    "vspo_mixed": Experiment(
        vspo_mixed, columns={"silent at the start": silent}, title="doors of mixed difficulty"
    ),
    "prs": Experiment(prs, {"env": "guess_numbers", "algos": ["grpo", "vspo"]}),
    "prs_long_form": Experiment(prs_long_form, {"weak": False}, title="long_form_qa"),
    "steppo": Experiment(steppo, columns={"learn s": mean_of("learn_seconds")}),
    "steppo_rooms": Experiment(
        steppo_rooms, columns={f"right in the {room}": right(room) for room in (ROOMS[0], ROOMS[-1])},
        title="doors after long thoughts",
    ),
    "staleness": Experiment(staleness, columns={"effective sample size": effective}, local=True),
    "asynchrony": Experiment(
        asynchrony, {"iterations": 20, "quick_tools": False},
        {
            "seconds an iteration": mean_of("iteration_seconds", 1), "engine idle": engine_idle,
            "learner idle": learner_idle, "staleness mean (most)": staleness_seen,
        },
        cell=asynchrony_cell,
    ),
}  # fmt: skip

if __name__ == "__main__":
    main()
