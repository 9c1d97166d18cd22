"""Catalogues of our own, so that the environment runs anywhere: invented products in WebShop's record format.

Every product is a pure function of the catalogue's name and its number. Two sizes of language:

- `shop_entry`: the five departments of WebShop, titles, bullet points and option axes in the manner of a web shop; one
  instruction per product, in a few wordings.
- `small_entry`: 300 products whose titles are two properties and a noun, all in single words: what a starter model with
  a vocabulary of some hundred words can read. Two instructions per product.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rl_agents.envs.webshop.records import Entry, Instruction, Product, product_from_record, seeded

SMALL_PRODUCTS = 300
SMALL_KINDS = (
    "lamp", "mug", "chair", "rug", "clock", "shelf", "pillow", "kettle", "basket", "mirror",
    "vase", "stool", "blanket", "bottle", "wallet", "hat", "scarf", "belt", "bag", "fan",
)  # fmt: skip
#: Not nouns for the type reward, so that only a product of the goal's kind earns anything.
SMALL_PROPERTIES = (
    "compact", "durable", "elegant", "foldable", "handmade", "lightweight", "modern", "portable", "rustic", "simple",
    "sturdy", "washable",
)  # fmt: skip
SMALL_COLORS = ("black", "blue", "green", "grey", "orange", "pink", "red", "white")
SMALL_SIZES = ("small", "medium", "large")
SMALL_PRICES = (5, 60)


@dataclass(frozen=True, slots=True)
class Kind:
    """A sort of product.

    Attributes:
        path: its categories below the department.
        prices: cheapest and dearest, in dollars.
    """

    name: str
    department: str
    path: str
    prices: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Department:
    """What the products of a department have in common.

    Attributes:
        label: WebShop's short name of it.
        category: first part of its products' category paths.
    """

    label: str
    category: str
    properties: tuple[str, ...]
    materials: tuple[str, ...]
    sizes: tuple[str, ...]


def _words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


DEPARTMENTS = {
    "clothing": Department(
        "fashion",
        "Clothing, Shoes & Jewelry",
        _words(
            "machine wash, long sleeve, moisture wicking, slim fit, relaxed fit, elastic waist, hand wash, "
            "button closure, quick drying, classic fit, high waist, day comfort, drawstring closure, tumble dry"
        ),
        _words("cotton, linen, wool, velvet, denim, polyester, fleece, silk"),
        _words("x-small, small, medium, large, x-large, xx-large"),
    ),
    "shoes": Department(
        "fashion",
        "Clothing, Shoes & Jewelry",
        _words(
            "arch support, rubber sole, non slip, memory foam, slip resistant, open toe, ankle strap, lace closure, "
            "water resistant, day comfort, steel toe, leather sole, faux fur, wide fit"
        ),
        _words("leather, suede, canvas, mesh, nubuck, knit, rubber, felt"),
        _words("6, 7, 8, 9, 10, 11 wide"),
    ),
    "garden": Department(
        "garden",
        "Home & Kitchen",
        _words(
            "easy assemble, space saving, easy clean, heavy duty, eco friendly, solid wood, stainless steel, "
            "storage space, living room, dining room, long lasting, fade resistant, wall mounted, non toxic"
        ),
        _words("oak, walnut wood, bamboo, steel, glass, ceramic, rattan, velvet"),
        _words("single, set of 2, set of 4, 12 inch, 18 inch, 24 inch"),
    ),
    "beauty": Department(
        "beauty",
        "Beauty & Personal Care",
        _words(
            "cruelty free, sulfate free, paraben free, fragrance free, sensitive skin, dry skin, tea tree, argan oil, "
            "hyaluronic acid, natural ingredients, fine lines, long lasting, dermatologist tested, alcohol free"
        ),
        _words("coconut, aloe, rosemary, lavender, charcoal, honey, oat, shea"),
        _words("1 ounce, 2 ounce, 4 ounce, 8 ounce, travel size, pack of 3"),
    ),
    "electronics": Department(
        "electronics",
        "Electronics",
        _words(
            "fast charging, noise cancelling, high definition, plug play, hands free, wireless bluetooth, "
            "stereo sound, gold plated, water resistant, carrying case, usb port, high speed, long lasting, "
            "easy install"
        ),
        _words("aluminum, carbon fiber, silicone, nylon, titanium, acrylic, rubber, alloy"),
        _words("3 feet, 6 feet, 10 feet, 32 gb, 64 gb, 128 gb"),
    ),
    "grocery": Department(
        "grocery",
        "Grocery & Gourmet Food",
        _words(
            "gluten free, sugar free, dairy free, non gmo, low sodium, low carb, plant based, artificial colors, "
            "high protein, soy free, resealable bag, fat free, nut free, old fashioned"
        ),
        _words("almond, cocoa, vanilla, ginger, cinnamon, berry, sea salt, maple"),
        _words("4 ounce, 8 ounce, 1 pound, 2 pound, pack of 6, pack of 12"),
    ),
}

KINDS = tuple(
    Kind(name.strip(), department, path, prices)
    for department, path, prices, names in (
        ("clothing", "Women › Clothing", (12, 80), "summer dress, yoga pants, cardigan, maxi skirt, blouse, tank top"),
        ("clothing", "Men › Clothing", (12, 90), "polo shirt, jeans, hoodie, sweatpants, dress shirt, cargo shorts"),
        ("shoes", "Women › Shoes", (20, 120), "ankle boots, sandals, running shoes, slippers"),
        ("shoes", "Men › Shoes", (25, 140), "sneakers, loafers, hiking boots, work shoes"),
        ("garden", "Furniture › Living Room", (40, 700), "coffee table, ottoman bench, bookcase, sofa, tv stand"),
        ("garden", "Lighting › Lamps", (15, 180), "table lamp, floor lamp, pendant light, wall sconce"),
        (
            "garden",
            "Bedding › Bedding Sets",
            (18, 150),
            "duvet cover, quilt set, bedspread, pillow shams, throw blanket",
        ),
        ("garden", "Kitchen & Dining › Storage", (8, 60), "spice rack, bread box, storage jars, dish drainer"),
        ("beauty", "Hair Care › Styling", (6, 45), "styling cream, hair mask, shampoo, hair spray, hair extensions"),
        ("beauty", "Skin Care › Face", (7, 60), "face serum, night cream, face wash, eye cream, facial mask"),
        ("beauty", "Makeup › Lips", (5, 30), "lip balm, lipstick, lip gloss, lip liner"),
        ("electronics", "Headphones", (15, 250), "earbuds, headphones, headset, sport earphones"),
        ("electronics", "Accessories › Cables", (6, 40), "charging cable, hdmi cable, power cord, audio adapter"),
        ("electronics", "Camera & Photo", (12, 400), "camera tripod, digital camera, camera bag, ring light"),
        ("grocery", "Snack Foods", (5, 45), "protein bars, trail mix, popcorn, jerky, rice crackers"),
        ("grocery", "Beverages", (6, 50), "green tea, coffee beans, hot chocolate mix, herbal tea"),
    )
    for name in names.split(",")
)

COLORS = _words(
    "black, white, navy blue, light blue, forest green, sage green, burgundy, red, charcoal grey, beige, ivory, "
    "mustard yellow, coral pink, lavender, chocolate brown, teal"
)
_SYLLABLES = (
    "al",
    "bar",
    "cor",
    "den",
    "el",
    "fir",
    "gra",
    "hol",
    "in",
    "jun",
    "kel",
    "lu",
    "mar",
    "nor",
    "ost",
    "pel",
)
_ENDINGS = ("a", "ex", "io", "on", "en", "ia", "o", "is")
BRANDS = tuple(
    (first + second + ending).capitalize()
    for (first, second), ending in zip(itertools.permutations(_SYLLABLES, 2), itertools.cycle(_ENDINGS), strict=False)
)
_STYLES = ("", "Modern", "Classic", "Premium", "Everyday", "Vintage", "Compact", "Deluxe")
_WORDINGS = (
    "i need {a} {kind} that is {properties}{options}",
    "i am looking for {a} {kind} with {properties}{options}",
    "find me {a} {properties} {kind}{options}",
    "i want to buy {a} {kind}, and it should be {properties}{options}",
    "show me some {properties} {kind}{options}",
)


def shop_entries(count: int) -> Iterator[tuple[Entry, float | None]]:
    """Yield products 0 to ``count`` - 1 of the large language, with the share that is done."""
    for number in range(count):
        yield shop_entry(number), number / count


def small_entries() -> Iterator[tuple[Entry, float | None]]:
    """Yield the 300 products of the small language."""
    for number in range(SMALL_PRODUCTS):
        yield small_entry(number), number / SMALL_PRODUCTS


def shop_entry(number: int) -> Entry:
    """Return product ``number`` with one instruction."""
    rng = seeded(f"webshop/generated/{number}")
    kind = rng.choice(KINDS)
    department = DEPARTMENTS[kind.department]
    properties = rng.sample(department.properties, 5)
    material, brand = rng.choice(department.materials), rng.choice(BRANDS)
    options: dict[str, Sequence[str]] = {}
    if rng.random() < 0.8:
        options["color"] = rng.sample(COLORS, rng.randint(2, 7))
    if rng.random() < 0.7:
        options["size"] = _in_order(department.sizes, rng, 2)
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


def small_entry(number: int) -> Entry:
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


def _entry(record: Mapping[str, object], properties: Sequence[str], instructions: Sequence[Instruction]) -> Entry:
    product = product_from_record(record, properties)
    assert isinstance(product, Product)
    return Entry(product, tuple(instructions))


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


def _in_order(values: Sequence[str], rng: random.Random, least: int) -> list[str]:
    count = rng.randint(least, len(values))
    first = rng.randint(0, len(values) - count)
    return list(values[first : first + count])


def _asin(letter: str, number: int) -> str:
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    text = ""
    for _ in range(9):
        number, digit = divmod(number, 36)
        text = digits[digit] + text
    return letter + text
