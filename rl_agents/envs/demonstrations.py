"""Scripted players and warm-start models: the common parts of all families."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rl_agents.background import settled
from rl_agents.envs.small_model import IMITATION, small_qwen3, word_tokenizer
from rl_agents.envs.spec import StarterSpec
from rl_agents.envs.stateful import Dialogue, StatefulEnv

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

#: One episode's player: (observation, whether it must answer at once) -> action. It may read ``env.state``.
Act = Callable[[str, bool], str]

TAGS = ("think", "interact", "answer")
#: The end of a call in the words of a small model.
CALL_END = '"}}'


def call_begin(tool: str, argument: str) -> str:
    """Return the JSON of a call before its argument's text: one word of a small model.

    >>> call_begin("expand", "paper_id")
    '{"name":"expand","arguments":{"paper_id":"'
    """
    return f'{{"name":"{tool}","arguments":{{"{argument}":"'


def compact_call(tool: str, argument: str, text: str) -> str:
    """Return a call in the words of a small model, separated by blanks."""
    return f"<tool_call> {call_begin(tool, argument)} {text} {CALL_END} </tool_call>"


@dataclass(frozen=True)
class ScriptedPlayer:
    """A player of one family, called as `StarterSpec.demonstrate` is.

    Attributes:
        env: the environment's class.
        begin: (environment after its reset, random generator, habits) -> the player of that episode.
        habits: its errors, a data class of probabilities. A field ``hurried`` is the probability per turn, after the
            first, of an instruction to answer at once, in the words of T3's forced answers, so that the warm-start
            model understands them.
        fixed: options that replace those of the run.
        spare: run a task of neither split, of the size of the requested one, because a warm-start model memorizes its
            tasks.
        most_turns: of an episode; 0 for the environment's.
    """

    env: Callable[[Any, int], StatefulEnv[Any, Any]]
    begin: Callable[[Any, random.Random, Any], Act]
    habits: Any = None
    fixed: Mapping[str, Any] = field(default_factory=lambda: {"prompt": "compact"})
    spare: bool = False
    most_turns: int = 0

    def __call__(
        self, task_id: str, rng: random.Random, options: Any, max_turns: int = 0, habits: Any = None
    ) -> Dialogue:
        """Run ``task_id`` and return the dialogue.

        Raises:
            InputError: unknown task id.
        """
        return self.play(task_id, options, max_turns, rng, habits)[0]

    def play(
        self, task_id: str, options: Any, max_turns: int = 0, rng: random.Random | None = None, habits: Any = None
    ) -> tuple[Dialogue, dict[str, Any]]:
        """Run ``task_id``; return the dialogue and the last ``info``."""
        rng, habits = rng or random.Random(task_id), habits or self.habits
        most = min(max_turns or self.most_turns, self.most_turns or max_turns)
        env = self.env(replace(options, **self.fixed), most)
        if self.spare:
            task_id = f"{task_id.partition('/')[0]}/spare/{rng.randrange(1_000_000):06d}"
        observation, info = settled(env.reset(options={"task_id": task_id}))
        act = self.begin(env, rng, habits)
        hurry = getattr(habits, "hurried", None) if env.options.prompt == "compact" else None
        dialogue: Dialogue = []
        over = False
        while not over:
            hurried = hurry is not None and bool(dialogue) and rng.random() < hurry
            shown = f"{observation}\n{env.answer_instruction}" if hurried else observation  # type: ignore[attr-defined]
            dialogue.append((shown, act(observation, hurried)))
            observation, _, terminated, truncated, info = settled(env.step(dialogue[-1][1]))
            over = terminated or truncated
        env.close()
        return dialogue, info


def word_starter(
    demonstrate: Callable[..., Dialogue],
    words: Callable[[], Sequence[str]],
    *,
    max_tokens: int,
    tags: Sequence[str] = TAGS,
    compose: Callable[[Tensor, Mapping[str, int]], None] | None = None,
    heads: int = 2,
    training: Mapping[str, Any] = MappingProxyType({}),
    defaults: Mapping[str, Any] = MappingProxyType({}),
    **rest: Any,
) -> StarterSpec:
    """Declare a warm-start model of whole words.

    Args:
        demonstrate: the player that it imitates.
        words: its vocabulary, except special tokens and tags.
        max_tokens: context length.
        compose: overwrites embeddings (`small_qwen3`).
        training: differences from `IMITATION`.
        defaults: differences from `RUNS`, the settings of runs with it. It reads compact prompts only.
        rest: other fields of `StarterSpec`.
    """

    def build_tokenizer() -> PreTrainedTokenizerFast:
        return word_tokenizer(words(), tags, max_tokens)

    def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
        return small_qwen3(tokenizer, seed, heads=heads, compose_embeddings=compose)

    return StarterSpec(
        build_tokenizer=build_tokenizer,
        build_model=build_model,
        demonstrate=demonstrate,
        training={**IMITATION, **training},
        defaults={"env.prompt": "compact", **RUNS, **defaults},
        **rest,
    )


#: Settings of runs with a warm-start model that most families share.
RUNS: Mapping[str, Any] = {"lr": 5e-4, "iterations": 60, "eval_episodes": 300, "eval_interval": 20}
