"""StepPO's figure 7: episodes grouped by the golden steps of their tasks."""

from benchmarks.golden_steps import Difficulty, Played, difficulty


def test_success_and_delta_steps_by_golden_steps() -> None:
    played = [
        Played("a", 5, True),
        Played("a", 7, False),
        Played("b", 20, False),
        Played("c", 4, True),
        Played("unknown", 1, True),
    ]
    # a and c take 4 golden steps: steps 5, 7 and 4, so 16/3 - 4; two of three solve them.
    assert difficulty(played, {"a": 4, "b": 10, "c": 4}) == [
        Difficulty(4, 3, 2 / 3, 16 / 3 - 4),
        Difficulty(10, 1, 0.0, 10.0),
    ]
