"""WebShop's reward of a purchase.

    reward = r_type * (attribute hits + option hits + [price <= limit]) / (attributes + options + 1)

Source: WebShop (arXiv 2207.01206), section 3 (equations 1 and 2) with the thresholds of its published code. Where paper
and code differ, published experiments have used the code.

The type reward compares the nouns of titles, which WebShop takes from spaCy's ``en_core_web_sm`` (NOUN or PROPN,
``goal.py`` of its public code; an earlier version loaded ``en_core_web_lg``). No such model is available as a Python
package. Titles are chains of nouns with few other words, so a list of the other words (`OTHER_WORDS`) comes close;
docs/environments/webshop.md has a comparison. The scores of a goal's own product do not depend on it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rapidfuzz import fuzz, utils

from rl_agents.envs.task_sets import stored_words
from rl_agents.envs.webshop.records import Goal, Product

_STORED = stored_words(__file__, "reward_words.json")

_TOKEN = re.compile(r"(?:[A-Za-z]\.){2,}|[^\W_]+(?:['’][^\W_]+)*")
_POSSESSIVE = re.compile(r"['’]s?$")

#: Words of English titles that are not nouns: function words, adjectives, adverbs and verbs.
OTHER_WORDS = frozenset(_STORED["not_nouns"].split())


def nouns(title: str) -> list[str]:
    """Return the words of ``title`` that are taken as nouns, in lower case and order, including repetitions.

    Numbers are no nouns.

    >>> nouns("Rusticware 921ORB Kitchen and Bath Cabinet Knob")
    ['rusticware', '921orb', 'kitchen', 'bath', 'cabinet', 'knob']
    """
    words = [_POSSESSIVE.sub("", token) for token in _TOKEN.findall(title)]
    return [word.lower() for word in words if _counts(word)]


def _counts(word: str) -> bool:
    if not any(letter.isalpha() for letter in word) or re.fullmatch(r"\d+[a-z]{0,3}", word):
        return False
    return len(word) > 1 and word.lower() not in OTHER_WORDS


#: Two texts match when their token_set_ratio, rounded to an integer, is above this.
FUZZY_THRESHOLD = 85
CATEGORY_SEPARATOR = "›"

#: An option value is reduced to the first of these words, in this order, that it contains.
COLORS = tuple(_STORED["colors"].split())

# The library that WebShop names drops Latin-1 letters before it compares.
_LATIN_1 = dict.fromkeys(range(128, 256))


@dataclass(frozen=True, slots=True)
class Score:
    """A purchase's reward and its parts.

    Attributes:
        type: ``r_type``, one of 0, 0.1, 0.5 and 1.
        attributes, options: shares of the wanted ones that were hit (1 if none were wanted).
        price: whether the price is within the limit.
    """

    reward: float
    type: float
    attributes: float
    options: float
    price: bool

    @property
    def success(self) -> bool:
        return self.reward == 1.0


def score_purchase(product: Product, chosen: Mapping[str, str], goal: Goal) -> Score:
    attributes = attribute_hits(product, goal.attributes)
    options = option_hits(tuple(chosen.values()), goal.options)
    price = product.price <= goal.price_upper
    kind = type_score(product, goal)
    wanted = len(goal.attributes) + len(goal.options) + 1
    return Score(
        reward=kind * ((attributes + options + price) / wanted),
        type=kind,
        attributes=attributes / len(goal.attributes) if goal.attributes else 1.0,
        options=options / len(goal.options) if goal.options else 1.0,
        price=price,
    )


def type_score(product: Product, goal: Goal) -> float:
    """Return ``r_type``: how far the product is of the goal's kind.

    With t the share of the goal title's nouns that are in the product's title (0.2 if it has none):

    - 1 if the shop queries are equal, or two categories are shared, or t > 0.2; else 0.5;
    - but 0.1 if t < 0.1, and 0 if t = 0, whatever the queries and categories are.
    """
    title = title_score(product.title, goal.name)
    if title == 0.0:
        return 0.0
    if title < 0.1:
        return 0.1
    shared = _categories(product.product_category) & _categories(goal.product_category)
    return 1.0 if product.query == goal.query or len(shared) >= 2 or title > 0.2 else 0.5


def title_score(purchased: str, wanted: str) -> float:
    """Return the number of different nouns in both titles, divided by the number of nouns in the wanted title."""
    wanted_nouns = nouns(wanted)
    if not wanted_nouns:
        return 0.2
    return len(set(wanted_nouns) & set(nouns(purchased))) / len(wanted_nouns)


def attribute_hits(product: Product, wanted: Sequence[str]) -> int:
    """Count the wanted attributes that the product has by a similar name, or literally in one of its texts."""
    texts = (product.title.lower(), " ".join(product.bullets).lower(), product.description.lower())
    return sum(
        any(similar(attribute, name) for attribute in product.attributes) or any(name in text for text in texts)
        for name in wanted
    )


def option_hits(chosen: Sequence[str], wanted: Sequence[str | tuple[str, str]]) -> int:
    """Count the wanted options that are similar to a chosen value, with colors reduced to their first color word."""
    bought = [reduce_color(value) for value in chosen]
    return sum(any(similar(value, reduce_color(option)) for value in bought) for option in wanted)


def reduce_color(option: str | tuple[str, str]) -> str | tuple[str, str]:
    """Return the first color word that is in ``option``, else ``option``.

    The (name, value) pair of a synthetic goal contains a color word only if the word equals its name or its value,
    because the published code applies ``in`` to texts and pairs alike.
    """
    return next((color for color in COLORS if color in option), option)


def similar(one: str | tuple[str, str], other: str | tuple[str, str]) -> bool:
    """Whether token_set_ratio, as rapidfuzz and thefuzz define it, is above the threshold."""
    ratio = fuzz.token_set_ratio(_plain(str(one)), _plain(str(other)), score_cutoff=FUZZY_THRESHOLD - 1)
    return round(ratio) > FUZZY_THRESHOLD


def _plain(text: str) -> str:
    return utils.default_process(text.translate(_LATIN_1))


def _categories(path: str) -> set[str]:
    return {part.strip() for part in path.split(CATEGORY_SEPARATOR)}
