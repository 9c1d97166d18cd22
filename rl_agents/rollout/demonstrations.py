"""Demonstrated dialogues as trajectories, with the same records, rows and masks as sampled ones."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from rl_agents.background import settled
from rl_agents.chat.messages import Message, action_text, inline_thoughts
from rl_agents.chat.template import (
    SUMMARY_REQUEST,
    ChatOptions,
    ContextPolicy,
    Dialogue,
    RenderWindow,
    chat_text,
    further_text,
    load_tokenizer,
    make_context,
)
from rl_agents.config import Settings, context_window
from rl_agents.data.row_cache import KeptRow, keep
from rl_agents.data.tables import open_table
from rl_agents.data.tasks import stream_seed
from rl_agents.data.trajectory import SUMMARY_ANCHOR, Step, Trajectory
from rl_agents.envs.base import TextEnv, env_spec, make_env, read_env_options, starter_spec, task_ids
from rl_agents.errors import InputError
from rl_agents.traces.files import Defect, iter_traces
from rl_agents.traces.formats import FIELDS


def demonstrated_trajectories(settings: Settings, model_dir: str, seed: int) -> Sequence[Trajectory]:
    """Return the dialogues of ``settings.demonstration_data``, or of the environment's demonstrator.

    The demonstrator solves ``settings.demonstrations`` training tasks, drawn with replacement; of several environments
    each has its share.

    Raises:
        InputError: the environment has no demonstrator, or the table cannot be used.
    """
    if settings.demonstration_data:
        return Dialogues(settings, model_dir)
    if settings.parts:
        found, total = list[Trajectory](), sum(own.weight for own in settings.parts.values())
        for own in settings.parts.values():
            share = copy.copy(own)
            share.demonstrations = max(1, round(settings.demonstrations * own.weight / total))
            for trajectory in demonstrated_trajectories(share, model_dir, seed):
                trajectory.task_id, trajectory.group_id = f"{own.task_prefix}{trajectory.task_id}", len(found)
                found.append(trajectory)
        return found
    starter = starter_spec(settings.env, settings.env_options)
    tasks = task_ids(settings.env, "train", settings.env_options)
    options = read_env_options(env_spec(settings.env), settings.env_options)
    context = _context(settings.context, model_dir, ChatOptions.from_settings(settings))
    env = _window_writer(settings)
    rng = random.Random(seed)
    trajectories = []
    for index in range(settings.demonstrations):
        task = rng.choice(tasks)
        dialogue = starter.demonstrate(task, rng, options, settings.max_turns)
        chat = starter.opening(task, options) if starter.opening else ""
        if env is not None:
            settled(env.reset(seed=0, options={"task_id": task}))
        trajectory = encode_dialogue(dialogue, context, settings.max_model_len, chat, env, starter.summarize)
        trajectory.task_id, trajectory.group_id, trajectory.seed = task, index, stream_seed(seed, index)
        trajectories.append(trajectory)
    if env is not None:
        env.close()
    return trajectories


def _window_writer(settings: Settings) -> TextEnv | None:
    """Return an environment with its own format for ``context=window(n)``; None if it has none."""
    if context_window(settings.context) is None:
        return None
    env = make_env(settings.env, settings.env_options, settings.max_turns)
    return env if hasattr(env, "render_window") else None


class Dialogues(Sequence[Trajectory]):
    """The dialogues of ``demonstration_data`` or ``expert_data``, cached on disk and tokenized when they are used.

    Traces with a known reward below 1 are excluded, as in `pivot extract`, because only successes are demonstrations.

    Raises:
        InputError: a row is no dialogue, no dialogue is left, one is too long when it is used, or ``context`` is not
            ``append``.
    """

    def __init__(self, settings: Settings, model_dir: str, use: str = "demonstration") -> None:
        if settings.context != "append":
            raise InputError(f"context={settings.context}: dialogues of a table are imitated with context=append")
        self._context = _context(settings.context, model_dir, ChatOptions.from_settings(settings))
        self._length, self._name = settings.max_model_len, getattr(settings, f"{use}_data")
        self._columns = getattr(settings, f"{use}_columns")
        table = open_table(self._name, self._columns, FIELDS, f"{use}_columns")
        self._kept = keep(self._name, f"dialogues/1/{table.version()}", self._entries)
        self._count = len(self._kept)
        if not self._count:
            raise InputError(f"{use}_data={self._name}: no dialogue in it that worked (a reward of 1, or none)")

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self._count:
            raise IndexError(index)  # ends an iteration
        source, messages, tools, single = self._kept.get(str(index))
        trajectory = encode_chat(messages, tools, self._context, self._length, single)
        if not trajectory.steps:
            raise InputError(f"{source}: its first turn does not fit max_model_len={self._length}")
        trajectory.task_id, trajectory.group_id = source, index
        return trajectory

    def sources(self) -> Iterator[str]:
        """Return where each dialogue stands, without tokenizing any."""
        return (self._kept.get(str(index))[0] for index in range(self._count))

    def _entries(self) -> Iterator[KeptRow]:
        count = 0
        for found in iter_traces(self._name, (), self._columns):
            if isinstance(found, Defect):
                raise InputError(str(found))
            if found.reward is None or found.reward >= 1:
                messages = [inline_thoughts(message) for message in found.messages]
                tools = [tool.to_openai() for tool in found.tools]
                yield str(count), "", [found.source, messages, tools, found.single]
                count += 1


def solves(env: TextEnv, task_id: str, actions: Iterable[str]) -> bool:
    """Take actions until the episode ends; return whether they solve the task."""
    _, info = settled(env.reset(seed=0, options={"task_id": task_id}))
    for action in actions:
        _, _, terminated, truncated, info = settled(env.step(action))
        if terminated or truncated:
            break
    return bool(info.get("success"))


def encode_dialogue(
    turns: Sequence[tuple[str, str]],
    context: ContextPolicy,
    max_model_len: int,
    chat: str = "",
    env: TextEnv | None = None,
    summarize: Callable[[Sequence[tuple[str, str]]], str] | None = None,
) -> Trajectory:
    """Tokenize (observation, action) turns as the policy would read and write them.

    Turns beyond ``max_model_len`` are excluded. Log-probabilities are 0, because these tokens were not sampled.

    Args:
        chat: the beginning of the dialogue if it is more than one user message (`context.chat_text`).
        env: reset to the task; it takes the same steps and writes windows in its own format (``render_window``).
        summarize: `rl_agents.envs.spec.StarterSpec.summarize`.
    """
    writer = _Writer(context, max_model_len, getattr(env, "render_window", None))
    dialogue: Dialogue | None = None
    for number, (observation, action) in enumerate(turns):
        dialogue = writer.after(dialogue, observation) if dialogue else Dialogue.start(observation, chat)
        if summarize is not None and (asked := context.summary_prompt(dialogue, writer.prompt(dialogue))):
            text = summarize(turns[:number])
            if not writer.append(asked, SUMMARY_REQUEST, text, SUMMARY_ANCHOR):
                break
            dialogue = dialogue.summarized(text)
        if not writer.append(writer.prompt(dialogue), dialogue.observation, action, dialogue.observation):
            break
        if env is not None:
            settled(env.step(action))
    return writer.trajectory


def encode_chat(
    messages: Sequence[Message], tools: Sequence[Any], context: ContextPolicy, max_model_len: int, single: bool = False
) -> Trajectory:
    """Tokenize the assistant's turns of a chat like `encode_dialogue`.

    Args:
        messages: in the form of `rl_agents.chat.messages`.
        tools: definitions in OpenAI's form.
        single: only the last turn is a demonstration.
    """
    said = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    said = said[-1:] if single else said
    writer = _Writer(context, max_model_len)
    dialogue = Dialogue.start("", chat_text(messages[: said[0]], tools))
    for number, place in enumerate(said):
        if number:
            calls = messages[said[number - 1]].get("tool_calls", ())
            dialogue = writer.after(dialogue, "", further_text(messages[said[number - 1] + 1 : place], calls))
        if not writer.append(writer.prompt(dialogue), "", action_text(messages[place]), ""):
            break
    return writer.trajectory


class _Writer:
    """Adds steps to a trajectory."""

    def __init__(self, context: ContextPolicy, max_model_len: int, render: RenderWindow | None = None) -> None:
        self.trajectory = Trajectory("", 0, member=0, seed=0, terminated=True, end_cause="demonstration")
        self._context, self._length, self._render = context, max_model_len, render

    def prompt(self, dialogue: Dialogue) -> list[int]:
        return self._context.prompt(dialogue, self._render)

    def after(self, dialogue: Dialogue, observation: str, further: str = "") -> Dialogue:
        """Return the dialogue after the last step."""
        last = self.trajectory.steps[-1]
        return dialogue.after(last.prompt_ids, last.response_ids, last.action, observation, further)

    def append(self, prompt: list[int], observation: str, action: str, anchor: str) -> bool:
        """Add a step; if it does not fit, end the trajectory and return False."""
        response = self._context.template.answer_ids(action)
        if len(prompt) + len(response) > self._length:
            self.trajectory.terminated, self.trajectory.truncated = False, True
            return False
        self.trajectory.steps.append(
            Step(
                prompt_ids=prompt,
                response_ids=response,
                logprobs=[0.0] * len(response),
                policy_version=-1,
                finish_reason="stop",
                observation=observation,
                anchor=anchor,
                action=action,
            )
        )
        return True


@lru_cache(maxsize=4)
def _context(context: str, model_dir: str, options: ChatOptions) -> ContextPolicy:
    return make_context(context, load_tokenizer(model_dir), options)
