"""GRPO in one file, in one process: a small language model learns a text game by playing it.

    python run.py sft --env gymnasium:benchmarks.treasure:Treasure --output runs/one-file/start
    python docs/examples/grpo_in_one_file.py runs/one-file/start

Each iteration plays every game several times with the current weights, compares the games of a group with each other,
and makes the tokens of the better ones more likely (Shao et al. 2024, arXiv 2402.03300, section 4.1). A run of
`run.py --algo grpo` does the same with many processes, and with everything that can fail or be resumed.
"""

import argparse
import asyncio
from functools import partial
from pathlib import Path

import numpy as np
import torch

from rl_agents.advantages import grpo
from rl_agents.chat.template import load_tokenizer, make_context
from rl_agents.data.samples import build_samples
from rl_agents.data.tasks import evaluation_specs, training_specs
from rl_agents.envs.base import make_env, task_ids
from rl_agents.errors import InputError
from rl_agents.inference.torch_engine import TorchEngine
from rl_agents.inference.torch_model import load_causal_lm
from rl_agents.learner.batching import collate, micro_batches, pad_weights
from rl_agents.learner.hf import save_hf_folder
from rl_agents.learner.logprobs import score_rows
from rl_agents.losses import aggregation_weights, ppo_loss, weighted_sum
from rl_agents.rollout.agent_loop import collect_episodes
from rl_agents.rollout.turns import Limits

ENV = "gymnasium:benchmarks.treasure:Treasure"
LIMITS = Limits(max_turns=3, max_response_tokens=8, max_model_len=320)


async def play(engine, context, specs):
    """Play one game per spec, all at once, and return what happened, with the exact ids that the policy sampled."""
    rollouts = await collect_episodes(specs, partial(make_env, ENV, {}), engine, context, LIMITS)
    return rollouts.trajectories


def rows_with_credit(trajectories):
    """Return one row of tokens per game, with an advantage for every sampled token."""
    rows = build_samples(trajectories, "merged")
    # A_i = (R_i - mean_g R) / (std_g R + 1e-6): better or worse than the other games of the group g?
    returns, groups = [t.episode_return for t in trajectories], [t.group_id for t in trajectories]
    advantages = grpo(returns, groups)
    for row in rows:
        # All tokens that the policy sampled in the game share its advantage; the environment's tokens have none.
        row.advantages = (advantages[row.trajectory] * row.mask).astype(np.float32)
    return rows


def update(lm, optimizer, rows):
    """Take one step on L = Σ w_j·ℓ_j over all sampled tokens j of the rows."""
    # w_j = 1 / number of sampled tokens: counted over all rows, so that the split into micro-batches changes nothing.
    weights = aggregation_weights([row.mask for row in rows], "token-mean")
    optimizer.zero_grad()
    for part in micro_batches(rows, max_tokens=4096):
        batch = collate([rows[i] for i in part])
        logprobs = score_rows(lm, batch)["logprobs"]
        # ℓ_j = max(-A·ρ, -A·clip(ρ, 0.8, 1.2)) with ρ = π(token) / π_old(token), as the engine sampled it.
        old, advantages, mask = batch["logprobs"], batch["advantages"], batch["mask"]
        loss, _ = ppo_loss(logprobs, old, advantages, mask, clip_low=0.2, clip_high=0.2)
        weighted_sum(loss, pad_weights([weights[i] for i in part])).backward()
    torch.nn.utils.clip_grad_norm_(lm.parameters(), 1.0)
    optimizer.step()


def success(trajectories):
    return sum(t.success for t in trajectories) / len(trajectories)


async def train(options):
    lm = load_causal_lm(options.model, "float32")
    optimizer = torch.optim.AdamW(lm.parameters(), lr=options.lr, betas=(0.9, 0.95), weight_decay=0.0)
    # The engine has a copy of the weights, in a form that samples fast, and gets the new ones after every iteration.
    engine = TorchEngine(options.model, max_model_len=LIMITS.max_model_len)
    context = make_context("append", load_tokenizer(options.model))
    tests = evaluation_specs(task_ids(ENV, "test", {}), options.test_games, options.seed)
    print(f"start: {success(await play(engine, context, tests)):.2f} of the test games")

    tasks, rng = task_ids(ENV, "train", {}), np.random.default_rng(options.seed)
    for iteration in range(options.iterations):
        specs = training_specs(tasks, iteration, options.groups, options.group_size, options.seed)
        trajectories = await play(engine, context, specs)
        rows = rows_with_credit(trajectories)
        for part in np.array_split(rng.permutation(len(rows)), options.steps):
            update(lm, optimizer, [rows[i] for i in part])
        await engine.load_weights(dict(lm.named_parameters()), version=iteration + 1)
        print(f"iteration {iteration + 1}: {success(trajectories):.2f} of {len(trajectories)} games")

    print(f"end: {success(await play(engine, context, tests)):.2f} of the test games")
    if options.output:
        save_hf_folder(Path(options.output), dict(lm.named_parameters()), options.model)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of the model to start from")
    parser.add_argument("--output", help="folder for the trained model")
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--groups", type=int, default=16, help="tasks per iteration")
    parser.add_argument("--group-size", type=int, default=8, help="games of each task")
    parser.add_argument("--steps", type=int, default=2, help="optimizer steps per iteration")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--test-games", type=int, default=128)
    try:
        asyncio.run(train(parser.parse_args(argv)))
    except InputError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
