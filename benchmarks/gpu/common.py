"""What the measurements on GPUs share: models with random weights, a learner's pass, clocks, peak memory, tables."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gpu.live_bytes import LiveBytes
from rl_agents.config import Settings
from rl_agents.data.samples import Row
from rl_agents.inference.model_shape import ModelShape
from rl_agents.learner.batching import PADDED, SHARED, collate, laid_out
from rl_agents.learner.chunked_logprobs import piece_size
from rl_agents.learner.gpu_memory_estimate import KNOWN
from rl_agents.learner.hf import enable_recompute
from rl_agents.learner.logprobs import score_rows
from rl_agents.learner.prefix_attention import enable, pack_rows

RESULTS = Path(__file__).parents[1] / "results" / "gpu"
SHAPES: Mapping[str, ModelShape] = {
    "1.5b": KNOWN["Qwen2.5-1.5B-Instruct"],
    "7b": KNOWN["Qwen2.5-7B-Instruct"],
    # For computers without a GPU: 30 million parameters, a third of them in the vocabulary.
    "30m": ModelShape(8, 384, 1536, 6, 2, 64, 32_000, 4096, True),
    "tiny": ModelShape(2, 128, 256, 4, 2, 32, 512, 4096, True),
}
#: Dense bfloat16 peak, TFLOP/s, by what the device's name contains: makers' data sheets, without sparsity.
PEAKS = {"H200": 989.0, "H100 PCIe": 756.0, "H100": 989.0, "B200": 2250.0, "A100": 312.0, "L40S": 362.0}


def arguments(doc: str | None, given: Sequence[str] | None, **more: Any) -> argparse.Namespace:
    """Read the command line: what all measurements have, and ``more`` options by name with their defaults.

    Args:
        doc: the module's docstring.
        given: arguments; None: those of the process.
    """
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--tiny", action="store_true", help="a smoke test on any computer; its figures mean nothing")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the JSON file")
    for name, default in more.items():
        several = {"nargs": "+", "type": type(default[0])} if isinstance(default, list) else {"type": type(default)}
        parser.add_argument("--" + name.replace("_", "-"), default=default, **several)
    return parser.parse_args(given)


def device() -> torch.device:
    """The first GPU, or the CPU."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


def device_name() -> str:
    """Of the device, for tables."""
    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else "CPU"


def peak_tflops() -> float | None:
    """Dense bfloat16 peak of the device; None: not known."""
    return next((peak for name, peak in PEAKS.items() if name in device_name()), None)


# --- a learner -----------------------------------------------------------------------------------------------------


@dataclass
class Learner:
    """A policy with random weights, and a policy gradient's pass over rows as rl_agents' learner makes it.

    Attributes:
        forwarded: tokens that went through the network so far, padding included.
    """

    lm: Any
    settings: Settings
    piece: int | None
    forwarded: int = 0

    def update(self, rows: Sequence[Row]) -> None:
        """Gradients of all micro-batches, added up; no optimizer step."""
        self.lm.zero_grad(set_to_none=False)
        where = self.lm.device
        for part, layout in laid_out(rows, self.settings, self.lm.config.hidden_size):
            batch: dict[str, Any] = {**collate([rows[i] for i in part], where), "temperature": 1.0}
            ids = batch["input_ids"]
            if layout != PADDED:
                width = self.lm.config.hidden_size
                batch["packed"] = packed = pack_rows(ids, batch["mask"], width, share=layout == SHARED)
                ids = packed.input_ids
            self.forwarded += ids.numel()
            scores = score_rows(self.lm, batch, self.piece, precision(where))
            ratio = (scores["logprobs"] - scores["logprobs"].detach()).exp()
            (-(ratio * batch["advantages"] * batch["mask"]).sum()).backward()


def precision(where: torch.device) -> Any:
    """Weights are float32 and activations bfloat16, as in the learner with dtype=bfloat16; on CPUs all is float32."""
    return torch.autocast("cuda", torch.bfloat16) if where.type == "cuda" else nullcontext()


def learner(name: str, *, recompute: str = "", pieces: bool = True, **keys: Any) -> Learner:
    """Build one.

    Args:
        name: of `SHAPES`.
        recompute: `full`, `selective` or nothing.
        pieces: logits beyond 2 GiB in pieces.
        keys: settings, such as ``sequence_packing`` and ``tokens_per_microbatch``.
    """
    shape, where = SHAPES[name], device()
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(**config_keys(shape), attn_implementation="sdpa")
    with where:
        lm = Qwen2ForCausalLM(config)
    lm.train()
    settings = Settings.from_dict({"algo": "grpo", "max_model_len": shape.context, **keys})
    if settings.sequence_packing or settings.prefix_sharing:
        enable(lm, name, settings.max_model_len)
    if recompute:
        enable_recompute(lm, recompute)
    return Learner(lm, settings, piece_size(lm) if pieces else None)


def config_keys(shape: ModelShape) -> dict[str, Any]:
    """Keys of config.json."""
    return {
        "vocab_size": shape.vocabulary, "hidden_size": shape.hidden, "intermediate_size": shape.feed_forward,
        "num_hidden_layers": shape.layers, "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads,
        "max_position_embeddings": shape.context, "tie_word_embeddings": shape.tied,
    }  # fmt: skip


def rows_of(groups: int, size: int, prompt: int, shortest: int, longest: int, vocabulary: int) -> list[Row]:
    """Groups of rollouts of one prompt each, whose lengths are log-uniform: most are short, a few are long."""
    rng, rows = np.random.default_rng(0), list[Row]()
    for group in range(groups):
        read = rng.integers(0, vocabulary, prompt)
        for _ in range(size):
            said = int(np.exp(rng.uniform(np.log(shortest), np.log(longest + 1))))
            ids = np.concatenate([read, rng.integers(0, vocabulary, said)]).astype(np.int32)
            mask = (np.arange(len(ids)) >= prompt).astype(np.float32)
            zeros = np.zeros(len(ids), np.float32)
            advantages = mask * np.float32(rng.standard_normal())
            rows.append(
                Row(len(rows), group, ids, mask, zeros, mask.astype(np.int32) - 1, zeros, advantages=advantages)
            )
    return rows


# --- clocks and memory ---------------------------------------------------------------------------------------------


def seconds(work: Callable[[], Any], rounds: int) -> float:
    """Shortest time of ``rounds``, after one that does not count; wall time on GPUs, CPU time of the process else."""
    clock = time.perf_counter if torch.cuda.is_available() else time.process_time
    times = []
    for _ in range(rounds + 1):
        wait()
        began = clock()
        work()
        wait()
        times.append(clock() - began)
    return min(times[1:])


def wait() -> None:
    """Until the GPU has done what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def peak_bytes(work: Callable[[], Any]) -> int:
    """Largest number of bytes of tensors at a time while ``work`` runs, beyond those that there were before."""
    if torch.cuda.is_available():
        wait()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        wait()
        return torch.cuda.max_memory_allocated() - before
    with LiveBytes() as live:
        work()
    return live.peak


# --- reports -------------------------------------------------------------------------------------------------------

Table = Sequence[Mapping[str, Any]]


def markdown(rows: Table) -> str:
    """A table with the keys of the first row as its head."""
    head = list(rows[0])
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(_shown(row[name]) for name in head) + " |" for row in rows])


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def report(name: str, rows: Table, given: argparse.Namespace) -> None:
    """Print the table, and write it with what it was measured on and with to ``OUT/NAME.json``."""
    print(f"{name}, {device_name()}, torch {torch.__version__}{', smoke test' if given.tiny else ''}\n")
    print(markdown(rows))
    options = {key: value for key, value in vars(given).items() if key != "out"}
    about = {"device": device_name(), "torch": torch.__version__, "date": date.today().isoformat()}
    given.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"options": options, **about, "rows": list(rows)}, indent=1)
    (given.out / f"{name}.json").write_text(text + "\n", encoding="utf-8")
