"""What logits of a real vocabulary cost: ``python -m benchmarks.vocabulary_head``.

A model of 2 layers and width 512 with Qwen2.5's vocabulary of 151,936 words; forward and backward pass over the
log-probabilities and entropies of 2,048 tokens, all at once and in pieces (rl_agents/learner/chunked_logprobs.py), each
in a process of its own: peak memory beyond that before the pass, and CPU seconds, the better of two rounds. float32,
one thread.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from benchmarks.report import write_figures

ROWS, TOKENS, VOCABULARY, WIDTH = 8, 257, 151_936, 512
ROUNDS = 2


def main() -> None:
    """Measure both, print, write."""
    figures: dict[str, Any] = {}
    for name, plain in (("all at once", True), ("in pieces", False)):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            figures[name] = pool.submit(measure, plain).result()
        print(json.dumps({name: figures[name]}), flush=True)
    write_figures("vocabulary_head", "python -m benchmarks.vocabulary_head", figures)


def measure(plain: bool) -> dict[str, float]:
    """Peak GB and CPU seconds of a pass."""
    import torch
    from ray.rllib.core.rl_module.rl_module import RLModuleSpec
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from rl_agents.learner.rl_modules import CausalLMModule
    from rl_agents.rollout.env_runner import TEXT_SPACE

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=2 * WIDTH, num_hidden_layers=2,
        num_attention_heads=8, num_key_value_heads=2, tie_word_embeddings=True,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        Qwen2ForCausalLM(config).save_pretrained(folder)
        module = RLModuleSpec(
            module_class=CausalLMModule, observation_space=TEXT_SPACE, action_space=TEXT_SPACE,
            model_config={"model_dir": folder, "dtype": "float32"},
        ).build()  # fmt: skip
    if plain:
        module.piece = None
    ids = torch.randint(0, VOCABULARY, (ROWS, TOKENS))
    batch = {"input_ids": ids, "mask": torch.ones(ids.shape), "temperature": 1.0, "entropy_gradient": True}
    before, seconds = _peak(), []
    for _ in range(ROUNDS):
        started = time.process_time()
        scores = module.forward_train(batch)
        (scores["logprobs"].sum() + scores["entropy"].sum()).backward()
        seconds.append(time.process_time() - started)
    return {"peak_gb": round(_peak() - before, 2), "cpu_s": round(min(seconds), 1), "piece": module.piece or 0}


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":
    main()
