"""How many tokens a second vLLM samples: ``python -m benchmarks.gpu.decode``. Needs vllm.

The engine is set up as rl_agents does it, with random weights by vLLM's own loader (``load_format=dummy``). Every
answer has full length, prompts share nothing; a round before the measured one does not count. The time has the prompts
in it, so that it is what a rollout sees.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.common import SHAPES, arguments, config_keys, report
from rl_agents.inference.base import EngineSettings
from rl_agents.inference.vllm_engine import quick_start_args


def main(given: Sequence[str] | None = None) -> None:
    """Measure each size with each number of concurrent requests."""
    args = arguments(__doc__, given, sizes=["1.5b"], concurrent=[1, 32, 256], prompt=512, response=256)
    if args.tiny:
        args.sizes, args.concurrent, args.prompt, args.response = ["tiny"], [1, 4], 16, 8
    report("decode", [line for name in args.sizes for line in measure(name, args)], args)


def measure(name: str, args: Any) -> list[dict[str, Any]]:
    """Lines of a size."""
    with tempfile.TemporaryDirectory() as folder:
        config = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", **config_keys(SHAPES[name])}
        more = {"torch_dtype": "bfloat16", "rope_theta": 1e6, "rms_norm_eps": 1e-6, "hidden_act": "silu"}
        (Path(folder) / "config.json").write_text(json.dumps(config | more), encoding="utf-8")
        length = args.prompt + args.response
        settings = EngineSettings(folder, dtype="bfloat16", max_model_len=length, max_batch=max(args.concurrent))
        given = quick_start_args(settings) | {"load_format": "dummy", "enable_prefix_caching": False}
        from vllm import LLM

        llm = LLM(**given)
        return [{"model": name, **sampled(llm, count, SHAPES[name].vocabulary, args)} for count in args.concurrent]


def sampled(llm: Any, count: int, vocabulary: int, args: Any) -> dict[str, Any]:
    """Sample ``count`` answers at once."""
    from vllm import SamplingParams

    rng = np.random.default_rng(count)
    prompts = [{"prompt_token_ids": rng.integers(0, vocabulary, args.prompt).tolist()} for _ in range(count)]
    params = SamplingParams(max_tokens=args.response, ignore_eos=True, detokenize=False, logprobs=0, seed=1)
    taken = 0.0
    for _ in range(2):
        began = time.perf_counter()
        outputs = llm.generate(prompts, params, use_tqdm=False)
        taken = time.perf_counter() - began
    tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
    return {
        "concurrent": count,
        "prompt": args.prompt,
        "response": args.response,
        "s": taken,
        "tokens/s": tokens / taken,
    }


if __name__ == "__main__":
    main()
