"""``python run.py replay RUN --iterations A:B``: repeat a run's learner updates and compare them with the record."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.cli.parser import Parser, show_start
from rl_agents.cli.train import resolve_settings
from rl_agents.config.options import keys_of
from rl_agents.config.sections import CriticKeys, LossKeys, ModelKeys, OptimizerKeys, PolicyGradientKeys
from rl_agents.errors import InputError
from rl_agents.reporting.run_folder import RunFolder
from rl_agents.store.reader import PoolReader
from rl_agents.store.records import SETTINGS
from rl_agents.store.token_scores import TOKENS_FILE, TokenScores

if TYPE_CHECKING:
    from rl_agents.trainer.replay import Replay

SUMMARY = (
    "Repeat the learner updates of a run from its pool, without rollouts, and compare advantages and weights with\n"
    "the recorded ones. Exit code 0: equal; 1: different."
)


def build_parser() -> Parser:
    parser = Parser("replay", SUMMARY)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument(
        "--iterations", metavar="A:B",
        help="from the checkpoint after A iterations (0: the start) to B (default: 0 to the newest checkpoint)",
    )  # fmt: skip
    parser.add_argument(
        "--tokens", action="store_true",
        help="write the learner's values for every sampled token (advantage, ratio, logprob mismatch, entropy, "
        f"correction, mask) to RUN/{TOKENS_FILE}, which `run.py view` shows",
    )  # fmt: skip
    return parser


def run(argv: Sequence[str]) -> int:
    args = build_parser().parse(argv)
    folder = RunFolder(args.run.resolve())
    if not folder.config_file.is_file():
        missing = "not the output folder of a run (no config.yaml)" if args.run.is_dir() else "no such folder"
        raise InputError(f"{args.run}: {missing}")
    kept = dict(folder.complete_checkpoints())
    done = max([0, *kept, *(record["iteration"] for record in folder.read_metrics())])
    if not done:
        raise InputError(f"{args.run}: nothing to replay: the run has completed no iteration")
    start, end = chosen_range(args.iterations or f"0:{max(kept, default=done)}", done)
    if start and start not in kept:
        there = ", ".join(["0 (the start)", *map(str, sorted(kept))])
        raise InputError(f"--iterations {start}:{end}: no checkpoint at iteration {start}; available: {there}")
    settings = settings_of(folder, start, end) if folder.pool.is_file() else folder.load_settings()
    show_start(sys.stdout)
    from rl_agents.trainer.replay import (
        Record,
        Replay,
        Replayer,
        TokenRecorder,
        check_pool,
        refuse_unrecorded,
        replay_settings,
    )

    refuse_unrecorded(settings, folder.pool)
    with PoolReader(folder.pool) as reader:
        check_pool(reader, settings, kept.values())
        record = Record.read(reader, settings, start, end)
        scores = TokenScores(args.run.resolve() / TOKENS_FILE) if args.tokens else None
        algo = Replayer.from_settings(resolve_settings(replay_settings(settings)))
        try:
            if start:
                algo.restore_run_checkpoint(kept[start])
            found = Replay(algo, record, lambda line: print(line, flush=True))
            if scores is not None:
                found.tokens = TokenRecorder(algo.learner_group, scores)
            equal = found.run(start, end, kept)
        finally:
            algo.stop()
            if scores is not None:
                scores.close()
    if found.tokens is not None:
        print(f"{args.run / TOKENS_FILE}: {found.tokens.tokens} tokens")
    print(verdict(found, f"replay of {start}:{end}", equal, end, sorted(kept)))
    return 0 if equal else 1


def chosen_range(text: str, done: int) -> tuple[int, int]:
    """Read ``A:B``. Raises `InputError`: not two numbers, A not below B, or B above the run's iterations."""
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if match is None:
        raise InputError(f"--iterations {text}: write A:B, two numbers of completed iterations, such as 0:{done}")
    start, end = int(match[1]), int(match[2])
    if start >= end:
        raise InputError(f"--iterations {text}: {start} must be below {end}")
    if end > done:
        raise InputError(f"--iterations {text}: the run has completed {done} iterations")
    return start, end


def settings_of(folder: RunFolder, start: int, end: int) -> Settings:
    """Return the settings in the range, which the pool records: a resumed run may have changed keys.

    Raises:
        InputError: keys of the learner changed within the range.
    """
    spans = [(0, folder.load_settings())]  # of a pool that does not record them
    with PoolReader(folder.pool) as reader:
        for event in reader.events():
            if found := event.facts.get(SETTINGS):  # the run began or resumed here: later iterations do not count
                spans = [span for span in spans if span[0] < event.iteration]
                spans.append((event.iteration, Settings.restored(found, folder.pool)))
    settings = [one for iteration, one in spans if iteration <= start][-1]
    for iteration, later in spans:
        for name in sorted(learner_keys(settings)) if start < iteration < end else ():
            if (old := getattr(settings, name)) != (new := getattr(later, name)):
                raise InputError(
                    f"--iterations {start}:{end}: {name} changed from {old} to {new} when the run was resumed after "
                    f"iteration {iteration}; replay {start}:{iteration} and {iteration}:{end}"
                )
    return settings


def learner_keys(settings: Settings) -> set[str]:
    """Return the keys that affect updates."""
    sections = (ModelKeys, LossKeys, PolicyGradientKeys, CriticKeys, OptimizerKeys)
    found = {name for section in sections for name in keys_of(section)} | {"temperature", "seed"}
    found |= ALGORITHMS[settings.algo].reads
    schedule = {"iterations"} if settings.lr_decay else set()
    return (found | schedule) - {"learner_nodes", "learner_timeout_s"}


def verdict(found: Replay, what: str, equal: bool, end: int, kept: Sequence[int]) -> str:
    """Return the last line; ``kept`` are the iterations of existing checkpoints."""
    if not equal:
        return f"{what}: {len(found.differences)} differences from the record; the first: {found.differences[0]}"
    if end in found.equal:
        return f"{what}: equal bit for bit, advantages and weights"
    at = f"weights up to checkpoint {max(found.equal)}" if found.equal else "no weights"
    at += f"; to compare the weights of iteration {end}, train with keep_checkpoints=0"
    at += f", or replay 0:{kept[-1]}, which compares with checkpoints {', '.join(map(str, kept))}" if kept else ""
    return f"{what}: equal in what is recorded: advantages; {at}"
