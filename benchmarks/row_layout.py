"""What merging the steps of an episode into one row saves the learner: ``python -m benchmarks.row_layout``.

For dialogues that only grow, compares ``sample_layout=merged`` with ``per_step``: tokens in the forward pass and CPU
seconds of forward and backward, one thread, padded micro-batches of rows of similar length. The losses are the same;
the largest difference relative to the loss is printed, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from rl_agents.data.samples import Row, build_samples
from rl_agents.data.trajectory import Step, Trajectory

VOCABULARY = 128
MICROBATCH_TOKENS = 4096


@dataclass(frozen=True)
class Case:
    """Episodes of one shape: tokens of the first prompt, and of every response and observation."""

    name: str
    width: int
    layers: int
    episodes: int
    steps: int
    prompt: int
    response: int
    observation: int


CASES = (
    Case("guessing game, 0.1M", 64, 2, 16, 4, 16, 6, 6),
    Case("10 short turns, 0.1M", 64, 2, 16, 10, 60, 8, 30),
    Case("10 short turns, 0.7M", 128, 4, 4, 10, 200, 10, 30),
    Case("10 long answers, 0.1M", 64, 2, 2, 10, 200, 180, 20),
)


def episodes(case: Case, rng: np.random.Generator) -> list[Trajectory]:
    """Make up dialogues of random ids."""
    result = []
    for index in range(case.episodes):
        steps, read = [], rng.integers(0, VOCABULARY, case.prompt).tolist()
        for _ in range(case.steps):
            response = rng.integers(0, VOCABULARY, case.response).tolist()
            steps.append(Step(read, response, [-1.0] * case.response, 0, "stop", "", "", ""))
            read = read + response + rng.integers(0, VOCABULARY, case.observation).tolist()
        result.append(Trajectory("task", index, 0, 0, steps))
    return result


def microbatches(rows: list[Row]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield padded (ids, mask) of rows of similar length, at most `MICROBATCH_TOKENS` each."""
    rows = sorted(rows, key=len, reverse=True)
    while rows:
        count = max(1, MICROBATCH_TOKENS // len(rows[0]))
        part, rows = rows[:count], rows[count:]
        ids = np.zeros((len(part), len(part[0])), dtype=np.int64)
        mask = np.zeros(ids.shape, dtype=np.float32)
        for line, row in enumerate(part):
            ids[line, : len(row)], mask[line, : len(row)] = row.input_ids, row.mask
        yield torch.from_numpy(ids), torch.from_numpy(mask)


def train_step(model: Qwen2ForCausalLM, rows: list[Row]) -> tuple[float, float]:
    """Return CPU seconds of forward and backward over all rows, and the summed loss."""
    total, started = 0.0, time.process_time()
    for ids, mask in microbatches(rows):
        logprobs = model(ids).logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
        loss = -(logprobs * mask[:, 1:]).sum()
        loss.backward()
        total += float(loss.detach())
    return time.process_time() - started, total


def measure(case: Case) -> dict[str, tuple[int, float, float]]:
    """Return (tokens, best CPU seconds of three, loss) of both layouts."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=case.width, intermediate_size=2 * case.width,
        num_hidden_layers=case.layers, num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=True,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config)
    trajectories, result = episodes(case, np.random.default_rng(0)), {}
    for mode in ("per_step", "merged"):
        rows = build_samples(trajectories, mode)
        runs = [train_step(model, rows) for _ in range(3)]
        result[mode] = (sum(map(len, rows)), min(seconds for seconds, _ in runs), runs[0][1])
    return result


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    print(f"{'case':24} {'per_step':>18} {'merged':>18} {'tokens':>8} {'CPU':>7} {'loss diff':>10}")
    for case in CASES:
        result = measure(case)
        (tokens, seconds, loss), (merged_tokens, merged_seconds, merged_loss) = result["per_step"], result["merged"]
        print(
            f"{case.name:24} {tokens:7d} t {seconds:6.3f} s {merged_tokens:7d} t {merged_seconds:6.3f} s "
            f"{tokens / merged_tokens:7.2f}x {seconds / merged_seconds:6.2f}x {abs(merged_loss / loss - 1):10.1e}"
        )


if __name__ == "__main__":
    main()
