"""Options: one declaration per key, and everything that is refused because of it."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from rl_agents.config.options import key, keys_of, off, on, plain_text, read_options
from rl_agents.errors import InputError


@dataclass
class Base:
    """Options that others inherit."""

    mode: Literal["off", "fast", "slow"] = key("off", "what is done")


@dataclass
class Example(Base):
    """Options of all types."""

    count: int = key(3, "how many", ge=1, le=9)
    rate: float = key(0.5, "how fast", gt=0, lt=1, needs=off(mode="off"))
    bound: float = key(0.0, "how far; 0 is off", gt=1, also=0)
    pair: list[float] = key([0.9, 0.95], "two shares", ge=0, lt=1)
    loud: bool = key(False, "whether it says so")
    words: str = key("", "what it says", needs=on("loud", mode=("fast", "slow")))
    limit: int | None = key(None, "a limit, if any", ge=1)
    late: int = key(0, "when", ge=0, needs=on("limit", "loud"))


def test_declarations_are_read_with_types_defaults_and_inheritance() -> None:
    assert list(keys_of(Example))[:3] == ["mode", "count", "rate"]
    assert Example().pair == [0.9, 0.95] and Example().pair is not Example().pair
    made = read_options(Example, {"mode": "slow", "rate": "1e-1", "pair": [0, 0.5], "limit": None, "count": 4.0})
    assert (made.rate, made.pair, made.limit, made.count) == (0.1, [0.0, 0.5], None, 4)
    assert read_options(Example, {"limit": 3}).limit == 3


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"cuont": 1}, "unknown key 'x.cuont': did you mean 'x.count'?"),
        ({"mode": "fats"}, "x.mode='fats': valid: off, fast, slow"),
        ({"count": 2.5}, "x.count=2.5: must be a valid integer"),
        ({"count": 10}, "x.count=10: must be at most 9"),
        ({"count": float("inf")}, "x.count=inf: must be a finite number"),
        ({"bound": 1}, "x.bound=1: must be above 1, or 0"),
        ({"pair": [0.9, 1.5]}, "x.pair=[0.9, 1.5]: must be below 1"),
        ({"rate": 0.1}, "key 'x.rate' has no effect without x.mode other than off"),
        ({"words": "a", "mode": "fast"}, "key 'x.words' has no effect without x.loud"),
        ({"words": "a", "loud": True}, "key 'x.words' has no effect without x.mode=fast or slow"),
        ({"late": 1}, "key 'x.late' has no effect without x.limit or loud"),
    ],
)
def test_what_is_refused_is_named_with_what_would_do(data: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as raised:
        read_options(Example, data, prefix="x.")
    assert message in str(raised.value)


def test_needs_are_met_by_any_of_their_alternatives() -> None:
    assert read_options(Example, {"late": 1, "loud": True}).late == 1
    assert read_options(Example, {"late": 1, "limit": 3}).late == 1
    assert read_options(Example, {"words": "a", "mode": "fast", "loud": True}).words == "a"


def test_values_and_ranges_are_said_as_people_write_them() -> None:
    assert [plain_text(value) for value in (True, 0.0, 2, "t3")] == ["true", "0", "2", "t3"]
    assert [keys_of(Example)[name].range for name in ("count", "bound", "loud")] == [
        "at least 1 and at most 9",
        "above 1, or 0",
        "",
    ]
