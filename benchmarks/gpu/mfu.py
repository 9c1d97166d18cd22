"""How much of the GPU's peak a learner's forward and backward pass uses: ``python -m benchmarks.gpu.mfu``.

Model FLOPs: 2 per weight and token for every matrix, the vocabulary head for scored tokens only, 2 L heads width per
token of a causal attention of L tokens; three times that with the backward pass. What is recomputed is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.gpu.common import SHAPES, arguments, learner, peak_tflops, report, rows_of, seconds
from rl_agents.inference.model_shape import ModelShape


def main(given: Sequence[str] | None = None) -> None:
    """Measure each size with each kind of recompute."""
    args = arguments(
        __doc__, given, sizes=["1.5b", "7b"], recompute=["selective", "full"], rows=8, prompt=1024, response=1024,
        rounds=3,
    )  # fmt: skip
    if args.tiny:
        args.sizes, args.rows, args.prompt, args.response, args.rounds = ["tiny"], 2, 16, 16, 1
    table = [measure(name, recompute, args) for name in args.sizes for recompute in args.recompute]
    report("mfu", table, args)


def measure(name: str, recompute: str, args: Any) -> dict[str, Any]:
    """One line of the table."""
    shape, length = SHAPES[name], args.prompt + args.response
    rows = rows_of(args.rows, 1, args.prompt, args.response, args.response, shape.vocabulary)
    made = learner(name, recompute=recompute, sequence_packing=True, tokens_per_microbatch=4 * length)
    taken = seconds(lambda: made.update(rows), args.rounds)
    tflops = 3 * sum(forward_flops(shape, len(row), float(row.mask.sum())) for row in rows) / taken / 1e12
    peak = peak_tflops()
    return {
        "model": name, "parameters": shape.parameters, "recompute": recompute, "tokens a row": length,
        "tokens/s": sum(map(len, rows)) / taken, "model TFLOP/s": tflops, "MFU": tflops / peak if peak else None,
    }  # fmt: skip


def forward_flops(shape: ModelShape, length: int, scored: float) -> float:
    """Of one row."""
    head = shape.vocabulary * shape.hidden
    layers = shape.parameters - head * (1 if shape.tied else 2)
    attention = 2 * length * shape.heads * shape.head_dim * shape.layers
    return length * (2 * layers + attention) + 2 * head * scored


if __name__ == "__main__":
    main()
