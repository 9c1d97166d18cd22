"""A learner's speed with padded, packed and shared rows: ``python -m benchmarks.gpu.layouts``.

Groups of rollouts of one prompt with answers of very different lengths. Tokens per second are tokens of rows, without
padding and however often they are forwarded, so that the lines compare. On CPUs: CPU time of the process, float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.gpu.common import SHAPES, Learner, arguments, learner, peak_bytes, report, rows_of, seconds
from rl_agents.data.samples import Row

#: By name: settings.
LAYOUTS: dict[str, dict[str, Any]] = {
    "padded": {},
    "packed": {"sequence_packing": True},
    "shared": {"prefix_sharing": True},
    "shared, others packed": {"prefix_sharing": True, "sequence_packing": True},
}


def main(given: Sequence[str] | None = None) -> None:
    """Measure each size with each layout."""
    args = arguments(
        __doc__, given, sizes=["1.5b", "7b"], groups=8, group_size=8, prompt=512, shortest=64, longest=2048,
        tokens_per_microbatch=16384, rounds=3, recompute="full",
    )  # fmt: skip
    if args.tiny:
        args.sizes, args.groups, args.group_size, args.prompt = ["tiny"], 2, 3, 24
        args.shortest, args.longest, args.tokens_per_microbatch, args.rounds = 2, 40, 200, 1
    report("layouts", [line for name in args.sizes for line in measure(name, args)], args)


def measure(name: str, args: Any) -> list[dict[str, Any]]:
    """Lines of a size; every learner has the same weights, so gradients are compared, too."""
    vocabulary = SHAPES[name].vocabulary
    rows = rows_of(args.groups, args.group_size, args.prompt, args.shortest, args.longest, vocabulary)
    lines: list[dict[str, Any]] = []
    norm, slowest = 0.0, 0.0
    for layout, keys in LAYOUTS.items():
        made = learner(name, recompute=args.recompute, tokens_per_microbatch=args.tokens_per_microbatch, **keys)
        line, own = one(layout, made, rows, args.rounds)
        norm, slowest = norm or own, slowest or line["s"]
        speed = {"times padded": slowest / line["s"], "gradient's norm, relative": own / norm - 1}
        lines.append({"model": name, **line, **speed})
        del made
    return lines


def one(layout: str, made: Learner, rows: list[Row], rounds: int) -> tuple[dict[str, Any], float]:
    """A line of the table, and the gradient's norm."""
    tokens = sum(map(len, rows))
    taken = seconds(lambda: made.update(rows), rounds)
    made.forwarded = 0
    peak = peak_bytes(lambda: made.update(rows))
    gradients = [parameter.grad.norm() for parameter in made.lm.parameters()]
    line = {
        "layout": layout, "tokens": tokens, "forwarded": made.forwarded, "s": taken, "tokens/s": tokens / taken,
        "peak GB beyond weights and gradients": peak / 1e9,
    }  # fmt: skip
    return line, float(torch.stack(gradients).norm())


if __name__ == "__main__":
    main()
