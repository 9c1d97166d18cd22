"""Names of our own for worlds that do not exist: people, towns, books, rivers. Nothing here can be known beforehand."""

from __future__ import annotations

import itertools
from functools import cache

from rl_agents.envs.panels import shuffled_ids

_ONSETS = ("b", "br", "d", "dr", "f", "g", "h", "k", "l", "m", "n", "p", "r", "s", "st", "t", "tr", "v", "z")
_VOWELS = ("a", "e", "i", "o", "u")
_MIDDLES = ("l", "ld", "m", "n", "nd", "r", "rk", "rm", "sk", "v", "z")
_ENDINGS = {
    "person": ("an", "or", "im", "uk", "eth"),
    "surname": ("ovar", "emond", "aski", "urn", "iven"),
    "town": ("ora", "um", "avik", "osk", "amar"),
    "river": ("u", "ila", "az", "o"),
}
_ADJECTIVES = (
    "Copper", "Silent", "Crooked", "Frozen", "Hollow", "Painted", "Salted", "Borrowed", "Second", "Burning",
)  # fmt: skip
_NOUNS = ("Lantern", "Orchard", "Staircase", "Compass", "Winter", "Letter", "Harbour", "Needle", "Mirror", "Bell")
CRAFTS = (
    "glassblower", "beekeeper", "mapmaker", "clockmaker", "weaver", "saddler", "potter", "cooper", "dyer", "mason",
    "tinsmith", "ropemaker",
)  # fmt: skip
EMBLEMS = (
    "heron", "badger", "otter", "lynx", "raven", "hedgehog", "stag", "owl", "salmon", "beetle", "crane", "marten",
)  # fmt: skip


@cache
def invented(kind: str) -> tuple[str, ...]:
    """Return all names of a kind (``person``, ``surname``, ``town``, ``river``) in a random, fixed order."""
    parts = itertools.product(_ONSETS, _VOWELS, _MIDDLES, _ENDINGS[kind])
    return tuple(shuffled_ids(("".join(part) for part in parts), f"names/{kind}"))


@cache
def people() -> tuple[str, ...]:
    """Return full names; first names occur several times, surnames once."""
    first = invented("person")[:24]
    return tuple(f"{first[n % 24].title()} {surname.title()}" for n, surname in enumerate(invented("surname")[:240]))


@cache
def towns() -> tuple[str, ...]:
    """Return names of towns."""
    return tuple(name.title() for name in invented("town")[:80])


@cache
def rivers() -> tuple[str, ...]:
    """Return names of rivers."""
    return tuple(name.title() for name in invented("river")[:60])


@cache
def books() -> tuple[str, ...]:
    """Return titles; every word of a title occurs in others."""
    return tuple(f"The {adjective} {noun}" for adjective in _ADJECTIVES for noun in _NOUNS)
