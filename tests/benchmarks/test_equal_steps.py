"""docs/research/equal-steps.md is what the results on file say, and its tasks are what they claim to be."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from benchmarks import equal_steps_page as page
from benchmarks import toy_text, unseen_tasks
from benchmarks.doc_tables import named
from benchmarks.equal_steps import METHODS, WORLDS

UNSEEN = (unseen_tasks.Deduction, unseen_tasks.Rooms, unseen_tasks.Traps, unseen_tasks.Errand, unseen_tasks.Science)


def test_the_page_is_that_of_the_results() -> None:
    written = page.PAGE.read_text(encoding="utf-8")
    assert written == page.page(page.on_file()), "python -m benchmarks.equal_steps_page"


@pytest.mark.parametrize("path", page.WITH_OVERVIEW, ids=lambda path: path.name)
def test_the_short_table_is_that_of_the_results(path: Path) -> None:
    written = path.read_text(encoding="utf-8")
    assert page.OVERVIEW in named(written) and written == page.with_overview(written, page.on_file())


def test_every_arm_on_file_is_a_method_and_every_picture_is_there() -> None:
    for name, arms in page.on_file().items():
        assert set(arms) <= set(METHODS), name
        assert (page.RESULTS / f"equal_steps_{name}.png").is_file()


def test_the_arms_of_a_seed_began_alike() -> None:
    """A start that is imitated anew on another machine differs in the last digits: some test episodes end otherwise."""
    assert 0 < page.start_spread({"x": {"a": start(0.2), "b": start(0.23)}, "y": {"a": start(0.9)}}) < 0.031
    assert page.start_spread(page.on_file()) <= 0.05


def start(rate: float) -> page.Runs:
    return {"0": {"success": {"0": rate}}}


def test_the_summary_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """After 1,000 of 2,000 steps ours is half way from 0.1 to 0.5, PPO to 0.4: 0.3 and 0.25; RLOO has too few seeds."""

    def runs(end: float, seeds: int) -> dict[str, page.Run]:
        return {str(seed): {"success": {"0": 0.1, "1": end}, "steps": [2000]} for seed in range(seeds)}

    arms = {page.OURS: runs(0.5, 3), "grpo": runs(0.3, 3), "ppo": runs(0.4, 3), "rloo": runs(0.9, 2)}
    monkeypatch.setitem(page.WORLDS, "x", page.World("x", (), (), 1.0, 1000))
    arms = {page.OURS: runs(0.5, 3), "grpo": runs(0.3, 3), "ppo": runs(0.4, 3), "rloo": runs(0.9, 2)}
    line = (
        "| [x](#x) | 3 | 0.10 | 0.30 [0.30, 0.30] | **+0.20 [+0.20, +0.20]** | ppo 0.25 | **+0.05 [+0.05, +0.05]** "
        "| **+0.10 [+0.10, +0.10]** |"
    )
    assert page.verdict("x", page.OURS, {**arms, page.BEFORE: runs(1.0, 3)}) == line
    before = {**arms, page.BEFORE: runs(0.4, 2)}
    assert page.verdict("x", page.OURS, before, (page.BEFORE,)) == f"{line} **+0.05 [+0.05, +0.05]** |"


def solved(task: type[unseen_tasks.Task], player: str, seed: int) -> bool:
    env, random = task(), Random(seed)
    observation, _ = env.reset(seed=seed, options={"task_id": str(seed % 64)})
    for _ in range(task.max_turns):
        observation, _, ended, _, info = env.step(getattr(env, player)(observation, random))
        assert info.get("valid", True)
        if ended:
            break
    return bool(info["success"])


@pytest.mark.parametrize("task", UNSEEN)
def test_experts_solve_what_mediocre_players_solve_less_often(task: type[unseen_tasks.Task]) -> None:
    expert, mediocre = (sum(solved(task, who, seed) for seed in range(100)) for who in ("expert", "demonstrate"))
    assert expert >= 90 and 20 <= mediocre < expert


def test_the_tasks_of_others_are_worlds() -> None:
    assert {f"gymnasium:{cls.__module__}:{cls.__name__}" for cls in (*UNSEEN, toy_text.Taxi, toy_text.Lake)} <= {
        world.env for world in WORLDS.values()
    }


def test_complete_state_keys_of_taxi_name_the_destination_at_every_step() -> None:
    env = toy_text.Taxi(goal_in_key=True)
    first, info = env.reset(seed=3)
    assert first == info["anchor"] == "to yellow : row 0 column 2 passenger red"
    for action in ("south", "no action"):
        assert env.step(action)[4]["anchor"] == "to yellow : row 1 column 2 passenger red"
    assert "anchor" not in toy_text.Taxi().reset(seed=3)[1]


@pytest.mark.parametrize("task", UNSEEN)
def test_what_means_nothing_costs_a_turn_and_changes_nothing(task: type[unseen_tasks.Task]) -> None:
    env = task()
    first, _ = env.reset(seed=1, options={"task_id": "1"})
    shown, reward, ended, _, info = env.step("sing a song")
    assert (reward, ended, info) == (0.0, False, {"valid": False, "success": False})
    assert shown == f"not possible . {env.shown()}" and (first.startswith(env.shown()) or first.endswith(env.shown()))


def test_deduction_keeps_its_test_codes_apart_and_alike() -> None:
    codes = {split: [unseen_tasks.Deduction.codes[int(n)] for n in unseen_tasks.Deduction.task_ids(split)]
             for split in ("train", "test")}  # fmt: skip
    assert len(codes["train"]) == 48 and len(codes["test"]) == 16 and not set(codes["train"]) & set(codes["test"])
    for place in range(3):
        assert {code[place] for code in codes["test"]} == {"red", "green", "blue", "white"}


@pytest.mark.parametrize(
    ("guess", "code", "said"),
    [("red red red", "red blue blue", (1, 0)), ("red blue green", "green red blue", (0, 3)),
     ("red red blue", "red blue red", (1, 2)), ("white white red", "blue red green", (0, 1))],
)  # fmt: skip
def test_the_answers_of_deduction(guess: str, code: str, said: tuple[int, int]) -> None:
    assert unseen_tasks.Deduction.answer(tuple(guess.split()), tuple(code.split())) == said
