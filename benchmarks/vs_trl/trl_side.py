"""TRL's side: `GRPOTrainer` with a multi-turn ``rollout_func``; runs in .venv-trl (see setup.sh).

The episodes are those of our side: same tasks in the same order, same environment, prompts and chat template. Each
turn is one call over all running episodes: of ``model.generate``, left-padded, as TRL itself generates without vLLM,
or of TRL's own call of the vLLM in its process (``vllm_mode="colocate"``). What the environment says gets
``env_mask`` 0. Log-probabilities are returned with vLLM only, where TRL needs them.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
# For its vLLM, as our side has it: a small cache of keys and values, and no thread bound to a core.
os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_LOGGING_LEVEL": "ERROR"}

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.models import unwrap_model_for_generation

from benchmarks.vs_trl import common
from rl_agents.chat.template import ChatTemplate, ContextPolicy, Dialogue, load_tokenizer
from rl_agents.data.tasks import training_specs
from rl_agents.envs.base import TextEnv, make_env, task_ids

GENERATE = "generate"
#: TRL's figure of vLLM's log-probabilities against the learner's, nats per token; 0.003 is seen.
DIFFERENCE, LARGEST_DIFFERENCE = "sampling/sampling_logp_difference/mean", 0.01
#: Sampled ids and their log-probabilities, if there are any.
Response = tuple[list[int], Sequence[float]]


class Episode:
    """One dialogue: all ids so far, and which of them were sampled."""

    def __init__(self, task_id: str, env: TextEnv, context: ContextPolicy) -> None:
        self.env, self.context = env, context
        observation, _ = env.reset(seed=common.SEED, options={"task_id": task_id})
        self.dialogue = Dialogue.start(observation)
        self.ids = context.prompt(self.dialogue)
        self.prompt_length = len(self.ids)
        self.mask: list[int] = []
        self.logprobs: list[float] = []
        self.reward, self.done = 0.0, False

    def answer(self, response: list[int], logprobs: Sequence[float]) -> None:
        action = self.context.template.decode(response)
        observation, reward, terminated, truncated, _ = self.env.step(action)
        self.reward += float(reward)
        self.done = terminated or truncated
        self.dialogue = self.dialogue.after(self.ids, response, action, observation)
        # What comes after the last answer is not part of the dialogue.
        after = [*self.ids, *response] if self.done else self.context.prompt(self.dialogue)
        unsampled = len(after) - len(self.ids) - len(response)
        self.mask += [1] * len(response) + [0] * unsampled
        self.logprobs += [*logprobs, *[0.0] * unsampled]
        self.ids = after


class Rollouts:
    """The ``rollout_func``; remembers what the last call sampled and cost."""

    def __init__(self, model_dir: Path, job: common.Job) -> None:
        self.job = job
        self.context = ContextPolicy(ChatTemplate(load_tokenizer(model_dir)))
        self.envs = [make_env(job.env, job.options) for _ in range(job.episodes)]
        self.tokens, self.cpu_s, self.reward = 0, 0.0, 0.0

    def __call__(self, prompts: list[str], trainer: GRPOTrainer) -> dict[str, Any]:
        """Play one episode per prompt (a task id)."""
        started = time.process_time()
        episodes = [Episode(task, env, self.context) for task, env in zip(prompts, self.envs, strict=True)]
        with self.plain(trainer) if not trainer.use_vllm else self.colocated(trainer) as sample:
            while running := [episode for episode in episodes if not episode.done]:
                for episode, response in zip(running, sample(running), strict=True):
                    episode.answer(*response)
        self.tokens = sum(sum(episode.mask) for episode in episodes)
        self.reward = sum(episode.reward for episode in episodes) / len(episodes)
        self.cpu_s = time.process_time() - started
        return {
            "prompt_ids": [episode.ids[: episode.prompt_length] for episode in episodes],
            "completion_ids": [episode.ids[episode.prompt_length :] for episode in episodes],
            "logprobs": [episode.logprobs for episode in episodes] if trainer.use_vllm else None,
            "env_mask": [episode.mask for episode in episodes],
            "episode_return": [episode.reward for episode in episodes],
        }

    @contextmanager
    def plain(self, trainer: GRPOTrainer) -> Iterator[Callable[[list[Episode]], list[Response]]]:
        with unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator) as model, torch.no_grad():
            model.eval()
            yield partial(self.generate, model)
            model.train()

    @contextmanager
    def colocated(self, trainer: GRPOTrainer) -> Iterator[Callable[[list[Episode]], list[Response]]]:
        """Sample with TRL's vLLM; TRL has just pushed the weights."""

        def sample(episodes: list[Episode]) -> list[Response]:
            prompts = [episode.ids for episode in episodes]
            _, ids, logprobs, _ = trainer.vllm_generation.generate(prompts, None, num_generations=1)
            return [(list(row), [own for (own,) in values]) for row, values in zip(ids, logprobs, strict=True)]

        yield sample

    def generate(self, model: Any, episodes: list[Episode]) -> list[Response]:
        stop, width = self.context.template.stop_token_ids, max(len(episode.ids) for episode in episodes)
        padding = [width - len(episode.ids) for episode in episodes]
        ids = torch.tensor([[0] * pad + episode.ids for pad, episode in zip(padding, episodes, strict=True)])
        attention = torch.tensor([[0] * pad + [1] * (width - pad) for pad in padding])
        output = model.generate(
            input_ids=ids, attention_mask=attention, max_new_tokens=self.job.max_response_tokens,
            do_sample=True, temperature=1.0, top_k=0, top_p=1.0, eos_token_id=list(stop), pad_token_id=0,
        )  # fmt: skip
        return [(_until(row, stop), ()) for row in output[:, width:].tolist()]

    def vllm_arguments(self, path: str) -> dict[str, Any]:
        """Return the fields of `GRPOConfig` with which TRL samples with vLLM."""
        if path == GENERATE:
            return {}
        from benchmarks.vs_trl import live_model

        live_model.register()
        one_turn = {
            "max_tokens": self.job.max_response_tokens, "detokenize": False,
            "stop_token_ids": list(self.context.template.stop_token_ids),
        }  # fmt: skip
        return {
            "use_vllm": True, "vllm_mode": "colocate", "vllm_max_model_length": self.job.max_model_len,
            "generation_kwargs": one_turn,
        }  # fmt: skip


def _until(row: list[int], stop: tuple[int, ...]) -> list[int]:
    end = next((index for index, token in enumerate(row) if token in stop), len(row) - 1)
    return row[: end + 1]


class TakeTurns(TrainerCallback):
    """Measures from turn to turn: one optimizer step with its rollout, logging and data loading.

    Raises:
        SystemExit: what vLLM sampled with is further from the learner's model than bfloat16 explains.
    """

    def __init__(self, rollouts: Rollouts) -> None:
        self.rollouts, self.started = rollouts, 0.0

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        common.hand_over()
        self.started = common.await_turn()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        cpu_s, sampled = time.process_time() - self.started, self.rollouts
        learner_s, count = cpu_s - sampled.cpu_s, sampled.job.episodes
        common.hand_over(common.Iteration(sampled.tokens, count, sampled.reward, cpu_s, sampled.cpu_s, learner_s))
        self.started = common.await_turn()

    def on_log(self, *args: Any, logs: dict[str, Any], **kwargs: Any) -> None:
        # Weights that do not arrive show nowhere else: the loss is corrected for them.
        if float(logs.get(DIFFERENCE, 0)) > LARGEST_DIFFERENCE:
            raise SystemExit(f"TRL's vLLM samples with other weights than the learner's: {logs[DIFFERENCE]}")


def reward(completions: list[str], episode_return: list[float], **kwargs: Any) -> list[float]:
    return list(episode_return)


def main() -> None:
    """``trl_side MODEL_DIR ITERATIONS generate|vllm JOB``."""
    torch.set_num_threads(1)
    model_dir, iterations, path, job = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], common.JOBS[sys.argv[4]]
    rollouts = Rollouts(model_dir, job)
    tasks = task_ids(job.env, "train", job.options)
    specs = [training_specs(tasks, i, job.groups, 1, common.SEED) for i in range(iterations)]
    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(prefix="vs_trl-"), max_steps=iterations, seed=common.SEED, shuffle_dataset=False,
        per_device_train_batch_size=job.micro_episodes, num_generations=job.group_size,
        gradient_accumulation_steps=job.episodes // job.micro_episodes,
        max_completion_length=job.max_model_len, temperature=1.0, beta=0.0, epsilon=0.2,
        num_iterations=1, loss_type="dapo", scale_rewards="group", mask_truncated_completions=False,
        learning_rate=job.lr, lr_scheduler_type="constant",
        adam_beta1=common.BETAS[0], adam_beta2=common.BETAS[1],
        weight_decay=0.0, max_grad_norm=common.GRAD_CLIP, use_cpu=True, bf16=job.dtype == "bfloat16", fp16=False,
        torch_compile=False,
        gradient_checkpointing=False, report_to="none", save_strategy="no", logging_steps=1, disable_tqdm=True,
        **rollouts.vllm_arguments(path),
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32),
        processing_class=load_tokenizer(model_dir),
        args=config,
        train_dataset=Dataset.from_list([{"prompt": spec.task_id} for part in specs for spec in part]),
        reward_funcs=reward,
        callbacks=[TakeTurns(rollouts)],
        rollout_func=rollouts,
    )
    trainer.train()


if __name__ == "__main__":
    main()
