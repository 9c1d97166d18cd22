"""On-policy distillation of the treasure game: from the agent that GRPO trained, and from the start with hints.

    python -m benchmarks.distill --local            # runs what is missing, and prints the table

The teacher is made by one GRPO run of `benchmarks.real_model` with seed 0. Students begin with the same start as that
run, and have its learning rate, prompts and limits. Success is that of the student on test games at temperature 1.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.doc_tables import on_file
from benchmarks.equal_steps import sets
from benchmarks.grid import Arm, grid_parser, markdown, plot, run_command, run_grid
from benchmarks.real_model import FOLDER, TRAIN, WORLDS, arm, start_of
from benchmarks.report import RESULTS

WORLD = WORLDS["treasure"]
NAME = "distill_treasure"
#: Half of GRPO's episodes in a third of its iterations, with as many updates an iteration as in `real_methods`.
EPISODES = WORLD.episodes // 2
SHORT = ("iterations=4", "eval_interval=0", "checkpoint_interval=0", "eval_episodes=64", "minibatches=8")
HINTED = "env=gymnasium:benchmarks.treasure:Hinted"
ARMS = {
    "distill": (),
    "distill, full KL": ("teacher_kl=full",),
    "distill, own hints": ("teacher=policy", HINTED),
}


def teacher() -> Path:
    """Return the folder of the agent that GRPO trained, from the repository's root; made when it is absent."""
    run = FOLDER / "treasure_teacher"
    if not (run / "summary.json").is_file():
        flags = arm("grpo", WORLD, start_of("treasure")).flags
        run_command(["--seed", "0", "--local", "--output", str(run), *flags])
    return max(run.glob("checkpoints/*/hf"))


def arms() -> list[Arm]:
    """The flags of each way to distill."""
    single = (f"tasks_per_iteration={EPISODES}", "group_size=1")
    shared = ("algo=distill", *single, *TRAIN, f"model={start_of('treasure')}", *WORLD.keys, *WORLD.train, *SHORT)
    common = (*shared, f"env={WORLD.env}", f"teacher={teacher()}")
    return [Arm(name, sets((*common, *keys))) for name, keys in ARMS.items()]


def main() -> None:
    """Run, print the table and draw the picture."""
    parser = grid_parser(__doc__, NAME)
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    args = parser.parse_args()
    print(markdown(run_grid([arm for arm in arms() if arm.name in args.arms], args)))
    found = {"grpo": on_file("real_model_treasure")["grpo"], **on_file(NAME)}
    plot(found, RESULTS / f"{NAME}.png", "SmolLM2-135M-Instruct, treasure")


if __name__ == "__main__":
    main()
