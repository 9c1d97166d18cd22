"""What new weights cost while responses run: ``python -m benchmarks.weight_switch``.

Samples 192 long responses, 64 at a time, and gives the engine new weights again and again meanwhile, 0.5 s after the
last time, once with ``weight_switch=wait`` and once with ``keep``; before that the same work without new weights.
Every engine has a process of its own; the model has 0.1 million parameters and random weights, a prompt has 64 tokens,
a response 32 to 256, evenly spread.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from benchmarks.report import write_figures
from rl_agents.inference.base import EngineSettings, Sampling

KINDS = ("torch", "vllm-inprocess", "vllm-async")
RESPONSES, TOGETHER, PROMPT, SHORTEST, LONGEST, VOCABULARY = 192, 64, 64, 32, 256, 200
PAUSE_S = 0.5


def measure(kind: str, switch: str, folder: str, syncs: int) -> dict[str, Any]:
    """Return the figures of one engine in this process; ``switch`` may be ``none``."""
    from rl_agents.inference.select import build_engine

    name, _, mode = kind.partition("-")
    engine = build_engine(
        EngineSettings(
            folder, kind=name, mode=mode or "inprocess", max_model_len=PROMPT + LONGEST, max_batch=TOGETHER,
            kv_cache_gb=0.25, weight_switch="wait" if switch == "none" else switch,
        )
    )  # fmt: skip
    try:
        return asyncio.run(_work(engine, switch, folder, syncs))
    finally:
        engine.close()


async def _work(engine: Any, switch: str, folder: str, syncs: int) -> dict[str, Any]:
    weights, seeds, versions, times = _weights(folder), iter(range(RESPONSES)), list[int](), list[float]()

    async def play() -> None:
        for seed in seeds:
            rng = random.Random(seed)
            prompt = [rng.randrange(3, VOCABULARY) for _ in range(PROMPT)]
            done = await engine.generate(prompt, Sampling(rng.randrange(SHORTEST, LONGEST + 1), seed=seed))
            versions.append(len(done.version_spans or (1,)))

    async def switch_weights() -> None:
        for version in range(1, syncs + 1):
            await asyncio.sleep(PAUSE_S)
            before = time.monotonic()
            await engine.sync(weights, version)
            times.append(time.monotonic() - before)

    await engine.generate([3] * PROMPT, Sampling(8, seed=0))
    begun = time.monotonic()
    switching = asyncio.create_task(switch_weights()) if switch != "none" else None
    await asyncio.gather(*[play() for _ in range(TOGETHER)])
    seconds = time.monotonic() - begun
    if switching is not None:
        switching.cancel()
        await asyncio.gather(switching, return_exceptions=True)
    return {
        "seconds": seconds,
        "syncs": len(times),
        "sync_median_s": statistics.median(times) if times else 0.0,
        "sync_max_s": max(times, default=0.0),
        "mixed_share": sum(count > 1 for count in versions) / len(versions),
        "most_versions": max(versions),
    }


def _weights(folder: str) -> dict[str, Any]:
    from transformers import AutoModelForCausalLM

    from rl_agents.inference.weights import untied

    return untied(AutoModelForCausalLM.from_pretrained(folder, dtype="float32").state_dict(), tied=True)


def _save_model(folder: str) -> None:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=1024, tie_word_embeddings=True, initializer_range=0.1,
            bos_token_id=None, eos_token_id=1, pad_token_id=0,
        )
    ).save_pretrained(folder)  # fmt: skip


def _row(kind: str, switch: str, found: dict[str, float]) -> str:
    return (
        f"| {kind} | {switch} | {found['seconds']:.1f} | {found['syncs']} | {found['sync_median_s']:.2f} "
        f"| {found['sync_max_s']:.2f} | {found['mixed_share']:.0%} | {found['most_versions']:.0f} |"
    )


def main() -> None:
    """Run all, or (``--one KIND SWITCH FOLDER``) a single measurement, as JSON on the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--syncs", type=int, default=10)
    parser.add_argument("--one", nargs=3, metavar=("KIND", "SWITCH", "FOLDER"))
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(*args.one, args.syncs)), flush=True)
        return
    print("| engine | weight_switch | all responses, s | syncs | median s | longest s | of several versions | most |")
    print("|---|---|---|---|---|---|---|---|")
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        _save_model(folder)
        for kind, switch in itertools.product(KINDS, ("none", "wait", "keep")):
            command = [sys.executable, "-m", "benchmarks.weight_switch", "--syncs", str(args.syncs), "--one"]
            done = subprocess.run([*command, kind, switch, folder], capture_output=True, text=True, check=True)
            found[f"{kind} {switch}"] = json.loads(done.stdout.strip().splitlines()[-1])
            print(_row(kind, switch, found[f"{kind} {switch}"]), flush=True)
    write_figures("weight_switch", f"python -m benchmarks.weight_switch --syncs {args.syncs}", found)


if __name__ == "__main__":
    main()
