"""The mediocre shopper of WebShop, and the small starter model that it teaches: its words and its weights.

`demonstrate` knows the form of every page, but it leaves words out of its query, does not always open the first result,
and often buys before every option is chosen: reinforcement learning has something to improve. It shops in the small
catalogue, where every property, color and sort of product is one word, and so one token. Most of what the model writes
is copied from the request: two layers are enough for that.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rl_agents.envs.small_model import IMITATION, small_qwen3, word_tokenizer
from rl_agents.envs.spec import StarterSpec
from rl_agents.envs.stateful import Dialogue, play
from rl_agents.envs.webshop import expert
from rl_agents.envs.webshop.env import EpisodeState, WebShopEnv
from rl_agents.envs.webshop.expert import wanted_options
from rl_agents.envs.webshop.generated import (
    SMALL_COLORS,
    SMALL_KINDS,
    SMALL_PRICES,
    SMALL_PROPERTIES,
    SMALL_SIZES,
)
from rl_agents.envs.webshop.goals import find_goal
from rl_agents.envs.webshop.pages import ITEM, RESULTS, SEARCH
from rl_agents.envs.webshop.prompts import COMPACT_PROBLEMS
from rl_agents.envs.webshop.records import Goal
from rl_agents.envs.webshop.shop import local_shop
from rl_agents.envs.webshop.spec import WebShopOptions
from rl_agents.envs.webshop.store import Store

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM


CATALOGUE = "small"


@dataclass(frozen=True, slots=True)
class Habits:
    """Habits of the shopper; about two purchases in five are right with these.

    Attributes:
        forgets_word: probability that a property is left out of the query.
        other_result: probability that one of the results 2 to 5 is opened in place of the first.
        skips_option: probability, per option not chosen yet, of buying at once.
        wrong_option: probability that an option is chosen at random.
    """

    forgets_word: float = 0.25
    other_result: float = 0.25
    skips_option: float = 0.2
    wrong_option: float = 0.1


HABITS = Habits()
#: Right on every goal of the small catalogue.
FLAWLESS = Habits(forgets_word=0, other_result=0, skips_option=0, wrong_option=0)


def demonstrate(
    task_id: str, rng: random.Random, options: WebShopOptions, max_turns: int = 0, habits: Habits = HABITS
) -> Dialogue:
    """Shop in the small catalogue and the compact style, whatever ``options`` say of these; return the dialogue.

    Raises:
        InputError: unknown task id.
    """
    store = local_shop(CATALOGUE).store
    goal = find_goal(store, task_id)
    env = WebShopEnv(replace(options, catalogue=CATALOGUE, prompt="compact"), max_turns)
    return play(env, task_id, lambda shown: (shown, _action(store, goal, env.state, rng, habits)))[0]


def demonstrate_well(task_id: str, rng: random.Random, options: WebShopOptions, max_turns: int = 0) -> Dialogue:
    """Shop as the expert, which in the small catalogue and the compact style is the demonstrator without bad habits."""
    if (options.catalogue, options.prompt) == (CATALOGUE, "compact"):
        return demonstrate(task_id, rng, options, max_turns, FLAWLESS)
    return expert.play(task_id, options, max_turns)[0]


def _action(store: Store, goal: Goal, state: EpisodeState, rng: random.Random, habits: Habits) -> str:
    page = state.turn.page
    if page.kind == SEARCH:
        *properties, kind = goal.name.split()
        words = [word for word in properties if rng.random() >= habits.forgets_word]
        return f"search[ {' '.join([*words, kind])} ]"
    if page.kind == RESULTS:
        place = rng.randint(2, min(5, len(page.items))) if rng.random() < habits.other_result else 1
        return f"click[ {place} ]"
    assert page.kind == ITEM and page.product is not None
    product = store.product(state.turn.state.asin)
    assert product is not None
    # A wrong product may not have the wanted value: any other will do.
    wanted = wanted_options(product, goal)
    chosen = dict(state.turn.state.chosen)
    for axis, values in page.product.options:
        if axis not in chosen and rng.random() >= habits.skips_option:
            value = wanted.get(axis, values[0])
            return f"click[ {rng.choice(values) if rng.random() < habits.wrong_option else value} ]"
    return "click[ buy now ]"


MAX_TOKENS = 512


def words() -> list[str]:
    """Return every word but special tokens: those of pages, requests and commands, and all prices."""
    pages = [
        "page",
        "search",
        "results",
        "item",
        "done",
        "description",
        "features",
        "reviews",
        "no",
        ";",
        "is",
        "color",
        "size",
    ]
    requests = ["buy", "under", "invalid", *COMPACT_PROBLEMS, "bought", "right", "wrong"]
    commands = ["search[", "click[", "]", "now", "back", "to", "next", "prev", "<", ">"]
    numbers = [str(number) for number in range(max(SMALL_PRICES[1], 100) + 1)]
    language = [*SMALL_KINDS, *SMALL_PROPERTIES, *SMALL_COLORS, *SMALL_SIZES]
    return list(dict.fromkeys([*pages, *requests, *commands, *numbers, *language]))


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build the word-level tokenizer; words that it does not know become ``<unk>``."""
    return word_tokenizer(words(), (), MAX_TOKENS)


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """Build the untrained model."""
    return small_qwen3(tokenizer, seed)


#: What runs with this model need: it reads the compact pages of the small catalogue only.
DEFAULTS: Mapping[str, Any] = {
    "env.catalogue": CATALOGUE,
    "env.prompt": "compact",
    "max_model_len": 384,
    "max_response_tokens": 12,
    "lr": 5e-4,
    "iterations": 40,
    "eval_episodes": 240,
    "eval_interval": 20,
}


STARTER = StarterSpec(
    build_tokenizer=build_tokenizer,
    build_model=build_model,
    demonstrate=demonstrate,
    training={**IMITATION, "demonstrations": 4096, "iterations": 12},
    defaults=DEFAULTS,
    expert=demonstrate_well,
)
