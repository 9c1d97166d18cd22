"""Products and goals, and their readers for WebShop's official records.

Official files: ``items_shuffle*.json`` (a list of scraped products), ``items_ins_v2*.json`` (attributes, and for some
products a synthetic instruction, by asin) and ``items_human_ins.json`` (instructions that people wrote, by asin).

Source: WebShop (arXiv 2207.01206), sections 3 and 4.1, and the cleaning that its engine applies to the records.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from rl_agents.errors import InputError

#: Attribute of products that are not in the attribute file.
NO_ATTRIBUTE = "DUMMY_ATTR"
DEFAULT_PRICE = 100.0
#: ``price_upper`` of goals whose price leaves no room for a limit.
NO_LIMIT = 1_000_000.0
PRICE_STEPS = tuple(10.0 * step for step in range(1, 100))
MAX_ASIN = 10
_PRICE_TEXT = re.compile(r"[^\d.]")

Options = Mapping[str, tuple[str, ...]]
"""Option axes of a product and their values, all in lower case."""


@dataclass(frozen=True, slots=True)
class Product:
    """One product of the shop.

    Attributes:
        query: the shop query under which it was scraped; part of the type reward.
        product_category: path of categories, separated by ``›``.
        price: of a purchase: the single listed price; for a range a fixed draw between its ends.
        price_tag: the price on pages.
        attributes: hidden properties for the reward; pages do not show them.
    """

    asin: str
    title: str
    description: str
    bullets: tuple[str, ...]
    category: str
    query: str
    product_category: str
    price: float
    price_tag: str
    options: Options
    attributes: tuple[str, ...]

    def document(self) -> str:
        """Return the searchable text: title, description, first bullet point and options."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        return " ".join([self.title, self.description, *self.bullets[:1], options]).lower()


@dataclass(frozen=True, slots=True)
class Goal:
    """The wanted purchase.

    Attributes:
        name: title of the product for which the instruction was written.
        instruction: the request, without its price limit.
        options: wanted option values: (name, value) pairs of a synthetic goal, values alone of a human goal.
        price_upper: the highest price that is accepted.
    """

    asin: str
    name: str
    query: str
    product_category: str
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[str | tuple[str, str], ...]
    price_upper: float


@dataclass(frozen=True, slots=True)
class Instruction:
    """A request for one product; without ``options`` (synthetic), every combination of the product's is a goal."""

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """A product with its instructions, ready for the index."""

    product: Product
    instructions: tuple[Instruction, ...] = ()


#: Read and write the JSON of products and instructions in the store.
PRODUCT, INSTRUCTIONS = TypeAdapter(Product), TypeAdapter(tuple[Instruction, ...])


def product_from_record(record: Mapping[str, Any], attributes: Sequence[str]) -> Product | None:
    """Clean an official product record; None if WebShop excludes it: its asin is ``nan`` or too long."""
    asin = _text(record["asin"])
    if asin == "nan" or not 0 < len(asin) <= MAX_ASIN:
        return None
    bullets = record["small_description"]
    prices = listed_prices(record.get("pricing"))
    return Product(
        asin=asin,
        title=_text(record["name"]),
        description=_text(record["full_description"]),
        bullets=tuple(_text(b) for b in bullets) if isinstance(bullets, list) else (_text(bullets),),
        category=_text(record["category"]),
        query=_text(record["query"]).lower().strip(),
        product_category=_text(record["product_category"]),
        price=purchase_price(asin, prices),
        price_tag=" to ".join(f"${price}" for price in prices),
        options=_options(record.get("customization_options") or {}),
        attributes=tuple(attributes),
    )


def listed_prices(pricing: str | None) -> tuple[float, ...]:
    """Read one price or the two ends of a range; 100 if none is listed.

    >>> listed_prices("$19.99$27.99")
    (19.99, 27.99)
    """
    parts = [_PRICE_TEXT.sub("", part) for part in (pricing or "").split("$")[1:]]
    return tuple(float(part) for part in parts if part)[:2] or (DEFAULT_PRICE,)


def purchase_price(asin: str, prices: Sequence[float]) -> float:
    """Return the price of a purchase: uniform between the ends of a range, as in WebShop, but fixed by the asin.

    WebShop draws it without a seed at every start of its server.
    """
    return prices[0] if len(prices) == 1 else seeded(f"price/{asin}").uniform(*prices)


def price_limit(price: float, seed: str) -> float:
    """Return ``price_upper``: of the next four multiples of 10 above the price, the larger of two drawn.

    ``NO_LIMIT`` if fewer than two are left below 1000. WebShop draws without a seed; here ``seed`` fixes the draw.
    """
    steps = [step for step in PRICE_STEPS if step > price][:4]
    return max(seeded(f"limit/{seed}").sample(steps, 2)) if len(steps) >= 2 else NO_LIMIT


def goal_count(entry: Listing, synthetic: bool) -> int:
    chosen = _goal_instructions(entry, synthetic)
    return len(chosen) * math.prod(map(len, entry.product.options.values())) if synthetic else len(chosen)


def goal_at(entry: Listing, synthetic: bool, number: int) -> Goal:
    """Return one goal of a product, in the official order.

    Args:
        synthetic: goals of the synthetic instruction, one per combination of option values, with sorted option names,
            the last one changing fastest; else one goal per human instruction. Instructions without attributes make no
            goal.
        number: 0 to `goal_count` - 1.
    """
    product, chosen = entry.product, _goal_instructions(entry, synthetic)
    if not synthetic:
        wanted, seed = chosen[number], f"{product.asin}/{number}"
        return _goal(product, wanted.text.strip("."), wanted.attributes, wanted.options or (), seed)
    pairs: list[tuple[str, str]] = []
    for name in sorted(product.options, reverse=True):
        number, place = divmod(number, len(product.options[name]))
        pairs.insert(0, (name, product.options[name][place]))
    listed = ", and ".join(f"{name}: {value}" for name, value in pairs)
    text = f"{chosen[0].text} with {listed}" if pairs else chosen[0].text
    return _goal(product, text, chosen[0].attributes, tuple(pairs), f"{product.asin}/synthetic")


def _goal(p: Product, text: str, attributes: tuple[str, ...], options: tuple[Any, ...], seed: str) -> Goal:
    limit = price_limit(p.price, seed)
    return Goal(p.asin, p.title, p.query, p.product_category, text, attributes, options, limit)


def _goal_instructions(entry: Listing, synthetic: bool) -> list[Instruction]:
    return [i for i in entry.instructions if (i.options is None) == synthetic and i.attributes]


def attributes_from_record(record: Mapping[str, Any]) -> tuple[tuple[str, ...], Instruction | None]:
    names = tuple(_text(name) for name in record["attributes"]) if "attributes" in record else (NO_ATTRIBUTE,)
    text = record.get("instruction")
    if text is None:
        return names, None
    return names, Instruction(_text(text), _texts(record.get("instruction_attributes") or ()))


def human_instructions(records: Iterable[Mapping[str, Any]]) -> tuple[Instruction, ...]:
    return tuple(
        Instruction(_text(r["instruction"]), _texts(r["instruction_attributes"]), _texts(r["instruction_options"]))
        for r in records
    )


def seeded(name: str) -> random.Random:
    return random.Random(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big"))


def _options(axes: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {
        name.lower(): tuple(_text(choice["value"]).strip().replace("/", " | ").lower() for choice in choices)
        for name, choices in axes.items()
        if choices is not None
    }


def _text(value: Any) -> str:
    """Return ``value`` if it is text that can be encoded; lone surrogates become question marks."""
    if not isinstance(value, str):
        raise InputError(f"{type(value).__name__} where text is expected")
    return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")


def _texts(values: Iterable[Any]) -> tuple[str, ...]:
    return tuple(_text(value) for value in values)
