"""Learning curves over seeds: does it learn, how surely, and what does it cost?

    python -m benchmarks.learning_curves --algos grpo ppo --seeds 3         # run.py's default job
    python -m benchmarks.learning_curves --name family --local --jobs 2 --presets --set eval_episodes=382

Writes benchmarks/results/NAME.json and NAME.png: success on the frozen test tasks (sampling temperature 1) before,
during and after training. ``--presets`` takes each algorithm's small preset tune_configs/recipes/ENV_ALGO_small.yaml or
ENV_ALGO.yaml, or that of guess_numbers, which names nothing of its environment, where there is no such file.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.grid import RESULTS, Arm, grid_parser, markdown, plot, run_grid
from rl_agents.algorithms import ALGORITHMS

RECIPES = Path(__file__).parents[1] / "tune_configs" / "recipes"


def main() -> None:
    """Run, print the table and write the files."""
    parser = grid_parser(__doc__, "default_job")
    rollout_algorithms = [name for name, recipe in ALGORITHMS.items() if recipe.source == "rollouts"]
    parser.add_argument("--algos", nargs="+", default=rollout_algorithms)
    parser.add_argument("--env", default="guess_numbers")
    parser.add_argument("--presets", action="store_true")
    args = parser.parse_args()
    arms = run_grid([Arm(algo, flags(algo, args.env, args.presets)) for algo in args.algos], args)
    print(markdown(arms))
    plot(arms, RESULTS / f"{args.name}.png", f"{args.env}, {args.seeds} seeds")


def preset(algo: str, env: str) -> Path:
    """Return a recipe for two cores: where papers' sizes have the plain name, its name ends in ``_small``."""
    name = algo.replace("reinforce++", "reinforce_pp").replace("-", "_")
    small = RECIPES / f"{env}_{name}_small.yaml"
    return small if small.is_file() else RECIPES / f"{env}_{name}.yaml"


def flags(algo: str, env: str, presets: bool) -> tuple[str, ...]:
    """Return the flags that choose an algorithm, by its small preset or by its defaults."""
    if not presets:
        return ("--algo", algo, "--env", env)
    own, borrowed = preset(algo, env), preset(algo, "guess_numbers")
    config = ("--config", str((own if own.is_file() else borrowed).relative_to(Path.cwd())))
    return config if own.is_file() else (*config, "--env", env)


if __name__ == "__main__":
    main()
