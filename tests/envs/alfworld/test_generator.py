"""Generated games: the same everywhere, solvable, and split by layout."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from games import game_digest, generate_game, trajectory, write_games

from rl_agents.envs.alfworld import AlfworldOptions, scenes
from rl_agents.envs.alfworld import tasks as tasks_of
from rl_agents.envs.alfworld.families import FAMILIES
from rl_agents.envs.alfworld.generator import Entity, draft, feasible_goals, generated_file, read_task_id
from rl_agents.envs.alfworld.native import NativeGame
from rl_agents.envs.alfworld.scenes import FAMILY_ROOMS, ROOMS, SIZES, TRAIN_LAYOUTS, UNSEEN_LAYOUTS, layout
from rl_agents.envs.alfworld.tasks import task_ids
from rl_agents.errors import InputError

SPLITS = ("train", "test_seen", "test_unseen")


@pytest.mark.parametrize("size", SIZES)
def test_splits_have_the_sizes_of_alfworld_and_balanced_families(size: str) -> None:
    for split, count in (("train", 1200), ("test_seen", 140), ("test_unseen", 134)):
        tasks = tasks_of.generated_tasks(size, split)
        assert len(tasks) == len(set(tasks)) == count
        families = Counter(read_task_id(task).family.short for task in tasks)
        assert max(families.values()) - min(families.values()) <= 1
        assert len(families) == 6


@pytest.mark.parametrize("size", SIZES)
def test_unseen_layouts_are_never_trained_on_and_seen_ones_are(size: str) -> None:
    layouts = {split: {task.split("/")[2] for task in tasks_of.generated_tasks(size, split)} for split in SPLITS}
    assert not layouts["train"] & layouts["test_unseen"]
    assert layouts["test_seen"] <= layouts["train"]
    assert len(layouts["test_unseen"]) == 16


@pytest.mark.parametrize("size", SIZES)
def test_no_test_game_is_a_training_game_under_another_id(size: str) -> None:
    games = {
        split: {generated_file(task).problem.partition("\n")[2] for task in tasks_of.generated_tasks(size, split)}
        for split in SPLITS
    }
    assert not games["train"] & (games["test_seen"] | games["test_unseen"])
    assert len(games["test_seen"]) == 140


def test_training_goes_on_beyond_the_panel() -> None:
    panel_tasks, tasks = tasks_of.generated_tasks("small", "train"), tasks_of.training_tasks("small", 30_000)
    assert list(tasks_of.training_tasks("small", 7)) == panel_tasks[:7] and list(tasks[:1200]) == panel_tasks
    assert len(set(tasks)) == 30_000
    assert set(tasks).isdisjoint(tasks_of.generated_tasks("small", "test_seen"))
    assert {task.split("/")[2] for task in tasks} == {task.split("/")[2] for task in panel_tasks}
    families = Counter(task.split("/")[1] for task in tasks)
    assert max(families.values()) == min(families.values())
    assert generated_file(tasks[-1]).problem
    assert task_ids("train", AlfworldOptions(train_tasks=1201))[-1] == tasks[1200]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("room", ["kitchen", "bathroom", "bedroom", "livingroom"])
def test_layouts_keep_to_their_plan_and_differ(size: str, room: str) -> None:
    plan = ROOMS[size][room]
    layouts = [layout(size, f"{room}-{n}") for n in (*TRAIN_LAYOUTS, *UNSEEN_LAYOUTS)]
    assert len({(one.receptacles, one.object_types) for one in layouts}) == len(layouts)
    for one in layouts:
        counts = dict(one.receptacles)
        assert plan.total[0] <= sum(counts.values()) <= plan.total[1]
        assert all(least <= counts.get(kind, 0) <= most for kind, (least, most) in plan.receptacles.items())
        assert set(plan.staples) <= set(one.object_types)
        assert len(one.object_types) == plan.kinds


@pytest.mark.parametrize("size", SIZES)
def test_every_family_can_be_played_in_every_layout_of_its_rooms(size: str) -> None:
    for family in FAMILIES:
        for room in FAMILY_ROOMS[family.short]:
            for n in (*TRAIN_LAYOUTS, *UNSEEN_LAYOUTS):
                assert feasible_goals(family, layout(size, f"{room}-{n}"))


@pytest.mark.parametrize("size", SIZES)
def test_objects_lie_where_they_may_and_goals_are_open(size: str) -> None:
    for task in tasks_of.generated_tasks(size, "train")[:300]:
        drawn = draft(task)
        goal = drawn.goal
        for thing, place in drawn.scene.places:
            assert scenes.can_hold(place.type, thing.type)
            if thing.type == goal.object_type and not goal.family.change and not goal.family.in_light:
                assert place.type != goal.target_type
        least, most = drawn.task.layout.objects
        assert least <= len(drawn.scene.places) <= most
        assert sum(thing.type == goal.object_type for thing, _ in drawn.scene.places) >= goal.family.count


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("split", ["test_seen", "test_unseen"])
def test_walkthroughs_win_on_the_native_engine_and_not_before_their_end(size: str, split: str) -> None:
    for task in tasks_of.generated_tasks(size, split)[:: 5 if size == "full" else 3]:
        game = NativeGame.compile(generated_file(task))
        state = game.start()
        for command in generate_game(task)["walkthrough"]:
            assert not game.won(state), task
            assert command in game.admissible(state), (task, command)
            state = game.step(state, command).state
        assert game.won(state), task


def test_first_observation_and_names_are_those_of_alfworld() -> None:
    task = "small/heat/kitchen-3/17"
    game = NativeGame.compile(generated_file(task))
    intro = game.intro(game.start())
    assert intro.startswith(
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see a "
    )
    assert intro.endswith(f"\n\nYour task is to: {draft(task).sentence}.")
    drawn = draft(task)
    assert all(f"a {place.name}" in intro for place in drawn.scene.receptacles)
    thing, place = drawn.scene.places[0]
    state = game.step(game.start(), f"go to {place.name}").state
    if f"open {place.name}" in game.admissible(state):
        state = game.step(state, f"open {place.name}").state
    assert f"take {thing.name} from {place.name}" in game.admissible(state)


def test_pddl_names_number_entities_as_alfworld_does() -> None:
    assert [Entity("Mug", n).pddl for n in (1, 12)] == ["Mug_bar_98", "Mug_bar_87"]
    assert Entity("SinkBasin", 1).pddl == "Sink_bar_98_bar_SinkBasin"
    assert Entity("SinkBasin", 1).name == "sinkbasin 1"


def test_texts_are_all_needed_and_declared() -> None:
    game = generate_game("full/two/livingroom-2/0")
    actions = re.findall(r"\(:action (\w+)", game["pddl_domain"])
    assert sorted(actions) == sorted(re.findall(r"^action (\w+)", game["grammar"], flags=re.M))
    assert "UNKNOWN GOAL" not in game["grammar"]


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("heat/kitchen-3/17", "a generated task is <size>/<family>/<layout>/<number>"),
        ("tiny/heat/kitchen-3/17", "unknown size 'tiny'"),
        ("small/heta/kitchen-3/17", "did you mean 'heat'"),
        ("small/heat/kitchem-3/17", "did you mean 'kitchen'"),
        ("small/heat/kitchen-17/17", "kitchen-1 to kitchen-16 exist"),
        ("small/heat/kitchen-03/17", "unknown layout"),
        ("small/heat/bedroom-3/17", "family heat needs one of kitchen"),
        ("small/heat/kitchen-3/x", "unknown number"),
        ("small/heat/kitchen-3/-1", "unknown number"),
        ("small/heat/kitchen-3/007", "unknown number"),
        ("small/heat/kitchen-3/10000", "unknown number"),
        ("small/heat/kitchen-3/" + "9" * 5000, "unknown number"),
        ("small/heat/kitchen-3/²", "unknown number"),
        ("", "a generated task is"),
    ],
)
def test_bad_task_ids_are_refused_in_one_line(task: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        generated_file(task)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_written_games_have_the_layout_of_the_download(tmp_path: Path) -> None:
    tasks = ["small/look/bedroom-1/3", "small/two/kitchen-2/4"]
    files = write_games(tmp_path, tasks)
    for task, file in zip(tasks, files, strict=True):
        assert file.relative_to(tmp_path).parts[2] == "game.tw-pddl"
        game = json.loads(file.read_text(encoding="utf-8"))
        assert game_digest(game) == game_digest(generate_game(task))
        assert json.loads(file.with_name("traj_data.json").read_text(encoding="utf-8")) == trajectory(task)
        assert file.with_name("initial_state.pddl").read_text(encoding="utf-8") == game["pddl_problem"]


def test_changed_panel_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = json.loads(tasks_of.panel_file("small").read_text(encoding="utf-8"))
    changed["train"][0] = "small/pick/bathroom-4/99"
    (tmp_path / "panel_small.json").write_text(json.dumps(changed), encoding="utf-8")
    monkeypatch.setattr(tasks_of, "panel_file", lambda size: tmp_path / f"panel_{size}.json")
    with pytest.raises(InputError, match="do not match their sha256"):
        tasks_of.generated_tasks("small", "train")
