"""Generated catalogs: invented products in WebShop's record format, each a pure function of catalog and number.

`shop_entry` has the five departments of WebShop, titles, bullet points and option axes in the style of a web shop.
`small_entry` has titles of two properties and a noun, all in single words, for a warm-start model.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter

from rl_agents.envs.task_sets import stored_words
from rl_agents.envs.webshop.records import Instruction, Listing, Product, product_from_record, seeded

SMALL_PRODUCTS = 300
_STORED = stored_words(__file__, "language.json")
#: The properties are not nouns for the type reward, so that only a product of the goal's kind earns a reward.
SMALL_KINDS, SMALL_PROPERTIES, SMALL_COLORS, SMALL_SIZES = (
    tuple(_STORED["small"][name]) for name in ("kinds", "properties", "colors", "sizes")
)
SMALL_PRICES = (5, 60)


@dataclass(frozen=True, slots=True)
class Kind:
    """A sort of product: its categories below the department, and its lowest and highest price in dollars."""

    name: str
    department: str
    path: str
    prices: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Department:
    """The common properties of a department's products; ``category`` is the first part of their category paths."""

    label: str
    category: str
    properties: tuple[str, ...]
    materials: tuple[str, ...]
    sizes: tuple[str, ...]


DEPARTMENTS = TypeAdapter(dict[str, Department]).validate_python(_STORED["departments"])
KINDS = tuple(
    Kind(name, entry["department"], entry["path"], tuple(entry["prices"]))
    for entry in _STORED["kinds"]
    for name in entry["names"]
)
COLORS = tuple(_STORED["colors"])
BRANDS = tuple(
    (first + second + ending).capitalize()
    for (first, second), ending in zip(
        itertools.permutations(_STORED["syllables"], 2), itertools.cycle(_STORED["endings"]), strict=False
    )
)
_STYLES, _WORDINGS = tuple(_STORED["styles"]), tuple(_STORED["wordings"])


def shop_entries(count: int) -> Iterator[tuple[Listing, float | None]]:
    for number in range(count):
        yield shop_entry(number), number / count


def small_entries() -> Iterator[tuple[Listing, float | None]]:
    for number in range(SMALL_PRODUCTS):
        yield small_entry(number), number / SMALL_PRODUCTS


def shop_entry(number: int) -> Listing:
    rng = seeded(f"webshop/generated/{number}")
    kind = rng.choice(KINDS)
    department = DEPARTMENTS[kind.department]
    properties = rng.sample(department.properties, 5)
    material, brand = rng.choice(department.materials), rng.choice(BRANDS)
    options: dict[str, Sequence[str]] = {}
    if rng.random() < 0.8:
        options["color"] = rng.sample(COLORS, rng.randint(2, 7))
    if rng.random() < 0.7:
        options["size"] = _in_order(department.sizes, rng)
    title = f"{brand} {rng.choice(_STYLES)} {material} {kind.name} {properties[0]}, {properties[1]}".title()
    record = {
        "asin": _asin("B", number),
        "name": " ".join(title.split()),
        "full_description": (
            f"The {brand} {kind.name} is made with {material}. It is {properties[2]} and comes from a small workshop. "
            f"Customers who looked for {rng.choice(department.properties)} products also looked at this one."
        ),
        "small_description": [
            f"{properties[0]} and {properties[1]}: a {kind.name} for every day",
            f"Made with {material}, {properties[3]}",
            f"What you get: 1 {kind.name}, and our friendly service",
        ],
        "pricing": _pricing(kind.prices, rng),
        "category": department.label,
        "query": kind.name,
        "product_category": f"{department.category} › {kind.path} › {kind.name.title()}",
        "customization_options": {name: [{"value": value} for value in values] for name, values in options.items()},
    }
    return _entry(record, properties, [_shop_instruction(kind, properties, options, rng)])


def small_entry(number: int) -> Listing:
    """Return product ``number`` of the small language with two instructions; no two of a kind share both properties."""
    kind, place = SMALL_KINDS[number % len(SMALL_KINDS)], number // len(SMALL_KINDS)
    pairs = list(itertools.combinations(SMALL_PROPERTIES, 2))
    seeded(f"webshop/small/{kind}").shuffle(pairs)
    rng = seeded(f"webshop/small/{number}")
    properties = list(pairs[place])
    rng.shuffle(properties)
    options: dict[str, Sequence[str]] = {"color": rng.sample(SMALL_COLORS, 3)}
    if rng.random() < 0.5:
        options["size"] = SMALL_SIZES
    record = {
        "asin": _asin("S", number),
        "name": f"{properties[0]} {properties[1]} {kind}",
        "full_description": f"{kind} that is {properties[0]} and {properties[1]}",
        "small_description": [properties[0], properties[1]],
        "pricing": f"${rng.randint(*SMALL_PRICES)}",
        "category": "small",
        "query": kind,
        "product_category": f"small › {kind}",
        "customization_options": {name: [{"value": value} for value in values] for name, values in options.items()},
    }
    instructions = []
    for _ in range(2):
        wanted = [rng.choice(list(values)) for values in options.values()]
        text = " , ".join([f"{properties[0]} {properties[1]} {kind}", *wanted])
        instructions.append(Instruction(text, tuple(properties), tuple(wanted)))
    return _entry(record, properties, instructions)


def _entry(record: Mapping[str, object], properties: Sequence[str], instructions: Sequence[Instruction]) -> Listing:
    product = product_from_record(record, properties)
    assert isinstance(product, Product)
    return Listing(product, tuple(instructions))


def _shop_instruction(
    kind: Kind, properties: Sequence[str], options: dict[str, Sequence[str]], rng: random.Random
) -> Instruction:
    wanted = {name: rng.choice(list(values)) for name, values in options.items()}
    chosen = rng.sample(list(properties), rng.randint(1, 3))
    details = {"color": "in {}", "size": "in size {}"}
    text = rng.choice(_WORDINGS).format(
        a="an" if kind.name[0] in "aeiou" else "a",
        kind=kind.name,
        properties=" and ".join(chosen),
        options="".join(f", {details[name].format(value)}" for name, value in wanted.items()),
    )
    return Instruction(text, tuple(chosen), tuple(wanted.values()))


def _pricing(prices: tuple[int, int], rng: random.Random) -> str:
    low = rng.randint(*prices) - 0.01
    return f"${low:.2f}${low * 1.3:.2f}" if rng.random() < 0.2 else f"${low:.2f}"


def _in_order(values: Sequence[str], rng: random.Random) -> list[str]:
    count = rng.randint(2, len(values))
    first = rng.randint(0, len(values) - count)
    return list(values[first : first + count])


def _asin(letter: str, number: int) -> str:
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    text = ""
    for _ in range(9):
        number, digit = divmod(number, 36)
        text = digits[digit] + text
    return letter + text
