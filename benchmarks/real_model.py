"""A pretrained model of 135 M parameters, SmolLM2-135M-Instruct, on four tasks, from one imitated start per task.

    python -m benchmarks.real_model --world treasure --local --seeds 3
    python -m benchmarks.real_model --world clerk --local --arms grpo --seeds 3

The model is converted and the start is imitated once (``runs/real_model``). Prompts, limits, episodes per iteration and
the learning rate are equal for all arms of a task. Success is that of the policy on test games at temperature 1.
`benchmarks.real_methods` compares methods, from several starts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks import airline, clerk
from benchmarks.equal_steps import sets
from benchmarks.grid import Arm, grid_parser, markdown, run_grid

FOLDER = Path("runs/real_model")
BASE = FOLDER / "smollm2"


@dataclass(frozen=True)
class World:
    """A task for the pretrained model.

    Attributes:
        env: its name.
        keys: of every run, imitation included.
        train: of every method.
        sft: what the start is imitated with, besides the environment's defaults.
        episodes: of an iteration.
        group: of them that share a task, in methods that compare groups.
        steps: of an iteration of the search.
    """

    env: str
    keys: tuple[str, ...]
    train: tuple[str, ...]
    episodes: int
    group: int
    steps: int
    sft: tuple[str, ...] = ()


CLERK = FOLDER / "clerk_data"
AIRLINE = FOLDER / "airline_data"
COMMON = ("dtype=bfloat16", "tokens_per_microbatch=2048")
TRAIN = ("lr=2e-5", "prefix_sharing=true")
WORLDS = {
    "treasure": World(
        "gymnasium:benchmarks.treasure:Treasure",
        (*COMMON, "max_response_tokens=8", "max_model_len=320"),
        ("env.success_return=1", "iterations=12", "eval_interval=4", "checkpoint_interval=12", "eval_episodes=128"),
        episodes=80, group=8, steps=160,
    ),
    "webshop": World(
        "webshop",
        (*COMMON, "max_response_tokens=16", "max_model_len=320", "max_turns=8"),
        ("iterations=10", "eval_interval=5", "checkpoint_interval=10", "eval_episodes=128"),
        episodes=64, group=8, steps=250,
        sft=("demonstrations=256", "iterations=8"),
    ),
    "clerk": World(
        "mcp",
        (*COMMON, f"env.servers={CLERK}/servers.json", f"env.tasks={CLERK}/train.jsonl",
         f"env.test_tasks={CLERK}/test.jsonl", "max_turns=4", "max_response_tokens=72", "max_model_len=512"),
        ("iterations=10", "eval_interval=5", "checkpoint_interval=10", "eval_episodes=132"),
        episodes=48, group=8, steps=140,
        sft=("tasks_per_iteration=32", "group_size=1", "iterations=6", "eval_episodes=0"),
    ),
    "airline": World(
        "pivot",
        (*COMMON, f"env.test_share={airline.TEST_SHARE}", "max_response_tokens=96", "max_model_len=768"),
        ("iterations=8", "eval_interval=4", "checkpoint_interval=8", "eval_episodes=120"),
        episodes=64, group=8, steps=0,
        sft=(f"env.pivots={AIRLINE / airline.TURNS}",),
    ),
}  # fmt: skip
LORA = "grpo, LoRA"
#: What an arm changes at last.
LAST = {LORA: ("lora_rank=16", "lr=2e-4")}


def methods(world: World) -> dict[str, tuple[str, ...]]:
    """The keys of each arm on a task; `benchmarks.real_methods` compares methods."""
    tasks = f"tasks_per_iteration={world.episodes // world.group}"
    if world.env == "pivot":
        turns = ("algo=pivotrl", tasks, f"group_size={world.group}")
        files = {"pivotrl": airline.PIVOTS, "pivotrl, random turns": airline.RANDOM}
        return {name: (*turns, f"env.pivots={AIRLINE / file}") for name, file in files.items()}
    groups = ("algo=grpo", tasks, f"group_size={world.group}")
    return {"grpo": groups, LORA: groups}


def start_of(name: str, number: int = 0) -> Path:
    """Return the folder of a start, from the repository's root; made, with its number as the seed, when it is absent.

    The turns of ``airline`` must be there: ``python -m benchmarks.airline HISTORY.json runs/real_model/airline_data``.
    """
    world, folder = WORLDS[name], FOLDER / (f"{name}-{number}" if number else name)
    if not BASE.is_dir():
        command("model", "smollm2", "--output", str(BASE))
    if name == "clerk":
        return clerk_start(world, folder, number)
    if not folder.is_dir():
        base = tools_base() if name == "airline" else BASE
        where = ("--model", str(base), "--output", str(folder), *(("--seed", str(number)) if number else ()))
        command("sft", "--env", world.env, *where, *sets((*world.keys, *world.sft)))
    if name == "airline" and not (AIRLINE / airline.PIVOTS).is_file():
        flags = ["--local", "--traces", str(airline.train_turns(AIRLINE)), "--model", str(folder)]
        command("pivot", "profile", *flags, *sets(world.keys))
        airline.choose(AIRLINE)
    return folder


def command(*words: str) -> None:
    """Run a command of run.py in a process of its own, which does not keep its memory beside that of later runs."""
    subprocess.run([sys.executable, "-m", "rl_agents", *words], check=True)


def tools_base() -> Path:
    """Return the model with a template that has tools."""
    base = FOLDER / "smollm2_tools"
    if not base.is_dir():
        shutil.copytree(BASE, base, copy_function=os.link)
        (base / "chat_template.jinja").unlink()
        (base / "chat_template.jinja").write_text(clerk.TEMPLATE, encoding="utf-8")
    return base


def clerk_start(world: World, run: Path, number: int) -> Path:
    """Return a start of the tool task: the model after imitating chats of a file."""
    data = run.with_name(f"{run.name}_data")
    for folder in {CLERK, data}:  # the servers' file names this checkout
        clerk.write(folder, number + 1)
    if not run.is_dir():
        demonstrated = f"demonstration_data={data}/demonstrations.jsonl"
        keys = sets((*world.keys, *world.sft, demonstrated, "lr=5e-5", f"model={tools_base()}"))
        flags = ["--algo", "sft", "--env", world.env, "--local", "--output", str(run), "--seed", str(number)]
        command(*flags, *keys)
    return max(run.glob("checkpoints/*/hf"))


def arm(name: str, world: World, start: Path) -> Arm:
    """The flags of a method."""
    keys = (*methods(world)[name], *TRAIN, f"env={world.env}", f"model={start}", *world.keys, *world.train)
    return Arm(name, sets((*keys, *LAST.get(name, ()))))


def main() -> None:
    """Run, print the table and write the files."""
    parser = grid_parser(__doc__, "")
    parser.add_argument("--world", default="treasure", choices=list(WORLDS))
    parser.add_argument("--arms", nargs="+")
    args = parser.parse_args()
    args.name = args.name or f"real_model_{args.world}"
    world, start = WORLDS[args.world], start_of(args.world)
    arms = run_grid([arm(name, world, start) for name in args.arms or methods(world)], args)
    print(markdown(arms))


if __name__ == "__main__":
    main()
