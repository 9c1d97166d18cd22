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


class Slips:
    """The errors of a scripted player: ``slips("repeats")`` is true with the probability of that error."""

    def __init__(self, chances: Mapping[str, float], rng: random.Random) -> None:
        self.rng, self._chances = rng, chances

    def __call__(self, name: str) -> bool:
        return self.rng.random() < self._chances[name]


@dataclass(frozen=True)
class ScriptedPlayer:
    """A player of one family, called as `StarterSpec.demonstrate` is.

    Attributes:
        env: the environment's class.
        begin: (environment after its reset, errors) -> the player of that episode.
        slips: error -> its probability; it makes the player mediocre, so that reinforcement learning can improve what
            imitates it. ``hurried`` is the probability per turn, after the first, of an instruction to answer at once,
            in the words of T3's forced answers, so that the warm-start model understands them.
        fixed: options that replace those of the run.
        spare: run a task of neither split, of the size of the requested one, because a warm-start model memorizes its
            tasks.
        most_turns: of an episode; 0 for the environment's.
    """

    env: Callable[[Any, int], StatefulEnv[Any, Any]]
    begin: Callable[[Any, Slips], Act]
    slips: Mapping[str, float] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=lambda: {"prompt": "compact"})
    spare: bool = False
    most_turns: int = 0

    @property
    def flawless(self) -> ScriptedPlayer:
        """The same player without errors."""
        return replace(self, slips=dict.fromkeys(self.slips, 0.0))

    def __call__(self, task_id: str, rng: random.Random, options: Any, max_turns: int = 0) -> Dialogue:
        """Run ``task_id`` and return the dialogue; raises `InputError`: there is no such task."""
        return self.play(task_id, options, max_turns, rng)[0]

    def play(
        self, task_id: str, options: Any, max_turns: int = 0, rng: random.Random | None = None
    ) -> tuple[Dialogue, dict[str, Any]]:
        """Run ``task_id``; return the dialogue and the last ``info``."""
        slips = Slips(self.slips, rng or random.Random(task_id))
        most = min(max_turns or self.most_turns, self.most_turns or max_turns)
        env = self.env(replace(options, **self.fixed), most)
        if self.spare:
            task_id = f"{task_id.partition('/')[0]}/spare/{slips.rng.randrange(1_000_000):06d}"
        observation, info = settled(env.reset(options={"task_id": task_id}))
        act = self.begin(env, slips)
        hurries = "hurried" in self.slips and env.options.prompt == "compact"
        dialogue: Dialogue = []
        over = False
        while not over:
            hurried = hurries and bool(dialogue) and slips("hurried")
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
