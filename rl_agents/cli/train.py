"""``python run.py --algo grpo --env guess_numbers``: from flags to a finished run."""

from __future__ import annotations

import argparse
import copy
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.cli.failures import report_crash
from rl_agents.cli.parser import main_parser as build_parser
from rl_agents.cli.parser import show_start
from rl_agents.config import merge_flags
from rl_agents.config.loading import preset_files
from rl_agents.errors import EpisodesFail, InputError, PolicyFell
from rl_agents.installation import command, version_text
from rl_agents.interrupts import Interrupts
from rl_agents.reporting.outputs import nothing_left, one_process
from rl_agents.reporting.progress import Progress
from rl_agents.reporting.run_folder import RunFolder, check_fixed, restored_settings
from rl_agents.reporting.statistics import Interval, rose
from rl_agents.trainer.doubtful_keys import cautions
from rl_agents.trainer.ray_address import describe_session
from rl_agents.trainer.resolve import check_names, choose

if TYPE_CHECKING:
    from rl_agents.trainer.algorithm import AgentAlgorithm

#: What a first signal says where the run cannot stop at once.
WAITS = "[rl_agents] stopping after the present iteration and its checkpoint; a second signal does not wait for them"
ONLY_TRAINING = (
    "success changed by {:+.2f} on training tasks, but by {:+.2f} on test tasks: train on more different tasks"
)
#: Keys that are printed even if they have their default.
ESSENTIAL_KEYS = ("algo", "env", "model", "engine", "seed", "iterations", "lr")


@dataclass(frozen=True)
class RunPlan:
    """A run that was checked but not started.

    Attributes:
        resumed: completed iterations, and the checkpoint to resume from (None: there is none); None: a new run.
    """

    settings: Settings
    output: Path
    resumed: tuple[int, Path | None] | None = None


def run(argv: Sequence[str]) -> int:
    args = build_parser().parse(argv)
    if args.version:
        print(version_text())
        return 0
    plan = plan_resume(args) if args.resume else plan_new(args)
    if plan.resumed and plan.resumed[0] == plan.settings.iterations and _is_finished(plan):
        print(f"{plan.output} has completed all {plan.settings.iterations} iterations; raise --iterations to continue")
        return 0
    if plan.settings.num_env_runners or plan.settings.num_learners:
        print(f"[rl_agents] {describe_session()}", flush=True)
    print(describe(plan.settings), flush=True)
    for line in [*([plan.settings.lengths] if plan.settings.lengths else []), *cautions(plan.settings)]:
        print(f"[rl_agents] {textwrap.fill(line, 98, subsequent_indent='  ')}", flush=True)
    try:
        with taken_back(plan), Interrupts(WAITS) as interrupts:
            return 0 if _train(plan, interrupts) else 130
    except InputError:
        raise
    except PolicyFell as error:
        print(
            f"error: {error}\nResume with: {command('--resume', plan.output, '--set', 'collapse_monitor=warn')}",
            file=sys.stderr,
        )
        return 1
    except Exception as error:
        saved = RunFolder(plan.output).complete_checkpoints()
        repeats = isinstance(error, EpisodesFail) and error.repeats
        hint = f"Resume with: {command('--resume', plan.output)}" if saved and not repeats else ""
        show = args.local and not isinstance(error, EpisodesFail)  # whose traceback is not useful
        return report_crash(error, plan.output, show=show, hint=hint)


@contextmanager
def taken_back(plan: RunPlan) -> Iterator[None]:
    """Remove a new run's folder, or a resumed run's new keys, if bad input ends it before its first iteration."""
    folder = RunFolder(plan.output)
    with one_process(plan.output) if plan.resumed else nullcontext():
        output, known = folder.config_file if plan.resumed else plan.output, folder.read_metrics()
        with nothing_left(output, begun=lambda: any(r["iteration"] and r not in known for r in folder.read_metrics())):
            yield


def plan_new(args: argparse.Namespace) -> RunPlan:
    """Resolve the configuration of a new run without writing anything.

    Raises `InputError`: a problem with flags, recipe or output folder.
    """
    flags, file = named_flags(args), args.config
    if not file:
        flags, file = chosen_algorithm(flags)
    settings = prepare(choose(flags, file, args.local))
    output = args.output or default_output(f"{settings.env}-{settings.algo}")
    RunFolder.check_free(output)
    return RunPlan(settings, output)


def chosen_algorithm(flags: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the flags and the algorithm's preset if no recipe is named (empty: none); print which.

    An algorithm without environment and model may have a preset.
    """
    algo = ALGORITHMS.get(str(flags.get("algo", "")))
    if algo is None or not algo.preset or not flags.keys().isdisjoint(("env", "model")):
        return dict(flags), ""
    print(f"--algo {algo.name} without --env uses the preset tune_configs/recipes/{algo.preset}", flush=True)
    return {name: value for name, value in flags.items() if name != "algo"}, str(preset_files()[Path(algo.preset).stem])


def plan_resume(args: argparse.Namespace) -> RunPlan:
    """Resolve the configuration of a resumed run without writing anything.

    Raises `InputError`: not a run with a checkpoint, or flags that would make it a different run.
    """
    folder, iteration, checkpoint = RunFolder.resumable(args.resume)
    if args.config:
        raise InputError(f"--config with --resume: the run continues with {folder.config_file}; change keys with --set")
    if args.output and args.output.resolve() != folder.path.resolve():
        raise InputError(f"--output with --resume: the run continues in {folder.path}")
    folder.read_builds()  # damaged: reported before anything is written
    if checkpoint:
        folder.check_whole(checkpoint)
    settings, flags = folder.load_settings(), named_flags(args)
    if checkpoint and checkpoint == args.resume.resolve():
        settings = written_with(checkpoint, settings, flags)
    before, settings.tasks_changed = copy.deepcopy(settings), "refuse"  # each change is accepted by itself
    settings.update(flags)
    check_fixed(f"--resume {args.resume}", before, settings)
    if args.local:
        settings.make_local(flags)
    settings = prepare(settings)
    if settings.iterations < iteration:
        raise InputError(f"iterations={settings.iterations}: the checkpoint is already at iteration {iteration}")
    return RunPlan(settings, folder.path, (iteration, checkpoint))


def written_with(checkpoint: Path, latest: Settings, flags: Mapping[str, Any]) -> Settings:
    """Return the keys with which a checkpoint was written; print those that a later resume has changed.

    Raises `InputError`: it has no valid config.yaml.
    """
    settings, now = restored_settings(checkpoint / "config.yaml"), latest.to_dict()
    changed = [f"{k}={v}" for k, v in settings.to_dict().items() if k not in flags and now.get(k) != v]
    if changed:
        print(f"{checkpoint} continues with the keys that it was written with, not config.yaml's: {' '.join(changed)}")
    return settings


def named_flags(args: argparse.Namespace) -> dict[str, Any]:
    """Merge ``--set`` with the flags that are keys; raises as `merge_flags`."""
    names = ("algo", "env", "model", "pool", "iterations", "seed")
    return merge_flags(args.set, {name: getattr(args, name, None) for name in names})


def describe(settings: Settings) -> str:
    """Return the essential keys and those that differ from the defaults as text."""
    defaults, now = Settings().to_dict(), settings.to_dict()
    always = (*ESSENTIAL_KEYS, *ALGORITHMS[settings.algo].variants)
    del now["environments"]
    shown = [f"{name}={value}" for name, value in now.items() if name in always or defaults.get(name) != value]
    for name, part in settings.parts.items():
        own = {key: value for key, value in part.to_dict().items() if value not in (now.get(key), [])}
        shown.append(" ".join([f"[{name}: weight={part.weight:g}", *(f"{key}={own[key]}" for key in own)]) + "]")
    return textwrap.fill(" ".join(shown), 110, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def build_algorithm(settings: Settings) -> AgentAlgorithm:
    from rl_agents.trainer.algorithm import AgentAlgorithm

    return AgentAlgorithm.from_settings(settings)


def prepare(settings: Settings, notes: TextIO | None = None) -> Settings:
    """Return chosen keys resolved and measured; ``notes`` is the stream of the "loading libraries" line.

    Raises `InputError`: the configuration cannot work.
    """
    check_names(settings)  # before torch is imported, which takes seconds
    show_start(notes or sys.stdout)
    from rl_agents.trainer.measure import ready

    return ready(settings)


def _train(plan: RunPlan, interrupts: Interrupts) -> bool:
    """Build, restore and run; return False if a signal ended the run early."""
    from rl_agents.trainer.train_loop import TrainLoop

    with interrupts.abortable():
        algo = build_algorithm(plan.settings)
    try:
        interrupts.install()
        if plan.resumed:
            completed, checkpoint = plan.resumed
            if checkpoint is not None:
                algo.restore_run_checkpoint(checkpoint)
            folder = RunFolder(plan.output)
            folder.cut_after(completed)
            folder.save_settings(plan.settings)
        else:
            folder = RunFolder.create(plan.output, plan.settings)
        progress = Progress(dtype=algo.settings.dtype)
        progress.note(algo.engine_description)
        if plan.resumed:
            progress.note(f"resumed from {plan.resumed[1] or 'the beginning: there is no checkpoint yet'}")
        with nullcontext() if plan.resumed else one_process(folder.path):
            done = TrainLoop(algo, folder, progress, interrupts).run()
    finally:
        algo.stop()
    _print_outcome(folder, done)
    return done


def _print_outcome(folder: RunFolder, done: bool) -> None:
    summary = folder.read_summary()
    for line in success_lines(summary) if done else ():
        print(line)
    if not done:
        last = max((iteration for iteration, _ in folder.complete_checkpoints()), default=0)
        lost = f" (saved up to {last})" if last != summary["iterations"] else ""
        resume = command("--resume", folder.path)
        print(f"stopped after iteration {summary['iterations']}{lost}; resume with: {resume}")
    print(f"output: {folder.path}", flush=True)


def success_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return success on test and on training tasks at both ends of a run, and whether mainly the latter rose."""
    tested, trained, lines = _ends(summary, "success"), _ends(summary, "policy"), []
    if tested:
        span = f"{summary['iterations']} iterations, {summary['seconds']:.0f} s"
        tasks = f"{summary['eval_episodes']} episodes of {summary['eval_tasks']} tasks"
        lines.append(f"success on the test tasks: {tested[0]:.2f} -> {tested[1]:.2f} in {span}; {tasks}")
    for name, own in summary.get("environments", {}).items():
        if ends := _ends(own, "success"):
            lines.append(f"  {name}: {ends[0]:.2f} -> {ends[1]:.2f}")
    if trained:
        lines.append(f"success on training tasks: {trained[0]:.2f} -> {trained[1]:.2f}, first and last iterations")
    if tested and trained and rose(*trained):
        test, training = (end.mean - start.mean for start, end in (tested, trained))
        lines += [ONLY_TRAINING.format(training, test)] * (test < training / 2)
    return lines


def _ends(summary: Mapping[str, Any], name: str) -> list[Interval]:
    """Return a success rate at the start and at the end; empty if they were not measured."""
    found = [f"{name}_{end}" for end in ("start", "end") if summary[f"{name}_{end}"] is not None]
    intervals = [Interval(summary[end], low, high, 0) for end in found for low, high in [summary[f"{end}_interval"]]]
    return intervals if len(found) == 2 else []


def default_output(kind: str) -> Path:
    """Return a new folder name below runs/, made of ``kind`` and the time."""
    stem = f"{kind}-{time.strftime('%Y%m%d-%H%M%S')}".replace(":", "-").replace("/", "-").replace(",", "+")
    candidates = (Path("runs") / name for name in (stem, *(f"{stem}-{n}" for n in range(2, 1000))))
    return next(path for path in candidates if not path.exists())


def _is_finished(plan: RunPlan) -> bool:
    summary = RunFolder(plan.output).read_summary()
    evaluated = not plan.settings.eval_episodes or summary.get("success_end") is not None
    return summary.get("status") == "done" and evaluated
