"""Measurements of a learner on a GPU (or a CPU, for comparison): benchmarks/gpu.md.

    python -m benchmarks.gpu mfu|layouts|memory|merging [--sizes 1.5b 7b] [--tiny]

mfu: tokens/s and utilization of the GPU by forward and backward passes. layouts: speed with padded, packed and shared
rows. memory: peak of a pass with and without activation checkpointing and chunked logits. merging: one row per episode
and one row per step, in dialogues that only grow. No Ray is needed; models have random weights.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from benchmarks.report import command_line, markdown, write_figures
from rl_agents.config import Settings
from rl_agents.data.samples import Row, build_samples
from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.inference.model_shape import ModelShape
from rl_agents.learner.batching import PADDED, SHARED, collate, laid_out
from rl_agents.learner.chunked_logprobs import piece_size
from rl_agents.learner.gpu_memory_estimate import KNOWN
from rl_agents.learner.hf import enable_recompute
from rl_agents.learner.logprobs import score_rows
from rl_agents.learner.prefix_attention import enable, pack_rows

SHAPES: Mapping[str, ModelShape] = {
    "1.5b": KNOWN["Qwen2.5-1.5B-Instruct"],
    "7b": KNOWN["Qwen2.5-7B-Instruct"],
    # For computers without a GPU: 30 million parameters, a third of them in the embedding.
    "30m": ModelShape(8, 384, 1536, 6, 2, 64, 32_000, 4096, True),
    "0.1m": ModelShape(2, 64, 128, 4, 4, 16, 128, 4096, True),
    "0.7m": ModelShape(4, 128, 256, 4, 4, 32, 128, 4096, True),
    "tiny": ModelShape(2, 128, 256, 4, 2, 32, 512, 4096, True),
}
#: Part of the device's name -> dense bfloat16 peak in TFLOP/s.
PEAKS = {"H200": 989.0, "H100 PCIe": 756.0, "H100": 989.0, "B200": 2250.0, "A100": 312.0, "L40S": 362.0}


#: Measurement -> options with defaults; `TINY` replaces them in a smoke test.
OPTIONS: Mapping[str, dict[str, Any]] = {
    "mfu": {
        "sizes": ["1.5b", "7b"], "recompute": ["selective", "full"], "rows": 8, "prompt": 1024, "response": 1024,
        "rounds": 3,
    },
    "layouts": {
        "sizes": ["1.5b", "7b"], "groups": 8, "group_size": 8, "prompt": 512, "shortest": 64, "longest": 2048,
        "tokens_per_microbatch": 16384, "rounds": 3, "recompute": "full",
    },
    "memory": {"sizes": ["1.5b"], "rows": 4, "prompt": 1024, "response": 1024, "rounds": 3},
    "merging": {"rounds": 3},
}  # fmt: skip
TINY: dict[str, Any] = {
    "sizes": ["tiny"], "rows": 2, "prompt": 16, "response": 16, "rounds": 1, "groups": 2, "group_size": 3,
    "shortest": 2, "longest": 40, "tokens_per_microbatch": 200,
}  # fmt: skip


def main(given: Sequence[str] | None = None) -> None:
    name = (sys.argv[1:] if given is None else given)[:1]
    parser = command_line(__doc__, OPTIONS.get("".join(name)))
    parser.add_argument("what", choices=list(OPTIONS))
    parser.add_argument("--tiny", action="store_true", help="a smoke test for any computer; its numbers mean nothing")
    args = parser.parse_args(given)
    if args.tiny:
        vars(args).update({key: value for key, value in TINY.items() if key in OPTIONS[args.what]})
    report({"mfu": mfu, "layouts": layouts, "memory": memory, "merging": merging}[args.what](args), args)


# --- measurements


def mfu(args: Any) -> list[dict[str, Any]]:
    """Each size with each kind of recompute; recomputed passes do not count as work."""
    lines = []
    for name in args.sizes:
        shape, length = SHAPES[name], args.prompt + args.response
        rows = rows_of(args.rows, 1, args.prompt, args.response, args.response, shape.vocabulary)
        flops = 3 * sum(forward_flops(shape, len(row), float(row.mask.sum())) for row in rows)
        for recompute in args.recompute:
            made = learner(name, recompute=recompute, sequence_packing=True, tokens_per_microbatch=4 * length)
            taken = seconds(lambda made=made, rows=rows: made.update(rows), args.rounds)
            speed, tflops, peak = sum(map(len, rows)) / taken, flops / taken / 1e12, peak_tflops()
            lines.append({
                "model": name, "parameters": shape.parameters, "recompute": recompute, "tokens a row": length,
                "tokens/s": speed, "model TFLOP/s": tflops, "MFU": tflops / peak if peak else None,
            })  # fmt: skip
    return lines


def forward_flops(shape: ModelShape, length: int, scored: float) -> float:
    """Return the FLOPs of a forward pass over one row; with the backward pass it is three times as many.

    2 per weight and token of every matrix (the head only for scored tokens), and 2 · L · heads · width per token of
    a causal attention over L tokens.
    """
    head = shape.vocabulary * shape.hidden
    layers = shape.parameters - head * (1 if shape.tied else 2)
    attention = 2 * length * shape.heads * shape.head_dim * shape.layers
    return length * (2 * layers + attention) + 2 * head * scored


LAYOUTS: dict[str, dict[str, Any]] = {
    "padded": {},
    "packed": {"sequence_packing": True},
    "shared": {"prefix_sharing": True},
    "shared, others packed": {"prefix_sharing": True, "sequence_packing": True},
}


def layouts(args: Any) -> list[dict[str, Any]]:
    """Each size with each layout, on groups of rollouts of one prompt with responses of very different lengths.

    Tokens per second count the tokens of rows, without padding. All learners have the same weights, so gradients are
    compared as well.
    """
    lines: list[dict[str, Any]] = []
    for name in args.sizes:
        rows = rows_of(args.groups, args.group_size, args.prompt, args.shortest, args.longest, SHAPES[name].vocabulary)
        tokens, norm, slowest = sum(map(len, rows)), 0.0, 0.0
        for layout, keys in LAYOUTS.items():
            made = learner(name, recompute=args.recompute, tokens_per_microbatch=args.tokens_per_microbatch, **keys)
            taken = seconds(lambda made=made, rows=rows: made.update(rows), args.rounds)
            made.forwarded = 0
            peak = peak_gb(lambda made=made, rows=rows: made.update(rows))
            own = made.gradient_norm()
            norm, slowest = norm or own, slowest or taken
            lines.append({
                "model": name, "layout": layout, "tokens": tokens, "forwarded": made.forwarded, "s": taken,
                "tokens/s": tokens / taken, "peak GB beyond weights and gradients": peak,
                "times padded": slowest / taken, "gradient's norm, relative": own / norm - 1,
            })  # fmt: skip
            del made
    return lines


def memory(args: Any) -> list[dict[str, Any]]:
    """Each size in all combinations; one that does not fit in memory has no numbers."""
    lines = []
    arms = [(name, kind, pieces) for name in args.sizes for kind in ("", "selective", "full") for pieces in (0, 1)]
    for name, recompute, pieces in arms:
        rows = rows_of(args.rows, 1, args.prompt, args.response, args.response, SHAPES[name].vocabulary)
        tokens, peak, taken = sum(map(len, rows)), None, None
        made = learner(
            name, recompute=recompute, pieces=bool(pieces), sequence_packing=True, tokens_per_microbatch=tokens
        )
        try:
            taken = seconds(lambda made=made, rows=rows: made.update(rows), args.rounds)
            peak = peak_gb(lambda made=made, rows=rows: made.update(rows))
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
        lines.append({
            "model": name, "recompute": recompute or "none", "logits": "in pieces" if pieces else "at once",
            "tokens": tokens, "peak GB": peak, "s": taken,
        })  # fmt: skip
    return lines


#: Case -> model, episodes, steps per episode, and tokens of the first prompt, each response and each observation.
DIALOGUES = {
    "guessing game, 0.1M": ("0.1m", 16, 4, 16, 6, 6),
    "10 short turns, 0.1M": ("0.1m", 16, 10, 60, 8, 30),
    "10 short turns, 0.7M": ("0.7m", 4, 10, 200, 10, 30),
    "10 long answers, 0.1M": ("0.1m", 2, 10, 200, 180, 20),
}


def merging(args: Any) -> list[dict[str, Any]]:
    """``sample_layout=per_step`` over ``merged``: tokens in the forward pass, and time of forward and backward."""
    lines = []
    for case, (size, *numbers) in list(DIALOGUES.items())[: 1 if args.tiny else None]:
        episodes, made = dialogues(*numbers, SHAPES[size].vocabulary), learner(size, tokens_per_microbatch=4096)
        tokens, times, norms = [], [], []
        for mode in ("per_step", "merged"):
            rows = build_samples(episodes, mode)
            for row in rows:
                row.advantages = row.mask
            times.append(seconds(lambda rows=rows, made=made: made.update(rows), args.rounds))
            norms.append(made.gradient_norm())
            tokens.append(sum(map(len, rows)))
        lines.append({
            "case": case, "tokens a step": tokens[0], "tokens merged": tokens[1], "token ratio": tokens[0] / tokens[1],
            "s a step": times[0], "s merged": times[1], "time ratio": times[0] / times[1],
            "gradient's norm, relative": norms[1] / norms[0] - 1,
        })  # fmt: skip
    return lines


def dialogues(
    count: int, steps: int, prompt: int, response: int, observation: int, vocabulary: int
) -> list[Trajectory]:
    rng, found = np.random.default_rng(0), list[Trajectory]()
    for index in range(count):
        taken, read = list[Step](), rng.integers(0, vocabulary, prompt).tolist()
        for _ in range(steps):
            said = rng.integers(0, vocabulary, response).tolist()
            taken.append(Step(read, said, [-1.0] * response, 0, "stop", "", "", ""))
            read = read + said + rng.integers(0, vocabulary, observation).tolist()
        found.append(Trajectory("task", index, 0, 0, taken))
    return found


def device_name() -> str:
    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else "CPU"


def peak_tflops() -> float | None:
    return next((peak for name, peak in PEAKS.items() if name in device_name()), None)


# --- a learner


@dataclass
class Learner:
    """A policy with random weights, and a policy-gradient pass over rows as in rl_agents' learner.

    ``forwarded``: tokens that passed through the network so far, including padding.
    """

    lm: Any
    settings: Settings
    piece: int | None
    forwarded: int = 0

    def update(self, rows: Sequence[Row]) -> None:
        """Accumulate the gradients of all micro-batches, without an optimizer step."""
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

    def gradient_norm(self) -> float:
        return float(torch.stack([parameter.grad.norm() for parameter in self.lm.parameters()]).norm())


def precision(where: torch.device) -> Any:
    """Weights are float32 and activations bfloat16, as in the learner with dtype=bfloat16; on a CPU all are float32."""
    return torch.autocast("cuda", torch.bfloat16) if where.type == "cuda" else nullcontext()


def learner(name: str, *, recompute: str = "", pieces: bool = True, **keys: Any) -> Learner:
    """Build a learner.

    Args:
        name: of `SHAPES`.
        recompute: `full`, `selective` or empty.
        pieces: compute logits beyond 2 GiB in chunks.
        keys: settings, such as ``sequence_packing`` and ``tokens_per_microbatch``.
    """
    shape = SHAPES[name]
    lm = random_model(shape).train()
    settings = Settings.from_dict({"algo": "grpo", "max_model_len": shape.context, **keys})
    if settings.sequence_packing or settings.prefix_sharing:
        enable(lm, name, settings.max_model_len)
    if recompute:
        enable_recompute(lm, recompute)
    return Learner(lm, settings, piece_size(lm) if pieces else None)


def random_model(shape: ModelShape) -> Any:
    """Return a model of Qwen2's architecture with random weights, on the GPU if there is one."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=shape.vocabulary, hidden_size=shape.hidden, intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads,
        max_position_embeddings=shape.context, tie_word_embeddings=shape.tied, attn_implementation="sdpa",
    )  # fmt: skip
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        return Qwen2ForCausalLM(config)


def rows_of(groups: int, size: int, prompt: int, shortest: int, longest: int, vocabulary: int) -> list[Row]:
    """Return groups of rollouts of one prompt each, with log-uniform lengths: most are short, a few are long."""
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


# --- clocks and memory


def seconds(work: Callable[[], Any], rounds: int) -> float:
    """Return the shortest time of ``rounds``, after one warm-up; wall time on a GPU, else CPU time of the process."""
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
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def peak_gb(work: Callable[[], Any]) -> float | None:
    """Return the peak of tensors while ``work`` runs, in GB beyond those that existed before; None: on a CPU."""
    if not torch.cuda.is_available():
        return work()
    wait()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    wait()
    return (torch.cuda.max_memory_allocated() - before) / 1e9


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def report(rows: Sequence[Mapping[str, Any]], given: argparse.Namespace) -> None:
    """Print the table; write it with the device and the options to ``results/gpu/NAME.json``."""
    print(f"{given.what}, {device_name()}, torch {torch.__version__}{', smoke test' if given.tiny else ''}\n")
    print(markdown(list(rows[0]), [[_shown(value) for value in row.values()] for row in rows]))
    if not given.tiny:
        about = {"options": vars(given), "device": device_name(), "torch": torch.__version__, "rows": list(rows)}
        write_figures(f"gpu/{given.what}", f"python -m benchmarks.gpu {' '.join(sys.argv[1:])}", about)


if __name__ == "__main__":
    main()
