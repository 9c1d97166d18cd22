"""What sampling was measured to cost here, by engine: one small JSON file for each model shape, in the cache folder.

``run.py doctor --engines`` writes them, ``engine=auto`` reads them. A file holds for what its `Subject` names: the
model's shape and not its weights, the context's length, this machine's processor, and the versions of whoever
calculates. Anything else has another file's name.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from rl_agents.cache import cache_dir
from rl_agents.durable import replace_text
from rl_agents.engines.model_shape import ModelShape
from rl_agents.engines.select import vllm_version
from rl_agents.errors import InputError
from rl_agents.installation import version_of
from rl_agents.version import __version__


@dataclass(frozen=True)
class Subject:
    """What a measurement holds for.

    Attributes:
        context: tokens, rounded up to a power of two: by it the engines differ as much as by the model's size.
        cores: that this process may use.
        torch, vllm, rl_agents: versions; ``vllm`` empty without one.
    """

    parameters: int
    layers: int
    hidden: int
    vocabulary: int
    dtype: str
    context: int
    cpu: str
    cores: int
    torch: str
    vllm: str
    rl_agents: str

    @property
    def file(self) -> Path:
        """Where its measurement lies, if there is one."""
        digest = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]
        return cache_dir() / "engines" / f"{digest}.json"


@dataclass(frozen=True)
class Measured:
    """What both engines cost, in the same rounds.

    Attributes:
        torch_us, vllm_us: CPU of all processes from the driver to the engine, us per sampled token, medians of rounds.
        ratio_low, ratio_high: vLLM's over the torch engine's in single rounds, lowest and highest.
        rounds: that were measured.
        what: was played.
        date: ISO.
    """

    torch_us: float
    vllm_us: float
    ratio_low: float
    ratio_high: float
    rounds: int
    what: str
    date: str

    def __post_init__(self) -> None:
        numbers = (self.torch_us, self.vllm_us, self.ratio_low, self.ratio_high)
        if not all(isinstance(n, int | float) and math.isfinite(n) and n > 0 for n in numbers):
            raise ValueError(f"costs of {numbers}")
        if not (isinstance(self.what, str) and isinstance(self.date, str) and isinstance(self.rounds, int)):
            raise ValueError("values of other types")

    @property
    def cheaper(self) -> str:
        """The engine that costs less."""
        return "torch" if self.torch_us <= self.vllm_us else "vllm"

    def __str__(self) -> str:
        dear, factor = ("vLLM", self.vllm_us / self.torch_us)
        if self.cheaper == "vllm":
            dear, factor = "the torch engine", 1 / factor
        return f"measured here on {self.date} ({self.what}): {dear} takes {factor:.1f} times the CPU of a token"


def subject(shape: ModelShape, dtype: str, context: int) -> Subject:
    """Return what a measurement of this model holds for, here and now.

    Args:
        context: ``max_model_len`` of the run.
    """
    return Subject(
        shape.parameters, shape.layers, shape.hidden, shape.vocabulary, dtype, 1 << (context - 1).bit_length(),
        processor(), cores(),
        version_of("torch"), vllm_version(), __version__,
    )  # fmt: skip


def read(about: Subject) -> Measured | None:
    """Return what was measured; None where nothing was, and, with a printed line, where the file is broken."""
    try:
        text = about.file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        _say_ignored(about.file, error)
        return None
    try:
        data = json.loads(text)
        if data["subject"] != asdict(about):
            raise ValueError("it is about something else")
        return Measured(**data["measured"])
    except (ValueError, TypeError, KeyError) as error:
        _say_ignored(about.file, error)
        return None


def keep(about: Subject, measured: Measured) -> Path:
    """Write a measurement in the place of an earlier one; readers see the old file or the new one.

    Raises:
        InputError: the cache folder cannot be written to.
    """
    try:
        about.file.parent.mkdir(parents=True, exist_ok=True)
        replace_text(about.file, json.dumps({"subject": asdict(about), "measured": asdict(measured)}, indent=1))
    except OSError as error:
        raise InputError(f"{about.file}: {error.strerror}; RL_AGENTS_CACHE=DIR names another cache folder") from None
    return about.file


def processor() -> str:
    """Return the processor's name."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _say_ignored(file: Path, error: Exception) -> None:
    why = f"{type(error).__name__}: {error}".splitlines()[0]
    line = f"[rl_agents] {file} is ignored ({why}); run.py doctor --engines writes a new one"
    print(line, file=sys.stderr, flush=True)
