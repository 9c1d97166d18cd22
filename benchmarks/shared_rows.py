"""Savings of prefix sharing in the learner: ``python -m benchmarks.shared_rows``.

The learner's updates (GRPO's loss, one optimizer step, learning rate 0) over synthetic rows, with
``prefix_sharing=false`` and ``true`` in turn: CPU time, forwarded tokens, and the relative error of the
gradient. One thread, float32, models of Qwen2's architecture.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import torch

from benchmarks.report import command_line, write_figures
from benchmarks.timing import spent
from rl_agents import AgentConfig
from rl_agents.algorithms import Settings
from rl_agents.data.samples import Row
from rl_agents.inference.model_shape import ModelShape
from rl_agents.learner.learner_group import AgentLearnerGroup
from rl_agents.learner.training_data import AgentTrainingData

VOCABULARY = 128
MODELS = {
    "0.1 M": ModelShape(2, 64, 256, 4, 4, 16, VOCABULARY, 4096, True),
    "2 M": ModelShape(2, 256, 1024, 4, 4, 64, VOCABULARY, 4096, True),
}
Parts = list[tuple[np.ndarray, bool]]


@dataclass(frozen=True)
class Shape:
    """Rows of one kind; ``make`` returns each as parts (ids, whether they were sampled)."""

    name: str
    make: Callable[[np.random.Generator], list[Parts]]


def tokens(rng: np.random.Generator, low: int, high: int | None = None) -> np.ndarray:
    return rng.integers(0, VOCABULARY, low if high is None else int(rng.integers(low, high + 1)))


def siblings(states: int, n: int, prompt: int, shortest: int, longest: int, common: int = 0) -> Callable[..., Any]:
    """Samples of the same prompts, which all begin with ``common`` shared tokens."""

    def make(rng: np.random.Generator) -> list[Parts]:
        beginning, rows = tokens(rng, common), list[Parts]()
        for _ in range(states):
            read = np.concatenate([beginning, tokens(rng, prompt - common)])
            rows += [[(read, False), (tokens(rng, shortest, longest), True)] for _ in range(n)]
        return rows

    return make


def tree(depth: int, prompt: int, step: int) -> Callable[..., Any]:
    """Leaves of a tree in which every call has two continuations, as in deep searches."""

    def grow(rng: np.random.Generator, path: Parts, left: int) -> list[Parts]:
        if not left:
            return [path]
        steps = [[(tokens(rng, step), True), (tokens(rng, step), False)] for _ in range(2)]
        return [row for ahead in steps for row in grow(rng, path + ahead, left - 1)]

    return lambda rng: grow(rng, [(tokens(rng, prompt), False)], depth)


def chat(turns: int, prompt: int, response: int, observation: int) -> Callable[..., Any]:
    """One row per turn of a growing dialogue."""

    def make(rng: np.random.Generator) -> list[Parts]:
        read, rows = tokens(rng, prompt), list[Parts]()
        for _ in range(turns):
            said = tokens(rng, response)
            rows.append([(read, False), (said, True)])
            read = np.concatenate([read, said, tokens(rng, observation)])
        return rows

    return make


SHAPES = (
    Shape("3SPO siblings, prompt 200, 8 x 16-32, 4 states", siblings(4, 8, 200, 16, 32)),
    Shape("3SPO siblings, prompt 800, 8 x 16-32, 2 states", siblings(2, 8, 800, 16, 32)),
    Shape("group of 8, prompt 512, 64-160", siblings(1, 8, 512, 64, 160)),
    Shape("tree of calls, depth 6, prompt 100, steps of 10", tree(6, 100, 10)),
    Shape("tree of calls, depth 4, prompt 200, steps of 20", tree(4, 200, 20)),
    Shape("dialogue of 20 turns, a row each", chat(20, 60, 20, 20)),
    Shape("short prompts: 20, 8 x 4-10, 8 states", siblings(8, 8, 20, 4, 10)),
    Shape("long answers: prompt 60, 8 x 200-400", siblings(1, 8, 60, 200, 400)),
    Shape("system prompt of 50 only, 24 rows of 250", siblings(24, 1, 220, 20, 40, common=50)),
    Shape("nothing shared, 32 rows of 90-140", siblings(32, 1, 80, 10, 60)),
)


def random_model(shape: ModelShape) -> Any:
    """Return a model of Qwen2's architecture with random weights."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    return Qwen2ForCausalLM(Qwen2Config(
        vocab_size=shape.vocabulary, hidden_size=shape.hidden, intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads,
        max_position_embeddings=shape.context, tie_word_embeddings=shape.tied, attn_implementation="sdpa",
    ))  # fmt: skip


def rows_of(shape: Shape, seed: int = 0) -> list[Row]:
    rng, rows = np.random.default_rng(seed), list[Row]()
    for index, parts in enumerate(shape.make(rng)):
        ids = np.concatenate([part for part, _ in parts]).astype(np.int32)
        mask = np.concatenate([np.full(len(part), sampled, np.float32) for part, sampled in parts])
        zeros, advantages = np.zeros(len(ids), np.float32), rng.standard_normal(1, np.float32) * mask
        rows.append(Row(index, 0, ids, mask, -mask, mask.astype(np.int32) - 1, zeros, advantages=advantages))
    return rows


class Side:
    def __init__(self, folder: str, prefixes: bool) -> None:
        config = AgentConfig()
        config.agent = Settings.from_dict({
            "algo": "grpo", "lr": 0.0, "grad_clip": 0.0, "kl_coef": 0.0, "minibatches": 1, "prefix_sharing": prefixes,
            "model": folder, "max_model_len": 4096, "tokens_per_microbatch": 4096,
        })  # fmt: skip
        config.model_dir = folder
        config.apply_settings()
        group = config.build_learner_group(rl_module_spec=config.get_multi_rl_module_spec())
        self.group: AgentLearnerGroup = group  # type: ignore[assignment]
        self.learner: Any = self.group._learner
        self.settings = config.agent

    def learn(self, rows: list[Row]) -> None:
        self.group.learn(AgentTrainingData.build(rows, self.settings, np.random.default_rng(0)))

    def judged(self, rows: list[Row]) -> tuple[int, torch.Tensor]:
        """Return the tokens of an update's forward passes, and its gradient."""
        before = self.learner.forwarded
        with mock.patch.object(self.learner.optimizers, "zero_grad"):  # there is no gradient before, and one after
            self.learn(rows)
        gradient = torch.cat([p.grad.flatten() for p in self.learner.policy.parameters() if p.grad is not None])
        self.learner.optimizers.zero_grad()
        return self.learner.forwarded - before, gradient


def measure(flat: Side, shared: Side, shape: Shape, rounds: int) -> dict[str, Any]:
    """Return the numbers of one shape; ratios are medians over alternating rounds, after one warm-up."""
    rows, ratios = rows_of(shape), list[float]()
    for _ in range(rounds + 1):
        before, after = (spent(lambda side=side: side.learn(rows))[1] for side in (flat, shared))
        ratios.append(round(before / after, 2))
    (flat_tokens, exact), (shared_tokens, found) = (side.judged(rows) for side in (flat, shared))
    return {
        "shape": shape.name,
        "token_ratio": round(flat_tokens / shared_tokens, 2),
        "update_ratio": round(statistics.median(ratios[1:]), 2),
        "update_ratios": ratios[1:],
        "gradient_error": float(f"{float((exact - found).norm() / exact.norm()):.1e}"),
    }


def main() -> None:
    args = command_line(__doc__, {"rounds": 4, "models": list(MODELS)}).parse_args()
    torch.set_num_threads(1)
    results: dict[str, list[dict[str, Any]]] = {}
    for name in args.models:
        with tempfile.TemporaryDirectory() as folder:
            random_model(MODELS[name]).save_pretrained(folder)
            flat, shared = Side(folder, prefixes=False), Side(folder, prefixes=True)
            results[name] = []
            for shape in SHAPES:
                found = measure(flat, shared, shape, args.rounds)
                results[name].append(found)
                print(f"{name:6}", *(f"{k}={v}" for k, v in found.items() if k != "update_ratios"), flush=True)
    command = f"python -m benchmarks.shared_rows --rounds {args.rounds}"
    write_figures("shared_rows", command, {"rounds": args.rounds, "models": results})


if __name__ == "__main__":
    main()
