"""``python run.py pivot``: from expert traces to the pivots that ``--algo pivotrl --env pivot`` trains on."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_agents.cli import pivot_profile
from rl_agents.cli.parser import Parser
from rl_agents.config import parse_assignments
from rl_agents.config.options import keys_of
from rl_agents.envs.base import env_spec, make_env, read_env_options, starter_spec, task_ids
from rl_agents.envs.options import ColumnKeys
from rl_agents.errors import InputError, unknown
from rl_agents.installation import as_called, command
from rl_agents.reporting.outputs import check_writable
from rl_agents.rollout.demonstrations import solves
from rl_agents.traces.desk import desk_record
from rl_agents.traces.files import read_tool_file
from rl_agents.traces.turns import Extraction, extract_turns, statistics_table

SUMMARY = "Prepare expert traces for `--algo pivotrl --env pivot`: extract turns, profile them, keep the pivots."


def run(argv: Sequence[str]) -> int:
    steps = "\n".join(f"  {name:12} {summary}" for name, (_, summary) in STEPS.items())
    if not argv:
        raise InputError(f"pivot needs a step: {', '.join(STEPS)} (see run.py pivot --help)")
    if argv[0] in ("-h", "--help"):
        print(as_called(f"usage: run.py pivot STEP ...\n\n{SUMMARY}\n\nsteps (run.py pivot STEP --help):\n{steps}"))
        return 0
    if argv[0] not in STEPS:
        raise unknown("pivot step", argv[0], STEPS)
    return STEPS[argv[0]][0](argv[1:])


def demo_traces(argv: Sequence[str]) -> int:
    """Write traces of a scripted expert as JSON lines."""
    parser = Parser("pivot demo-traces", "Write traces of an environment's scripted player as OpenAI chat messages.")
    parser.add_argument("--output", type=Path, required=True, metavar="F.jsonl", help="file to write")
    parser.add_argument(
        "--env", default="pivot", metavar="NAME",
        help="environment with a scripted player (default: pivot, a customer-service help desk)",
    )  # fmt: skip
    parser.add_count("--traces", 400, "number of traces")
    parser.add_argument(
        "--mediocre", action="store_true", help="use the imperfect demonstrator even where there is an expert"
    )
    parser.add_seed()
    parser.add_settings_flag()
    args = parser.parse(argv)
    from rl_agents.algorithms import Settings

    if args.mediocre and args.env == "pivot":
        raise InputError("--mediocre: environment pivot only has an expert")
    _check_free(args.output)
    settings = Settings.from_dict(parse_assignments(args.set))
    read_env_options(env_spec(args.env), settings.env_options, chosen=settings.env_options)
    options, turns = settings.env_options, settings.max_turns
    records = demonstrated_records(args.env, options, args.traces, args.seed, args.mediocre, turns)
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(text, "utf-8")
    has_expert = args.env == "pivot" or starter_spec(args.env, options).expert is not None
    player = "expert" if has_expert and not args.mediocre else "demonstrator"
    print(f"{args.traces} traces by the {player}: {args.output}")
    return 0


def extract(argv: Sequence[str]) -> int:
    args = _extract_parser().parse(argv)
    from rl_agents.traces.files import read_traces, refuse_defects
    from rl_agents.traces.store import TURNS_FILE, write_turns

    _check_free(args.output / TURNS_FILE)
    tools = read_tool_file(args.tools) if args.tools else ()
    columns = keys_of(ColumnKeys)["columns"].read(args.columns, "--") if args.columns else None
    reading = read_traces(*args.traces, tools=tools, infer=args.infer_tools, columns=columns)
    for defect in reading.defects:
        print(str(defect), file=sys.stderr)
    if not args.skip_bad:
        refuse_defects(reading.defects, len(reading.traces))
    for domain, (count, inferred) in reading.inferred.items():
        names = ", ".join(tool.name for tool in inferred) or "none"
        print(f"inferred tools of {count} traces ({' '.join(domain.split())[:100]}): {names}")
    rules = ("min_reward", "only_calls", "drop_failed_calls", "thoughts")
    extracted = extract_turns(reading.traces, Extraction(**{name: getattr(args, name) for name in rules}))
    if not extracted.turns:
        raise InputError(f"no turns are left of {len(reading.traces)} traces; excluded: {dict(extracted.left_out)}")
    print(statistics_table(extracted.turns))
    write_turns(args.output / TURNS_FILE, extracted.turns)
    left_out = {"defective traces": len(reading.defects), **extracted.left_out}
    said = ", ".join(f"{count} {reason}" for reason, count in left_out.items() if count) or "nothing"
    print(f"{len(extracted.turns)} turns from {len(reading.traces)} traces; excluded: {said}")
    print(f"turns: {args.output / TURNS_FILE}")
    return 0


def filter_turns(argv: Sequence[str]) -> int:
    """Keep the pivots of a profile, or random turns; plot the profile."""
    args = _filter_parser().parse(argv)
    from rl_agents.pivot import PivotRule, choose_at_random, choose_pivots, plot_profile, read_profile
    from rl_agents.traces.store import PIVOTS_FILE, PROFILE_FILE, write_table

    source = args.traces / PROFILE_FILE if args.traces.is_dir() else args.traces
    default = f"random_{PIVOTS_FILE}" if args.random is not None else PIVOTS_FILE
    output = args.output or source.with_name(default)
    _check_free(output)
    table, mean, variance = read_profile(source)
    rule = PivotRule(args.max_mean, args.min_variance, args.at_most)
    keep = choose_pivots(mean, variance, table.column("turn_id").to_pylist(), rule)
    if args.random is not None:
        keep = choose_at_random(len(mean), args.random or int(keep.sum()), args.seed)
    if not keep.any():
        raise InputError(
            f"{source}: none of {len(mean)} turns has a variance above {rule.min_variance:g} and a mean below "
            f"{rule.max_mean:g}; raise --max-mean, use another model or verifier, or draw at random with --random N"
        )
    write_table(output, table.filter(keep))
    picture = output.with_suffix(".png")
    plot_profile(mean, variance, keep, rule, picture, f"{output.stem} of {table.num_rows} turns")
    uniform = float((variance <= rule.min_variance).mean())
    print(f"{uniform:.0%} of {len(mean)} turns are uninformative; {int(keep.sum())} are kept")
    print(f"pivots: {output}\npicture: {picture}")
    words = ("--algo", "pivotrl", "--env", "pivot", "--set", f"env.pivots={output}", "model=DIR")
    print(f"train with: {command(*words)}")
    return 0


def _extract_parser() -> Parser:
    parser = Parser("pivot extract", "Read expert traces and write every assistant turn with its history.")
    parser.add_argument(
        "--traces", type=Path, nargs="+", required=True, metavar="F",
        help="tables (JSONL, JSON, CSV, Parquet, a folder, hub:NAME) with OpenAI chats, NeMo-Gym rows, tau-bench "
        "histories, ShareGPT conversations or prompts with responses; or a pool",
    )  # fmt: skip
    parser.add_argument(
        "--columns", metavar="FIELD:COLUMN,...", help="columns to read, such as messages:dialogue,tools:tools_json"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="output folder")
    parser.add_argument("--skip-bad", action="store_true", help="skip defective traces (each is reported)")
    parser.add_argument(
        "--min-reward", type=float, default=1.0, metavar="R", help="skip traces with a reward below R (default: 1)"
    )
    parser.add_argument("--only-calls", action="store_true", help="skip turns without a tool call")
    parser.add_argument("--drop-failed-calls", action="store_true", help="skip calls whose result is an error")
    parser.add_argument(
        "--thoughts", choices=("apart", "inline"), default="apart",
        help="reasoning: `apart` (default): as the chat template renders it, not imitated; `inline`: part of the text",
    )  # fmt: skip
    parser.add_argument("--tools", type=Path, metavar="F.json", help="tool definitions for traces that have none")
    parser.add_argument(
        "--infer-tools", action="store_true",
        help="infer tool definitions from the calls: per system prompt that several tasks share, else per table",
    )  # fmt: skip
    return parser


def _filter_parser() -> Parser:
    parser = Parser("pivot filter", "Keep the pivots: turns with a score variance above 0 and a mean below λ_diff.")
    parser.add_argument("--traces", type=Path, required=True, metavar="DIR", help="output of pivot profile")
    parser.add_argument("--output", type=Path, metavar="F.parquet", help="output file (default: next to the profile)")
    parser.add_argument("--max-mean", type=float, default=0.6, metavar="M", help="λ_diff (default: 0.6)")
    parser.add_argument(
        "--min-variance", type=float, default=1e-9, metavar="V", help="variances up to V count as 0 (default: 1e-9)"
    )
    parser.add_count("--at-most", 0, "keep at most the N hardest (default: all)", least=0)
    parser.add_argument(
        "--random", type=int, nargs="?", const=0, metavar="N",
        help="draw N random turns instead; without N, as many as would be kept",
    )  # fmt: skip
    parser.add_seed()
    return parser


def _check_free(path: Path) -> None:
    if path.exists():
        raise InputError(f"{path} already exists; choose another --output")
    check_writable(path)


def demonstrated_records(
    env: str, options: Mapping[str, Any], traces: int, seed: int, mediocre: bool = False, max_turns: int = 0
) -> Iterator[dict[str, Any]]:
    """Yield one record in OpenAI's chat format per episode.

    The reward is 1 if the repeated actions solve the task; `pivot extract` keeps those.

    Args:
        env: name; ``pivot`` is the help desk.
        mediocre: use the demonstrator of the warm-start model even if there is an expert.
        max_turns: of an episode; 0: the environment's.

    Raises:
        InputError: the environment has no demonstrator.
    """
    if env == "pivot":
        yield from (desk_record(number, seed) for number in range(traces))
        return
    starter, tasks = starter_spec(env, options), task_ids(env, "train", options)
    demonstrate = starter.expert if starter.expert and not mediocre else starter.demonstrate
    world, read = make_env(env, options, max_turns), read_env_options(env_spec(env), options)
    for number in range(traces):
        rng = random.Random(f"demo-traces/{seed}/{number}")
        task = rng.choice(tasks)
        dialogue = demonstrate(task, rng, read, max_turns)
        messages = [
            {"role": role, "content": text}
            for observation, action in dialogue
            for role, text in (("user", observation), ("assistant", action))
        ]
        solved = solves(world, task, [action for _, action in dialogue])
        yield {"id": f"{task}#{number}", "reward": float(solved), "messages": messages}


#: Step -> (function, summary).
STEPS: dict[str, tuple[Callable[[Sequence[str]], int], str]] = {
    "demo-traces": (demo_traces, "write example traces by a scripted expert"),
    "extract": (extract, "read traces and write their turns"),
    "profile": (pivot_profile.run, "run every turn K times with the initial policy and score the actions"),
    "filter": (filter_turns, "keep the pivots, or as many random turns"),
}
