"""The small starter model of long_form_qa: its words, its weights before training, and what it is taught.

It reads the almanac in the compact style, three words a fact, one passage a search, and writes calls of the search tool
as a few words that are JSON together.

The expert (`play`) searches for every part of a question and says what it read. `demonstrate`, which teaches the
starter, breaks off calls, searches for the wrong thing, thinks that it knows what it has not read, and leaves out
parts: every stage that a reward can tell apart is failed at times.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rl_agents.envs.long_form_qa.almanac import ASPECTS, TOWNS, Wish, value_word
from rl_agents.envs.long_form_qa.env import LongFormQAEnv, QAState
from rl_agents.envs.long_form_qa.prompts import INVALID, NOTHING
from rl_agents.envs.long_form_qa.spec import LongFormQAOptions
from rl_agents.envs.long_form_qa.tasks import wishes_of
from rl_agents.envs.small_model import IMITATION, small_qwen3, word_tokenizer
from rl_agents.envs.spec import StarterSpec
from rl_agents.envs.stateful import Dialogue, Played
from rl_agents.envs.stateful import play as play_episode
from rl_agents.tools.calls import ToolCall, write_response

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM


PARALLEL = 4


def expert_action(state: QAState) -> str:
    """Return the action in the paper's style: all searches in the first turn, then the answer from what was read."""
    wishes = wishes_of(state.task.task_id)
    if not state.turns:
        calls = [ToolCall("search", {"query": f"{wish.town} {wish.aspect.name} {wish.point}"}) for wish in wishes]
        return f"<think>I need {len(calls)} facts.</think>\n{write_response('', calls[:PARALLEL])}"
    stated = " ".join(wish.point for wish in wishes if any(wish.point in text for text in state.read))
    return f"<think>I have read enough.</think>\n<answer>{stated}</answer>"


def compact_search(wish: Wish) -> str:
    """Return the search for a wish in words that the starter can write; between them are blanks."""
    town, aspect, _ = wish.words
    return f'<tool_call> {{"name":"search","arguments":{{"query":" {town} {aspect} "}}}} </tool_call>'


def compact_answer(state: QAState) -> str:
    """Return the answer in the compact style: every wished fact that was read."""
    stated = [" ".join([*wish.words, "."]) for wish in wishes_of(state.task.task_id) if was_read(wish, state)]
    return f"<answer> {' '.join(stated)} </answer>"


def was_read(wish: Wish, state: QAState) -> bool:
    """Say whether a passage that was read in the compact style states the wish."""
    return any(f"{' '.join(wish.words)} ." in text for text in state.read)


def compact_action(state: QAState) -> str:
    """Return the expert's action in the compact style: one search a turn, then the answer."""
    missing = [wish for wish in wishes_of(state.task.task_id) if not was_read(wish, state)]
    return compact_search(missing[0]) if missing else compact_answer(state)


def play(task_id: str, options: LongFormQAOptions, max_turns: int = 0) -> Played:
    """Play ``task_id``; return the dialogue and the last ``info``.

    Raises:
        InputError: unknown task id.
    """
    env = LongFormQAEnv(options, max_turns)

    def act(shown: str) -> tuple[str, str]:
        if options.prompt == "compact":
            return shown, compact_action(env.state)
        return shown, expert_action(env.state).replace("think>", f"{options.thoughts}>")

    return play_episode(env, task_id, act)


@dataclass(frozen=True, slots=True)
class Habits:
    """Habits of the player, as probabilities.

    Attributes:
        broken_call: per search, of leaving out the end of the call's JSON.
        wrong_search: per search, of asking for another aspect of the town.
        presumes: per part of the question, of not searching for it and stating a value at random.
        forgets: per part of the question, of neither searching for it nor stating it.
        hurried: per turn, after the first, of being told to answer at once, in the words of T3's forced answers.
    """

    broken_call: float = 0.06
    wrong_search: float = 0.08
    presumes: float = 0.1
    forgets: float = 0.1
    hurried: float = 0.02


HABITS = Habits()


def demonstrate(
    task_id: str, rng: random.Random, options: LongFormQAOptions, max_turns: int = 0, habits: Habits = HABITS
) -> Dialogue:
    """Play ``task_id`` in the compact style, whatever ``options`` say, and return the dialogue.

    Raises:
        InputError: unknown task id.
    """
    env = LongFormQAEnv(replace(options, prompt="compact"), max_turns)
    wishes = wishes_of(task_id)
    kept = [wish for wish in wishes if rng.random() >= habits.forgets] or list(wishes)
    presumed = {wish for wish in kept if rng.random() < habits.presumes}

    def act(observation: str) -> tuple[str, str]:
        if env.state.turns and rng.random() < habits.hurried:
            return f"{observation}\n{env.answer_instruction}", _answer(env.state, kept, presumed, rng)
        missing = [wish for wish in kept if wish not in presumed and not was_read(wish, env.state)]
        if missing and env.state.turns < env.max_turns - 1:
            return observation, _search(missing[0], rng, habits)
        return observation, _answer(env.state, kept, presumed, rng)

    return play_episode(env, task_id, act)[0]


def _search(wish: Wish, rng: random.Random, habits: Habits) -> str:
    if rng.random() < habits.broken_call:
        return compact_search(wish).replace(' "}} ', " ")
    if rng.random() < habits.wrong_search:
        return compact_search(Wish(wish.town, rng.choice([a for a in ASPECTS if a is not wish.aspect])))
    return compact_search(wish)


def _answer(state: QAState, kept: Sequence[Wish], presumed: set[Wish], rng: random.Random) -> str:
    """State what was read, and guess at what was presumed."""
    parts = []
    for wish in kept:
        town, aspect, value = wish.words
        if wish in presumed and not was_read(wish, state):
            value = value_word(wish.aspect, rng.choice(wish.aspect.values))
        elif not was_read(wish, state):
            continue
        parts.append(f"{town} {aspect} {value} .")
    return f"<answer> {' '.join(parts)} </answer>"


MAX_TOKENS = 256
TAGS = ("think", "answer", "tool_call", "tool_response")
CALL_BEGIN, CALL_END = '{"name":"search","arguments":{"query":"', '"}}'


def words() -> list[str]:
    """Return every word but special tokens and tags."""
    values = [value_word(aspect, value) for aspect in ASPECTS for value in aspect.values]
    prompts = ["question", ":", ".", INVALID, NOTHING, CALL_BEGIN, CALL_END]
    return [*prompts, *(town.lower() for town in TOWNS), *(aspect.name for aspect in ASPECTS), *values]


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build the word-level tokenizer; words that it does not know become ``<unk>``."""
    return word_tokenizer(words(), TAGS, MAX_TOKENS)


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """Build the untrained model."""
    return small_qwen3(tokenizer, seed)


#: What runs with this model need: the compact style, one passage a search; it writes no thoughts.
DEFAULTS: Mapping[str, Any] = {
    "env.prompt": "compact",
    "env.results": 1,
    "max_model_len": 192,
    "max_response_tokens": 20,
    "lr": 5e-4,
    "iterations": 60,
    "eval_episodes": 300,
    "eval_interval": 20,
}

STARTER = StarterSpec(
    build_tokenizer=build_tokenizer,
    build_model=build_model,
    demonstrate=demonstrate,
    training=IMITATION,
    defaults=DEFAULTS,
)
