"""Demonstrated dialogues as trajectories: the same records, rows and masks as sampled ones."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from functools import lru_cache

from rl_agents.background import settled
from rl_agents.chat.context import ContextPolicy, Dialogue, load_tokenizer, make_context
from rl_agents.data.tasks import stream_seed
from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.envs.base import TextEnv, env_spec, read_env_options, starter_spec, task_ids
from rl_agents.settings import Settings


def demonstrated_trajectories(settings: Settings, model_dir: str, seed: int) -> list[Trajectory]:
    """Let the environment's demonstrator play ``settings.demonstrations`` training tasks, drawn with replacement.

    Raises:
        InputError: the environment has no demonstrator.
    """
    starter = starter_spec(settings.env)
    tasks = task_ids(settings.env, "train", settings.env_options)
    options = read_env_options(env_spec(settings.env), settings.env_options)
    context = _context(settings.context, model_dir)
    rng = random.Random(seed)
    trajectories = []
    for index in range(settings.demonstrations):
        task = rng.choice(tasks)
        dialogue = starter.demonstrate(task, rng, options, settings.max_turns)
        chat = starter.opening(task, options) if starter.opening else ""
        trajectory = encode_dialogue(dialogue, context, settings.max_model_len, chat)
        trajectory.task_id, trajectory.group_id, trajectory.seed = task, index, stream_seed(seed, index)
        trajectories.append(trajectory)
    return trajectories


def solves(env: TextEnv, task_id: str, actions: Iterable[str]) -> bool:
    """Play actions until the episode ends, and say whether they solve the task."""
    _, info = settled(env.reset(seed=0, options={"task_id": task_id}))
    for action in actions:
        _, _, terminated, truncated, info = settled(env.step(action))
        if terminated or truncated:
            break
    return bool(info.get("success"))


def encode_dialogue(
    turns: Sequence[tuple[str, str]], context: ContextPolicy, max_model_len: int, chat: str = ""
) -> Trajectory:
    """Tokenize (observation, action) turns as the policy would have read and written them.

    ``chat`` is what the dialogue begins with where that is more than one user message (`context.chat_text`). Turns
    that no longer fit ``max_model_len`` are left out. Log-probabilities are 0: nobody sampled these tokens.
    """
    trajectory = Trajectory(task_id="", group_id=0, member=0, seed=0, terminated=True, end_cause="demonstration")
    template = context.template
    dialogue: Dialogue | None = None
    for observation, action in turns:
        if dialogue is None:
            dialogue = Dialogue.start(observation, chat)
        else:
            last = trajectory.steps[-1]
            dialogue = dialogue.after(last.prompt_ids, last.response_ids, last.action, observation)
        prompt = context.prompt(dialogue)
        response = [*template.tokenizer.encode(action, add_special_tokens=False), template.end_of_turn]
        if len(prompt) + len(response) > max_model_len:
            trajectory.terminated, trajectory.truncated = False, True
            break
        trajectory.steps.append(
            Step(
                prompt_ids=prompt,
                response_ids=response,
                logprobs=[0.0] * len(response),
                policy_version=-1,
                finish_reason="stop",
                observation=observation,
                anchor=observation,
                action=action,
            )
        )
    return trajectory


@lru_cache(maxsize=4)
def _context(context: str, model_dir: str) -> ContextPolicy:
    return make_context(context, load_tokenizer(model_dir))
