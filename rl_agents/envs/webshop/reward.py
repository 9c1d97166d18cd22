"""WebShop's reward of a purchase.

    reward = r_type * (attribute hits + option hits + [price <= limit]) / (attributes + options + 1)

Source: WebShop (arXiv 2207.01206), section 3 (equations 1 and 2) with the thresholds of its published code: where paper
and code differ, experiments have used the code.

The type reward compares the nouns of titles, which WebShop takes from spaCy's ``en_core_web_sm`` (NOUN or PROPN,
``goal.py`` of its public code; the README has ``en_core_web_lg`` downloaded, which an earlier version loaded). No such
model is a Python package that could be depended on. Titles are chains of nouns with few other words, so a list of those
others (`OTHER_WORDS`) comes close; docs/environments/webshop.md has what could be compared. The scores of the product
that a goal was written for do not depend on it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rapidfuzz import fuzz, utils

from rl_agents.envs.webshop.records import Goal, Product

_TOKEN = re.compile(r"(?:[A-Za-z]\.){2,}|[^\W_]+(?:['’][^\W_]+)*")
_POSSESSIVE = re.compile(r"['’]s?$")

#: Words of English titles that are not nouns: function words, adjectives, adverbs and verbs.
OTHER_WORDS = frozenset(
    """
    a about above across after against all almost along also am among an and another any anti are around as at
    away be because been before behind being below between both but by can could did do does doing down during
    each easily either enough even ever every extra few for from further get gets go had has have having he her
    here hers him his how i if in inside into is it its itself just less let lets like make makes many may me
    mini more most much must my near no non nor not now of off often on once one only onto or other our out
    outside over own per perfect perfectly plus pre quite really same semi she should since so some such super
    than that the their them then there these they this those three through throughout to together too two ultra
    under until up upon us use used using very via was we were what when where which while who whole why will
    with within without would yet you your able absolute active additional adhesive adjustable adult advanced
    affordable alcoholic american ancient antique artificial athletic authentic automatic available bad bare
    basic beautiful best better big bluetooth breathable brief bright brilliant broad busy casual cheap classic
    clean clear clinical close cold comfortable comfy compact compatible complete contemporary convenient cool
    cordless correct cozy creamy creative cruelty custom cute daily dark decorative deep delicate delicious
    dense different digital dirty disposable double dual durable dry easy eco effective elastic electric
    electrical electronic elegant empty essential everyday exact excellent exclusive external fair fake familiar
    famous fancy fashionable fast favorite female few fine firm first fit fitted flat flexible floral foldable
    folding formal fragrant free fresh friendly full functional funny general gentle genuine giant global good
    graphic great handmade happy hard healthy heavy hidden high holiday horizontal hot huge human hypoallergenic
    ideal improved indoor inflatable initial instant insulated intense internal invisible keto kosher large last
    late latest left light lightweight little live local long loose loud low lower lucky luxurious luxury
    magnetic main major male manual matching mature maximum medical medium mental metallic middle mild military
    minimal minimalist mixed mobile modern moist moisturizing multiple multi musical mutual natural neat
    necessary new next nice noble normal nude occasional official old open optical optional oral ordinary
    organic original outdoor oval oversized pale panoramic personal petite physical plain plaid playful pleasant
    polished popular portable possible powerful practical precise premium pretty previous primary private
    professional proper protective pure quick quiet raw ready real rear rectangular recyclable red reflective
    regular related relaxed reliable removable replaceable retractable retro reusable reversible rich right
    rigid robust romantic rotating rough round royal rugged rustic safe satisfied scented seamless seasonal
    second secure sensitive separate sexy sharp sheer shiny short silent silky similar simple single skinny
    sleek sleeveless slim slip slow small smart smooth soft solid special specific spicy square stable stackable
    stainless standard steady sterile sticky straight strapless strong sturdy stylish subtle suitable superior
    supportive sweet swift synthetic tall temporary thermal thick thin third tight tiny top total tough
    traditional transparent tropical true typical unique universal unisex unscented unsweetened unusual upper
    useful usual various vegan vegetarian velvety versatile vertical vintage virtual visible visual vivid warm
    washable waterproof weak wearable wet white wide wild wireless wonderful wooden worn woven young add adjust
    allow apply assemble bring built buy carry charge check choose cleanse come create cut designed drink eat
    enjoy ensure fits fold give grow hang help helps hold hydrate include included includes including increase
    install keep keeps know last lasting look love made nourish offer open please prevent protect protects
    provide provides pull put reduce relieve remove repair replace restore run save set sit sleep stay stop suit
    take tie try turn wash wear work works beige black blue brown green grey gray pink purple yellow orange
    """.split()  # noqa: SIM905
)


def nouns(title: str) -> list[str]:
    """Return the words of ``title`` that count as nouns, in lower case and order, repetitions included.

    Words in capitals are names whatever the list says (``UL``, ``HD``); numbers never count.

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
COLORS = tuple(
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
    """Count the wanted options that some chosen value is similar to, colors reduced to their first color word."""
    bought = [reduce_color(value) for value in chosen]
    return sum(any(similar(value, reduce_color(option)) for value in bought) for option in wanted)


def reduce_color(option: str | tuple[str, str]) -> str | tuple[str, str]:
    """Return the first color word that is in ``option``, else ``option``.

    The (name, value) pair of a synthetic goal contains a color word only if it equals its name or its value: the
    published code looks for words in a text and in a pair alike.
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
