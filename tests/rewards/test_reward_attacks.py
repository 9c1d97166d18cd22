"""Holes in rewards that were closed stay closed; figures of all attacks: ``python -m benchmarks.reward_attacks``."""

import pytest

from benchmarks import reward_attacks
from rl_agents.rewards.grounding import conciseness

TASKS = 60


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("pass", 0.1),  # pasting twelve sentences paid 0.63
        ("match", 0.1),  # one text paid 1.0
        ("points", 0.5),  # 0.89
        ("pass, starter's tasks", 0.15),
    ],
)
def test_long_answers_are_not_won_by_constants_or_copies(name: str, most: float) -> None:
    setting = next(s for s in reward_attacks.SETTINGS if (s.env, s.name) == ("long_form_qa", name))
    assert reward_attacks.attack(setting, TASKS)["reward"] <= most


def test_a_shotgun_of_calls_earns_less_than_a_frequent_call_by_default() -> None:
    row = reward_attacks.attack_verifier({"verifier": "tool_name"}, TASKS)
    assert row["player"] == "most frequent call"
    free = reward_attacks.attack_verifier({"verifier": "tool_name", "parallel": "free"}, TASKS)
    assert free["player"] == "every tool, no arguments" and free["reward"] > 0.5  # the public code's rule, to be had


def test_conciseness_by_hand() -> None:
    points = ("Torhaven lies on the Ister.", "Ada Tarn founded Velmora.")  # 3 + 4 words that are no function words
    assert conciseness("Torhaven lies on the Ister. Ada Tarn founded Velmora.", points) == 1.0
    assert conciseness("one two three four five six seven eight", points) == 1.0  # "one" is a function word
    assert conciseness(" ".join(["town"] * 14), points) == pytest.approx(1.25 * 7 / 14)
    assert conciseness("", points) == conciseness("it is", points) == conciseness("town", ()) == 0.0
