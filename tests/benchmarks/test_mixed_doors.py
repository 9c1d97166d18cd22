"""The world of mixed difficulty: success per floor, and the signal of groups of eight."""

from __future__ import annotations

import itertools
from random import Random
from statistics import fmean

import pytest

from benchmarks.mixed_doors import DOORS, FLOORS, LENGTH, WINGS, Doors, known, right_door


def test_a_task_is_three_places_of_one_floor_and_all_doors_count() -> None:
    env = Doors()
    for seed in range(20):
        env.reset(seed=seed)
        assert len(env.places) == LENGTH and len({place.split("-")[0] for place in env.places}) == 1
        for number, place in enumerate(env.places):
            _, reward, ended, _, info = env.step(f" {right_door(place)} ")
            assert (reward, ended, info["valid"]) == (number == LENGTH - 1, number == LENGTH - 1, True)
        env.reset(seed=seed)
        assert [env.step(door)[1] for door in ("left", *(right_door(place) for place in env.places[1:]))] == [0, 0, 0]


def test_the_player_knows_a_place_as_well_as_it_says() -> None:
    env, random = Doors(), Random(0)
    for place in ("vault-a", "ground-c", "attic-e"):
        played = [env.demonstrate(place, random) for _ in range(2000)]
        assert set(played) <= set(DOORS)
        assert fmean(door == right_door(place) for door in played) == pytest.approx(known(place), abs=0.04)


def test_most_groups_of_eight_agree_at_the_start() -> None:
    """For the demonstrator over all tasks; the starter that imitates it is similar."""
    solved = [
        known(f"{floor}-{a}") * known(f"{floor}-{b}") * known(f"{floor}-{c}")
        for floor in FLOORS
        for a, b, c in itertools.product(WINGS, repeat=LENGTH)
    ]
    assert 0.5 < fmean(p**8 + (1 - p) ** 8 for p in solved) < 0.7
    assert 0.05 < fmean(solved) < 0.3
