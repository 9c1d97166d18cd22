"""Peak memory of a learner's pass with and without recompute and logits in pieces: ``python -m benchmarks.gpu.memory``.

What tensors take at most beyond weights and gradients: the allocator's count on GPUs; on CPUs that of every storage
that an operation makes (live_bytes.py), in float32. Beside it the time of a pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.gpu.common import SHAPES, arguments, learner, peak_bytes, report, rows_of, seconds


def main(given: Sequence[str] | None = None) -> None:
    """Measure each size in all combinations."""
    args = arguments(__doc__, given, sizes=["1.5b"], rows=4, prompt=1024, response=1024, rounds=3)
    if args.tiny:
        args.sizes, args.rows, args.prompt, args.response, args.rounds = ["tiny"], 2, 16, 16, 1
    arms = [(name, recompute, pieces) for name in args.sizes for recompute in KINDS for pieces in (False, True)]
    report("memory", [measure(*arm, args) for arm in arms], args)


KINDS = ("", "selective", "full")


def measure(name: str, recompute: str, pieces: bool, args: Any) -> dict[str, Any]:
    """One line of the table; a combination that does not fit has no figures."""
    rows = rows_of(args.rows, 1, args.prompt, args.response, args.response, SHAPES[name].vocabulary)
    tokens = sum(map(len, rows))
    made = learner(name, recompute=recompute, pieces=pieces, sequence_packing=True, tokens_per_microbatch=tokens)
    peak, taken = None, None
    try:
        taken = seconds(lambda: made.update(rows), args.rounds)
        peak = peak_bytes(lambda: made.update(rows)) / 1e9
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
    return {
        "model": name, "recompute": recompute or "none", "logits": "in pieces" if pieces else "at once",
        "tokens": tokens, "peak GB": peak, "s": taken,
    }  # fmt: skip


if __name__ == "__main__":
    main()
