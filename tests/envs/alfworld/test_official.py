"""Games in the layout of alfworld-download: what is listed, and one clear line for what is broken."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from games import write_games

from rl_agents.envs.alfworld.official import official_file, official_games
from rl_agents.errors import InputError

TASKS = [
    f"small/{family}/{room}-{n}/{n}" for n in (1, 2) for family, room in (("pick", "bedroom"), ("heat", "kitchen"))
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A download with four games in ``train`` and two in ``valid_seen``."""
    write_games(tmp_path / "json_2.1.1" / "train", TASKS)
    write_games(tmp_path / "json_2.1.1" / "valid_seen", TASKS[:2])
    return tmp_path


def first_trial(data: Path) -> Path:
    return min((data / "json_2.1.1" / "train").glob("*/*"))


def test_games_are_listed_by_path_whatever_the_order_of_the_directory(data: Path, tmp_path: Path) -> None:
    ids = list(official_games(data, "train"))
    assert ids == sorted(ids)
    assert [task.split("/")[1].split("_")[1] for task in ids] == ["and", "and", "heat", "heat"]
    assert all(task.startswith("train/pick_") and official_file(data, task).path.is_file() for task in ids)
    assert len(official_games(data, "test_seen")) == 2
    write_games(tmp_path / "other" / "train", list(reversed(TASKS)))
    assert list(official_games(tmp_path / "other", "train")) == ids


def edit(trial: Path, name: str, change: Callable[[dict], object]) -> None:
    """Change a JSON file of a trial."""
    content = json.loads((trial / name).read_text(encoding="utf-8"))
    change(content)
    (trial / name).write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.parametrize("name", ["game.tw-pddl", "traj_data.json", "an unknown family"])
def test_a_damaged_game_is_one_clear_line(data: Path, name: str) -> None:
    trial = first_trial(data)
    task_id, message = trial.relative_to(data / "json_2.1.1").as_posix(), f"{name}: not JSON"
    if name == "an unknown family":
        edit(trial, "traj_data.json", lambda traj: traj.update(task_type="pick_heat_then_place"))
        message = "unknown task_type 'pick_heat_then_place': did you mean 'pick_heat_then_place_in_recep'?"
    else:
        os.truncate(trial / name, 700)
    with pytest.raises(InputError) as caught:
        official_games(data, "train")
    line = str(caught.value)
    assert message in line and str(trial) in line and "\n" not in line
    assert line.endswith(f"is the download complete? Delete the folder {task_id} to exclude the game")
    with pytest.raises(InputError, match="train"):
        official_file(data, task_id)
    shutil.rmtree(trial)
    assert len(official_games(data, "train")) == 3


def test_missing_folders_are_named(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere: no such folder; alfworld-download makes it"):
        official_games(tmp_path / "nowhere", "train")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"no json_2.1.1/\{train,valid_seen,valid_unseen\} in it"):
        official_games(tmp_path / "empty", "train")
    with pytest.raises(InputError, match="valid_unseen: no such folder"):
        official_games(data, "test_unseen")
    (data / "json_2.1.1" / "valid_unseen").mkdir()
    with pytest.raises(InputError, match="valid_unseen: no game in it"):
        official_games(data, "test_unseen")


def test_a_grammar_without_a_task_gets_one_from_the_trajectory(data: Path) -> None:
    trial = first_trial(data)
    trajectory = json.loads((trial / "traj_data.json").read_text(encoding="utf-8"))
    task = trajectory["turk_annotations"]["anns"][0]["task_desc"]
    edit(trial, "game.tw-pddl", lambda game: game.update(grammar=game["grammar"].replace(task, "UNKNOWN GOAL")))
    task_id = trial.relative_to(data / "json_2.1.1").as_posix()
    target = {name: trajectory["pddl_params"][name].lower() for name in ("object_target", "parent_target")}
    expected = f"Your task is to: put a {target['object_target']} in {target['parent_target']}."
    assert expected in official_file(data, task_id).grammar
    edit(trial, "traj_data.json", lambda traj: traj.pop("pddl_params"))
    with pytest.raises(InputError, match="its grammar has no task"):
        official_file(data, task_id)


@pytest.mark.parametrize(
    "task", ["../../etc/passwd", "train/..", "train/../x", "/etc/a/b", "", "train/a/b/c", "train/a"]
)
def test_task_ids_cannot_leave_the_folder(data: Path, task: str) -> None:
    with pytest.raises(InputError, match="an official task is <split>/<task>/<trial>"):
        official_file(data, task)
