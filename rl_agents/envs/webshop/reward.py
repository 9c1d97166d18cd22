"""WebShop's reward of a purchase.

    reward = r_type * (attribute hits + option hits + [price <= limit]) / (attributes + options + 1)

Source: WebShop (arXiv 2207.01206), section 3 (equations 1 and 2) with the thresholds of its published code: where paper
and code differ, experiments have used the code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rapidfuzz import fuzz, utils

from rl_agents.envs.webshop.nouns import nouns
from rl_agents.envs.webshop.records import Goal, Product

#: Two texts match when their token_set_ratio, rounded to an integer, is above this.
FUZZY_THRESHOLD = 85
CATEGORY_SEPARATOR = "›"

#: An option value is reduced to the first of these words, in this order, that it contains.
COLOURS = tuple(
    """
    alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel
    camo caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry
    cream crystal dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green
    grey heather indigo ivory ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot
    midnight mint mocha multicolor mushroom mustard natural navy nude olive orange peach pewter pink plum purple
    rainbow red rose royal rust sand sapphire seashell silver skull slate steel stone stonewash sunflower tan
    taupe teal tiger turquoise violet walnut wheat white wine yellow
    """.split()  # noqa: SIM905
)

# The library that WebShop names drops Latin-1 letters before it compares.
_LATIN_1 = dict.fromkeys(range(128, 256))


@dataclass(frozen=True, slots=True)
class Score:
    """A purchase's reward and what it is made of.

    Attributes:
        type: ``r_type``, one of 0, 0.1, 0.5 and 1.
        attributes, options: shares of the wanted ones that were hit (1 when none were wanted).
        price: whether the limit was kept.
    """

    reward: float
    type: float
    attributes: float
    options: float
    price: bool

    @property
    def success(self) -> bool:
        """Whether the purchase is what papers count as a success."""
        return self.reward == 1.0


def score_purchase(product: Product, chosen: Mapping[str, str], goal: Goal) -> Score:
    """Return the score of buying ``product`` with the ``chosen`` value of each option axis.

    >>> score_purchase(product, {"size": "large"}, goal).reward  # doctest: +SKIP
    0.75
    """
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
    """Return ``r_type``: how much the product is of the goal's kind.

    With t the share of the goal title's nouns that are in the product's title (0.2 when it has none):

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
    """Return the number of different nouns that both titles have, over the number of nouns of the wanted title."""
    wanted_nouns = nouns(wanted)
    if not wanted_nouns:
        return 0.2
    return len(set(wanted_nouns) & set(nouns(purchased))) / len(wanted_nouns)


def attribute_hits(product: Product, wanted: Sequence[str]) -> int:
    """Count the wanted attributes that the product has by a similar name or, letter by letter, in one of its texts."""
    texts = (product.title.lower(), " ".join(product.bullets).lower(), product.description.lower())
    return sum(
        any(similar(attribute, name) for attribute in product.attributes) or any(name in text for text in texts)
        for name in wanted
    )


def option_hits(chosen: Sequence[str], wanted: Sequence[str | tuple[str, str]]) -> int:
    """Count the wanted options that some chosen value is similar to, colours reduced to their first colour word."""
    bought = [reduce_colour(value) for value in chosen]
    return sum(any(similar(value, reduce_colour(option)) for value in bought) for option in wanted)


def reduce_colour(option: str | tuple[str, str]) -> str | tuple[str, str]:
    """Return the first colour word that is in ``option``, else ``option``.

    The (name, value) pair of a synthetic goal contains a colour word only if it equals its name or its value: the
    published code looks for words in a text and in a pair alike.
    """
    return next((colour for colour in COLOURS if colour in option), option)


def similar(one: str | tuple[str, str], other: str | tuple[str, str]) -> bool:
    """Whether token_set_ratio, as rapidfuzz and thefuzz define it, is above the threshold."""
    ratio = fuzz.token_set_ratio(_plain(str(one)), _plain(str(other)), score_cutoff=FUZZY_THRESHOLD - 1)
    return round(ratio) > FUZZY_THRESHOLD


def _plain(text: str) -> str:
    return utils.default_process(text.translate(_LATIN_1))


def _categories(path: str) -> set[str]:
    return {part.strip() for part in path.split(CATEGORY_SEPARATOR)}
