"""StepPO against PPO where a step is long: doors after thoughts of sixty tokens (benchmarks/long_thoughts.py).

    python -m benchmarks.steppo_rooms --local

Both at two discounts, and StepPO without one of its parts each; without both it is PPO. Every arm has the same keys but
for what its name says; lambda is 1 as in the paper, and there is no KL term. A ratio of steps is clipped at 0.02 and
0.03, one of tokens at 0.2, as in our small presets. Tuned: iterations and episodes, on "ppo, gamma 0.99" alone.

The columns say how often the door of the first and of the last room was right in the last iterations of training.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from benchmarks.equal_steps import sets
from benchmarks.grid import RESULTS, Arm, Run, grid_parser, markdown, plot, run_grid
from benchmarks.long_thoughts import ROOMS

COMMON = (
    "env=gymnasium:benchmarks.long_thoughts:Rooms", "starter_iterations=8", "env.test_tasks=200", "eval_episodes=200",
    "eval_interval=0", "iterations=14", "tasks_per_iteration=64", "group_size=1", "minibatches=4", "lr=1e-3",
    "critic_lr=1e-3", "critic_warmup=2", "gae_lambda=1", "kl_coef=0",
)  # fmt: skip
STEPPO = ("algo=steppo", *COMMON)
STEP_RATIO = ("clip_low=0.02", "clip_high=0.03")
TOKEN_RATIO = ("ratio_level=token", "clip_low=0.2", "clip_high=0.2")
TOKEN_GAE = ("steppo_credit=token_gae",)
KEYS: dict[str, tuple[str, ...]] = {
    "ppo, gamma 0.99": ("algo=ppo", *COMMON, "gamma=0.99"),
    "ppo, gamma 0.95": ("algo=ppo", *COMMON, "gamma=0.95"),
    "steppo, gamma 0.99": (*STEPPO, *STEP_RATIO, "gamma=0.99"),
    "steppo, gamma 0.95": (*STEPPO, *STEP_RATIO, "gamma=0.95"),
    "token GAE": (*STEPPO, *STEP_RATIO, *TOKEN_GAE, "gamma=0.99"),
    "token ratio": (*STEPPO, *TOKEN_RATIO, "gamma=0.99"),
}


def main() -> None:
    """Run, print the table and write the files."""
    parser = grid_parser(__doc__, "steppo_rooms")
    parser.add_argument("--arms", nargs="+", default=list(KEYS), choices=list(KEYS))
    args = parser.parse_args()
    arms = run_grid([Arm(name, sets(KEYS[name])) for name in args.arms], args)
    print(markdown(arms, {f"right in the {room}": right(room) for room in (ROOMS[0], ROOMS[-1])}))
    plot(arms, RESULTS / f"{args.name}.png", f"doors after long thoughts, {args.seeds} seeds")


def right(room: str) -> Callable[[list[Run]], str]:
    """Mean over the seeds of how often the room's door was right, in the last iterations of training."""
    return lambda runs: f"{fmean(run['environment'][f'right_{room}'] for run in runs):.2f}"


if __name__ == "__main__":
    main()
