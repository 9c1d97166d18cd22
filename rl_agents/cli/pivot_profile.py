"""``python run.py pivot profile``: K rollouts of every turn with the frozen initial policy."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rl_agents.chat.template import ChatOptions, ChatTemplate, chat_text, load_tokenizer
from rl_agents.cli.parser import Parser
from rl_agents.config import Settings
from rl_agents.config.loading import parse_assignments, refuse_keys
from rl_agents.envs.base import env_spec, read_env_options
from rl_agents.errors import InputError
from rl_agents.installation import command
from rl_agents.pivot import TurnOutcomes, claim_folder, count_parts, profile_summary, profile_turns, write_profile
from rl_agents.reporting.outputs import check_writable, nothing_left
from rl_agents.rewards.verifiers import make_verifier, self_check
from rl_agents.traces.turns import Turn
from rl_agents.trainer.resolve import choose

CANDIDATES_FILE, SUMMARY_FILE = "candidates.parquet", "profile.json"
#: Concurrent turns; a part of the key that identifies an interrupted profile.
CHUNK = 64
#: Keys that a profile depends on besides turns, model and verifier.
SAMPLING_KEYS = ("temperature", "top_p", "max_response_tokens", "max_model_len", "dtype")


def build_parser() -> Parser:
    parser = Parser("pivot profile", "Run every turn K times with the initial policy and score the actions.")
    parser.add_argument("--traces", type=Path, required=True, metavar="F", help="output of pivot extract, or traces")
    parser.add_argument("--model", required=True, metavar="DIR", help="a Hugging Face model folder, or `starter`")
    parser.add_argument("--output", type=Path, metavar="DIR", help="output folder (default: the folder of the turns)")
    parser.add_count("--rollouts", 8, "rollouts per turn", least=2, metavar="K")
    parser.add_argument("--verifier", metavar="NAME", help="same as --set env.verifier=NAME (default: tool_call)")
    parser.add_count("--limit", 0, "only N turns, spread over the file (default: all)", least=0)
    parser.add_seed()
    parser.add_argument(
        "--skip-bad", action="store_true", help="skip turns that the verifier or the chat template rejects"
    )
    parser.add_argument("--local", action="store_true", help="run in a single process, without Ray actors")
    parser.add_settings_flag(
        {"model": "--model", "seed": "--seed", "group_size": "--rollouts", "env.pivots": "--traces"}
    )
    return parser


def run(argv: Sequence[str]) -> int:
    args = build_parser().parse(argv)
    folder = args.output or (args.traces if args.traces.is_dir() else args.traces.parent)
    check_writable(folder / CANDIDATES_FILE)
    parts = count_parts(folder)
    with nothing_left(folder, begun=lambda: count_parts(folder) > parts):
        return _profile(args, folder)


def _profile(args: argparse.Namespace, folder: Path) -> int:
    flags = _flags(args)
    turns, left_out = _verified(_loaded(args), flags, args.skip_bad)
    settings = _settings(args, flags, turns, folder)
    turns, too_long = _fitting(turns, settings, args.skip_bad)
    if too_long:
        left_out["too long"] = too_long
        _write_candidates(folder, turns)
    claim_folder(folder, _key(settings, turns, args))
    for reason, count in left_out.items():
        print(f"excluded turns: {count} {reason}", file=sys.stderr)
    outcomes, seconds = _play(settings, turns, folder, args)
    path = write_profile(folder, turns, outcomes)
    summary = {**profile_summary(outcomes), "left_out": left_out, "seconds": round(seconds, 1)}
    from rl_agents.reporting.run_folder import json_safe

    (folder / SUMMARY_FILE).write_text(json.dumps(json_safe(summary), indent=1) + "\n", "utf-8")
    print(_sentence(summary))
    print(f"profile: {path}\nnext: {command('pivot', 'filter', '--traces', folder)}")
    return 0


def _flags(args: argparse.Namespace) -> dict[str, Any]:
    flags = parse_assignments(args.set)
    refuse_keys(flags, ("algo", "env"), "pivot profile sets it itself")
    if args.verifier:
        flags["env.verifier"] = args.verifier
    return flags


def _loaded(args: argparse.Namespace) -> list[Turn]:
    from rl_agents.traces.files import load_turns

    turns = load_turns(args.traces)
    if not args.limit or args.limit >= len(turns):
        return turns
    return [turns[i * len(turns) // args.limit] for i in range(args.limit)]


def _verified(turns: list[Turn], flags: dict[str, Any], skip_bad: bool) -> tuple[list[Turn], dict[str, int]]:
    """Return the turns whose demonstration the verifier accepts; without ``skip_bad``, all must pass."""
    given = {name.removeprefix("env."): value for name, value in flags.items() if name.startswith("env.")}
    options = read_env_options(env_spec("pivot"), given, chosen=given)
    check = self_check(make_verifier(options), turns)
    print(f"verifier {options.verifier}: {check.summary()}", file=sys.stderr)
    if not check.failures:
        return turns, {}
    if not skip_bad:
        raise InputError(f"verifier {options.verifier}: {check.summary()} (--skip-bad skips them)")
    refused = {turn.turn_id for turn, _ in check.failures}
    kept = [turn for turn in turns if turn.turn_id not in refused]
    return kept, {"rejected by their verifier": len(refused)}


def _settings(args: argparse.Namespace, flags: dict[str, Any], turns: list[Turn], folder: Path) -> Settings:
    from rl_agents.cli.train import prepare

    candidates = _write_candidates(folder, turns)
    flags = {
        **flags, "algo": "pivotrl", "env": "pivot", "model": str(args.model), "env.pivots": str(candidates),
        "group_size": args.rollouts, "seed": args.seed
    }  # fmt: skip
    settings = choose(flags, local=args.local)
    settings.update({"num_learners": 0})
    return prepare(settings)


def _write_candidates(folder: Path, turns: Sequence[Turn]) -> Path:
    from rl_agents.traces.store import write_turns

    if not turns:
        raise InputError("no turns are left to profile")
    path = folder / CANDIDATES_FILE
    write_turns(path, turns)
    return path


def _fitting(turns: Sequence[Turn], settings: Settings, skip_bad: bool) -> tuple[list[Turn], int]:
    """Return the turns that fit the context with a full response, and the number of others.

    Raises:
        InputError: the chat template cannot render a state.
    """
    template = ChatTemplate(load_tokenizer(_model_dir(settings)), ChatOptions.from_settings(settings))
    kept = []
    for turn in turns:
        chat = chat_text(turn.messages, [tool.to_openai() for tool in turn.tools])
        try:
            length = len(template.opening_chat(chat))
        except InputError as error:
            if skip_bad:
                continue
            raise InputError(f"{turn.place}: {error}") from None
        if length + settings.max_response_tokens <= settings.max_model_len:
            kept.append(turn)
    if not kept:
        raise InputError(
            f"none of {len(turns)} turns fits in max_model_len={settings.max_model_len} with "
            f"max_response_tokens={settings.max_response_tokens}; raise --set max_model_len=..."
        )
    return kept, len(turns) - len(kept)


def _key(settings: Settings, turns: Sequence[Turn], args: argparse.Namespace) -> dict[str, Any]:
    options = {f"env.{name}": value for name, value in settings.env_options.items() if name != "pivots"}
    return {
        "turns": hashlib.sha256("".join(turn.turn_id for turn in turns).encode()).hexdigest()[:16],
        "model": _weights_digest(_model_dir(settings)),
        "rollouts": args.rollouts,
        "chunk": CHUNK,
        "seed": args.seed,
        **{name: getattr(settings, name) for name in SAMPLING_KEYS},
        **options,
    }


def _model_dir(settings: Settings) -> Path:
    from rl_agents.trainer.algorithm import AgentAlgorithm
    from rl_agents.trainer.warm_start import ensure_model

    return ensure_model(settings, AgentAlgorithm.from_settings)


def _weights_digest(folder: Path) -> str:
    """Return a digest of a model's weights: names, sizes, and the first and last MiB of every file."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}".encode())
        with path.open("rb") as file:
            digest.update(file.read(1 << 20))
            file.seek(max(0, size - (1 << 20)))
            digest.update(file.read())
    return digest.hexdigest()[:16]


def _play(
    settings: Settings, turns: Sequence[Turn], folder: Path, args: argparse.Namespace
) -> tuple[list[TurnOutcomes], float]:
    from rl_agents.cli.train import build_algorithm

    started = time.monotonic()
    algo: Any = build_algorithm(settings)
    try:
        print(f"{algo.engine_description} {len(turns)} turns x {args.rollouts} rollouts", file=sys.stderr)
        outcomes = profile_turns(
            algo, turns, folder, rollouts=args.rollouts, chunk=CHUNK, seed=args.seed,
            on_progress=lambda done: _show(done, len(turns))
        )  # fmt: skip
    except KeyboardInterrupt:
        print("interrupted; run the same command again to continue", file=sys.stderr)
        raise
    finally:
        algo.stop()
    return outcomes, time.monotonic() - started


def _show(done: Sequence[TurnOutcomes], turns: int) -> None:
    """Print progress and results so far."""
    found = profile_summary(done)
    figures = ""
    if found["turns"]:
        figures = f"  mean score {found['mean_score']:.2f}  uninformative {found['uninformative_share']:.0%}"
    print(f"{len(done)}/{turns} turns{figures}", file=sys.stderr, flush=True)


def _sentence(summary: dict[str, Any]) -> str:
    if not summary["turns"]:
        return "no turn could be scored"
    miss = summary["exact_miss_rate"]
    exact = "no rollout was acceptable" if miss != miss else f"exact matching would reject {miss:.0%} of the acceptable"
    return (
        f"{summary['turns']:.0f} turns, mean score {summary['mean_score']:.2f}: {summary['uninformative_share']:.0%} "
        f"uninformative ({summary['solved_share']:.0%} always 1, {summary['failed_share']:.0%} always 0); {exact}"
    )
