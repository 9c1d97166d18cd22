"""``python run.py doctor --gpu``: a self-test of two minutes of how weights reach engines here, a death included."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rl_agents.algorithms import Settings
from rl_agents.inference.base import EngineError, EngineSettings
from rl_agents.inference.weight_sync.choose import choose_transfer

#: Seconds for one update; far more than the tiny model needs.
DEADLINE_S = 60.0
#: Seconds for an answer of the actor that sends: its start, and all tries of an update.
SENDER_S = 300.0


@dataclass(frozen=True)
class Line:
    """One thing that was tried: ``ok``, ``FAILS`` or ``note``."""

    status: str
    about: str
    text: str


def examine_transfer(args: argparse.Namespace) -> int:
    """Start engines with a tiny model, give them weights, kill one, bring it back; return 1 when something fails.

    Raises:
        InputError: vLLM cannot run here.
    """
    from ray.exceptions import RayError

    from rl_agents.inference.select import resolve_engine

    resolve_engine("vllm")
    logging.getLogger("ray").setLevel(logging.CRITICAL)  # that an engine dies is no news here
    lines: list[Line] = []

    def tell(line: Line) -> None:
        lines.append(line)
        if not args.json:
            print(f"{line.status:5}  {line.about:10} {line.text}", flush=True)

    # Where the output is JSON, what Ray says about the engine that is killed must not stand in it.
    words = contextlib.redirect_stdout(sys.stderr) if args.json else contextlib.nullcontext()
    with words, _ray():
        gpus = _gpus()
        way, engines, share, why = plan(gpus)
        tell(Line("note", "machine", why))
        with tempfile.TemporaryDirectory(prefix="rl-agents-doctor-") as folder:
            try:
                _test(build_tiny_model(Path(folder)), way, engines, share, tell)
            except (EngineError, RayError) as error:
                tell(Line("FAILS", "engines", str(error) or repr(error)))
        for chosen in would_choose(gpus):
            tell(Line("note", "a run", chosen))
    failed = any(line.status == "FAILS" for line in lines)
    if args.json:
        print(json.dumps({"lines": [asdict(line) for line in lines], "works": not failed}))
    else:
        print("it does not work: see FAILS above" if failed else "weights travel, and engines come back")
    return 1 if failed else 0


def plan(gpus: float) -> tuple[str, int, float, str]:
    """Return how weights are sent in the test, how many engines there are, GPUs of each, and a sentence about it."""
    if gpus >= 2:
        engines = min(2, int(gpus) - 1)
        return "nccl", engines, 1.0, f"{gpus:g} GPUs; one for the sender, {engines} for engines, over nccl:"
    if gpus:
        return "ipc", 1, 0.5, "one GPU, which sender and engine share, over ipc:"
    return "gloo", 2, 0.0, "no GPU here; the same test over gloo:"


def would_choose(gpus: float) -> list[str]:
    """Say what ``weight_transfer=auto`` would choose for runs on this cluster."""
    shared, apart = Settings(), Settings()
    shared.gpus_per_learner, shared.gpus_per_engine = 0.4, 0.5
    apart.gpus_per_learner, apart.gpus_per_engine = 1.0, 1.0
    cases = (
        {"learner and engine on one GPU": shared, "on GPUs of their own": apart} if gpus else {"on CPUs": Settings()}
    )
    choices = {name: choose_transfer(settings, "vllm", bool(gpus)) for name, settings in cases.items()}
    return [f"{name}: weight_transfer=auto takes {choice.way} ({choice.reason})" for name, choice in choices.items()]


def _test(model_dir: Path, way: str, engines: int, share: float, tell: Callable[[Line], None]) -> None:
    from rl_agents.inference.engine_group import InferenceGroup

    settings = EngineSettings(
        str(model_dir), kind="vllm", max_model_len=256, kv_cache_gb=0.0625, weight_transfer=way,
        dtype="bfloat16" if share else "float32", vllm_args={"gpu_memory_utilization": 0.3} if share else {},
    )  # fmt: skip
    started = time.monotonic()
    group = InferenceGroup(settings, num_engines=engines, num_gpus=share)
    tell(Line("ok", "start", f"{engines} vLLM engines in {time.monotonic() - started:.1f} s"))
    try:
        sender = _Sender(model_dir, group, way, share)
        _two_updates(sender, settings.dtype, tell)
        _death(sender, settings.dtype, tell)
    finally:
        group.stop()


class _Sender:
    """The learner's part: new weights every time, and the way that they go."""

    def __init__(self, model_dir: Path, group: Any, way: str, share: float) -> None:
        import ray

        self.group, self.way, self.version = group, way, 0
        self.learner: Any = None
        if share:  # the tensors must be on a GPU, in a process that may use it
            self.learner = ray.remote(num_gpus=share)(GpuLearner).remote(str(model_dir), way)
        self.model = _Weights(model_dir)

    def send(self) -> float:
        """Change all weights and send them; return seconds. Raises what `InferenceGroup.sync` raises."""
        import ray

        self.version += 1
        packed = self.model.changed(self.version)
        started = time.monotonic()
        if self.learner is None:
            self.group.sync(packed, self.version, DEADLINE_S)
        else:
            call = self.learner.send
            self.group.sync_by(
                lambda handles: ray.get(call.remote(packed, handles, self.version, DEADLINE_S), timeout=SENDER_S),
                lambda: packed,
                self.version,
            )
        return time.monotonic() - started

    def wrong(self, engine: int, dtype: str) -> tuple[list[str], int]:
        """Compare an engine's checksums with what was sent last; see `differing`."""
        import ray

        from rl_agents.inference.weight_sync.checksums import differing

        (found,) = ray.get(self.group.handles()[engine].weight_checksums.remote(), timeout=DEADLINE_S)
        return differing(self.model.weights, dtype, found)


class _Weights:
    """A model's weights, which change when they are asked for."""

    def __init__(self, model_dir: Path) -> None:
        from safetensors.torch import load_file

        self.weights = load_file(str(model_dir / "model.safetensors"))

    def changed(self, seed: int) -> Any:
        import torch

        from rl_agents.inference.weights import pack

        generator = torch.Generator().manual_seed(seed)
        for tensor in self.weights.values():
            tensor += 0.02 * torch.randn(tensor.shape, generator=generator)
        return pack(self.weights)


class GpuLearner:
    """An actor with a GPU that sends weights as a learner does."""

    def __init__(self, model_dir: str, way: str) -> None:
        self.way = way
        self.weights: dict[str, Any] = {}
        self.handles: list[Any] = []
        self.session: Any = None

    def send(self, packed: Any, handles: list[Any], version: int, timeout_s: float) -> Any:
        """Send ``packed`` to the engines; return what came of those that do not have it."""
        from rl_agents.inference.weight_sync.native import NativeSession, PolicySource
        from rl_agents.inference.weight_sync.session import RayPeers
        from rl_agents.inference.weights import unpack

        self.weights = {name: tensor.to("cuda") for name, tensor in unpack(packed).items()}
        if self.session is None:
            source = PolicySource(lambda: iter(self.weights.items()))
            self.session = NativeSession(RayPeers(lambda engine: self.handles[engine]), self.way, source)
        if self.handles != handles:
            self.session.close()
            self.handles = handles
        return self.session.update(range(len(handles)), None, version, timeout_s)


def _two_updates(sender: _Sender, dtype: str, tell: Callable[[Line], None]) -> None:
    first, second = sender.send(), sender.send()
    tell(Line("ok", "update", f"init and the first one in {first:.2f} s, the second in {second:.2f} s"))
    _checksums(sender, range(len(sender.group.handles())), dtype, tell)


def _checksums(sender: _Sender, engines: Any, dtype: str, tell: Callable[[Line], None]) -> None:
    for engine in engines:
        wrong, compared = sender.wrong(engine, dtype)
        text = f"engine {engine}: {compared - len(wrong)} of {compared} parameters as sent"
        tell(Line("FAILS" if wrong or not compared else "ok", "checksums", text + "".join(f", not {n}" for n in wrong)))


def _death(sender: _Sender, dtype: str, tell: Callable[[Line], None]) -> None:
    """Kill the last engine before an update, and bring it back."""
    group = sender.group
    last = len(group.handles()) - 1
    group.handles()[last].apply.remote(lambda actor: os.kill(os.getpid(), signal.SIGKILL))
    started = time.monotonic()
    try:
        sender.send()
        tell(Line("note", "death", f"engine {last} was killed, and restarted before the update"))
    except EngineError as error:
        seconds = time.monotonic() - started
        late = seconds > DEADLINE_S
        tell(Line("FAILS" if late else "ok", "death", f"engine {last} killed; after {seconds:.1f} s: {error}"))
    _checksums(sender, range(last), dtype, tell)
    started = time.monotonic()
    group.restore()
    tell(Line("ok", "recovery", f"engine {last} is back after {time.monotonic() - started:.1f} s"))
    _checksums(sender, [last], dtype, tell)
    tell(Line("ok", "recovery", f"the next update, to all engines, took {sender.send():.2f} s"))
    _checksums(sender, range(last + 1), dtype, tell)


def build_tiny_model(folder: Path) -> Path:
    """Write a checkpoint of 0.1 M random parameters; return its folder."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=True,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


@contextlib.contextmanager
def _ray() -> Iterator[None]:
    """Join a Ray cluster or start one, as a run does."""
    import ray

    from rl_agents.trainer.ray_init import ensure_ray

    if ray.is_initialized():
        yield
        return
    ensure_ray(3)
    try:
        yield
    finally:
        ray.shutdown()


def _gpus() -> float:
    import ray

    return float(ray.cluster_resources().get("GPU", 0))
