"""Tests with vLLM: start a small model of every family, update its weights by names of files, and sample.

Importing vLLM takes ten seconds, so it is imported once, and each engine runs in a fork of that process.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rl_agents.inference.base import EngineSettings, Sampling

#: Prompts are longer than any window.
PROMPT, SAMPLED, REQUESTS = 90, 12, 3
LIMIT_S = 120.0
TEMPERATURE = 0.7


def engine_settings(folder: Path) -> EngineSettings:
    return EngineSettings(
        str(folder), kind="vllm", mode="inprocess", max_model_len=120, max_batch=8, kv_cache_gb=0.03125
    )


def answer(folder: Path, after: Path, prompts: Sequence[Sequence[int]], report: Path) -> None:
    """Sample with the folder's weights, load those of ``after``, and sample again; write both results, or the error."""
    try:
        said: dict[str, Any] = _sample(folder, after, prompts)
    except BaseException as error:  # the error is the result
        lines = [line for line in str(error).splitlines() if line.strip()] or [""]
        said = {"error": f"{type(error).__name__}: {' '.join(lines[:3])}"[:300]}
    report.write_text(json.dumps(said), encoding="utf-8")


def _sample(folder: Path, after: Path, prompts: Sequence[Sequence[int]]) -> dict[str, Any]:
    from safetensors.torch import load_file

    from rl_agents.inference.vllm_engine import VLLMEngine

    engine = VLLMEngine(engine_settings(folder))

    async def all_prompts() -> list[Any]:
        sampling = [Sampling(max_tokens=SAMPLED, temperature=TEMPERATURE, seed=i) for i in range(len(prompts))]
        done = await asyncio.gather(*(engine.generate(p, s) for p, s in zip(prompts, sampling, strict=True)))
        return [[list(each.token_ids), list(each.logprobs)] for each in done]

    async def both() -> dict[str, Any]:
        before = await all_prompts()
        await engine.load_weights(load_file(after), 1)
        return {"before": before, "after": await all_prompts()}

    return asyncio.run(both())


def main() -> None:
    """Read jobs (name, folder, after, prompts, report) from the file in the first argument; write a report for each."""
    jobs = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    from rl_agents.inference.vllm_engine import quick_start_args

    quick_start_args(engine_settings(Path(jobs[0]["folder"])))
    from vllm.engine.arg_utils import EngineArgs  # noqa: F401  (for all forks)
    from vllm.v1.engine.llm_engine import LLMEngine  # noqa: F401

    fork = multiprocessing.get_context("fork")
    for job in jobs:
        report = Path(job["report"])
        arguments = Path(job["folder"]), Path(job["after"]), job["prompts"], report
        child = fork.Process(target=answer, args=arguments)
        child.start()
        child.join(LIMIT_S)
        if child.is_alive():
            child.kill()
            child.join()
        if not report.is_file():
            said = {"error": f"no answer within {LIMIT_S:g} s, or its process died (exit code {child.exitcode})"}
            report.write_text(json.dumps(said), encoding="utf-8")
        print(job["name"], report.read_text(encoding="utf-8")[:120], flush=True)


if __name__ == "__main__":
    main()
