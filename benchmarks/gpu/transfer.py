"""How long a model's weights take from one process to another: ``python -m benchmarks.gpu.transfer``.

The wires under `weight_transfer` (docs/explanation/staleness.md), without engines: `nccl` is a broadcast in
buckets of 256 MiB between two GPUs (`gloo` on CPUs), `ipc` a copy from memory of the same GPU that another process
handed over, `host` a copy to the CPU's memory and back, which is `object_store` without Ray.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import distributed, multiprocessing

from benchmarks.gpu.common import SHAPES, arguments, device, report, wait

BUCKET = 256 << 20
PATIENCE_S = 300.0


def main(given: Sequence[str] | None = None) -> None:
    """Measure each size on each way that this machine has."""
    args = arguments(__doc__, given, sizes=["1.5b", "7b"], rounds=5)
    if args.tiny:
        args.sizes, args.rounds = ["tiny"], 1
    table = [
        measure(name, way, args.rounds) for name in args.sizes for way in (collective(), "ipc", "host") if possible(way)
    ]
    report("transfer", table, args)


def collective() -> str:
    """Name of the broadcasts' library."""
    return "nccl" if torch.cuda.is_available() else "gloo"


def possible(way: str) -> bool:
    """Whether there is what the way needs; NCCL has no two ranks on one GPU."""
    return way != "nccl" or torch.cuda.device_count() > 1


def measure(name: str, way: str, rounds: int) -> dict[str, Any]:
    """One line of the table: the fastest round."""
    size = SHAPES[name].parameters * 2
    taken = host(size, rounds) if way == "host" else between(way, size, rounds)
    return {"model": name, "way": way, "GB": size / 1e9, "s": taken, "GB/s": size / 1e9 / taken}


def host(size: int, rounds: int) -> float:
    """Seconds to the CPU's pinned memory and back."""
    here = torch.ones(size, dtype=torch.uint8, device=device())
    there = torch.empty(size, dtype=torch.uint8, pin_memory=torch.cuda.is_available())

    def copy() -> None:
        there.copy_(here)
        here.copy_(there)

    return fastest(copy, rounds)


def fastest(work: Callable[[], None], rounds: int) -> float:
    """Wall time of the fastest round, after one that does not count."""
    times = []
    for _ in range(rounds + 1):
        wait()
        began = time.perf_counter()
        work()
        wait()
        times.append(time.perf_counter() - began)
    return min(times[1:])


def between(way: str, size: int, rounds: int) -> float:
    """Seconds between two processes, as the receiver sees them."""
    context = multiprocessing.get_context("spawn" if torch.cuda.is_available() else "fork")
    weights, answers, done = context.SimpleQueue(), context.Queue(), context.Event()
    with tempfile.TemporaryDirectory() as folder:
        work = by_handle if way == "ipc" else by_broadcast
        given = (way, size, rounds, os.path.join(folder, "meet"), weights, answers, done)
        processes = [context.Process(target=work, args=(rank, *given), daemon=True) for rank in range(2)]
        for process in processes:
            process.start()
        try:
            return float(answers.get(timeout=PATIENCE_S))
        finally:
            done.set()
            for process in processes:
                process.join(10.0)


def by_broadcast(rank: int, way: str, size: int, rounds: int, meet: str, weights: Any, answers: Any, done: Any) -> None:
    """Rank 0 sends, rank 1 receives and answers."""
    where = torch.device("cuda", rank) if way == "nccl" else torch.device("cpu")
    if way == "nccl":
        torch.cuda.set_device(where)
    distributed.init_process_group(way, init_method=f"file://{meet}", rank=rank, world_size=2)
    buckets = torch.ones(size, dtype=torch.uint8, device=where).split(BUCKET)

    def send() -> None:
        for bucket in buckets:
            distributed.broadcast(bucket, 0)

    taken = fastest(send, rounds)
    if rank:
        answers.put(taken)
    distributed.destroy_process_group()


def by_handle(rank: int, way: str, size: int, rounds: int, meet: str, weights: Any, answers: Any, done: Any) -> None:
    """Rank 0 hands its memory over and stays alive; rank 1 copies from it."""
    mine = torch.full((size,), rank, dtype=torch.uint8, device=device())
    if rank == 0:
        weights.put(mine)
        done.wait(PATIENCE_S)
        return
    theirs = weights.get()
    taken = fastest(lambda: mine.copy_(theirs), rounds)
    assert not mine.any(), "what came is what was sent"
    answers.put(taken)


if __name__ == "__main__":
    main()
