"""Output folders after kills, pruning and resumption."""

import json
import math
from contextlib import nullcontext
from pathlib import Path

import pytest

from rl_agents.algorithms import Settings
from rl_agents.errors import InputError
from rl_agents.reporting.run_folder import RunFolder, check_fixed, json_safe


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", Settings())


def test_pruning_keeps_the_newest(folder: RunFolder) -> None:
    for iteration in (2, 4, 10, 1000000):
        folder.checkpoint(iteration).mkdir()
    (folder.checkpoints / ".tmp-000012").mkdir()
    (folder.checkpoints / "notes").mkdir()
    folder.prune_checkpoints(0)
    assert [n for n, _ in folder.complete_checkpoints()] == [2, 4, 10, 1000000]
    folder.prune_checkpoints(2)
    assert [n for n, _ in folder.complete_checkpoints()] == [10, 1000000]
    assert (folder.checkpoints / "notes").exists()
    folder.prune_checkpoints(5)
    assert len(folder.complete_checkpoints()) == 2


def test_locate_takes_a_run_or_a_checkpoint(folder: RunFolder) -> None:
    for iteration in (3, 12):
        folder.checkpoint(iteration).mkdir()
    assert RunFolder.locate(folder.path)[1:] == (12, folder.checkpoint(12))
    found, iteration, _ = RunFolder.locate(folder.checkpoint(3))
    assert (found.path, iteration) == (folder.path, 3)


def test_locate_ignores_a_checkpoint_under_way(folder: RunFolder) -> None:
    (folder.checkpoints / ".tmp-000005").mkdir()
    with pytest.raises(InputError, match="no checkpoint: nothing was trained yet"):
        RunFolder.locate(folder.path)


def test_cut_after_drops_later_work_and_torn_lines(folder: RunFolder) -> None:
    for iteration in range(5):
        folder.append_metrics({"iteration": iteration})
        (folder.trajectories / f"{iteration:06d}.jsonl").touch()
        (folder.trajectories / f"eval-{iteration:06d}.jsonl").touch()
    with folder.metrics_file.open("a") as file:
        file.write('{"iteration": 5, "rollout/succ')
    folder.checkpoint(2).mkdir()
    folder.checkpoint(4).mkdir()
    (folder.checkpoints / ".tmp-000005").mkdir()
    folder.cut_after(2)
    assert [json.loads(line)["iteration"] for line in folder.metrics_file.read_text().splitlines()] == [0, 1, 2]
    assert len(list(folder.trajectories.iterdir())) == 6
    assert [path.name for path in folder.checkpoints.iterdir()] == ["000002"]


def test_create_refuses_a_folder_in_use(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="not empty"):
        RunFolder.create(tmp_path, Settings())
    with pytest.raises(InputError, match="a file with that name"):
        RunFolder.check_free(tmp_path / "file")


def test_json_has_no_nan(folder: RunFolder) -> None:
    folder.append_metrics({"iteration": 1, "actor/grad_norm": math.nan, "x/y": math.inf})
    assert "NaN" not in folder.metrics_file.read_text()
    assert folder.read_metrics() == [{"iteration": 1, "actor/grad_norm": None, "x/y": None}]
    with folder.metrics_file.open("ab") as file:
        file.write(b'[1]\n3\n{"x/y": 1}\n\xff\x00\n{"iterat')
    assert len(folder.read_metrics()) == 1, "a power failure damages lines"
    assert json_safe({"a": [1.0, (math.nan,)]}) == {"a": [1.0, [None]]}


def test_what_a_run_was_made_with_and_what_it_goes_on_with(folder: RunFolder, monkeypatch) -> None:
    (first,) = folder.read_builds()
    assert first["from_iteration"] == 0 and first["version"] and first["packages"]["torch"] and "commit" in first
    folder.append_metrics({"iteration": 3})
    folder.save_settings(Settings())
    assert folder.read_builds() == [first], "the same build continues"
    monkeypatch.setattr("rl_agents.installation.__version__", "9.9")
    folder.save_settings(Settings())
    assert [(b["from_iteration"], b["version"]) for b in folder.read_builds()] == [(0, first["version"]), (3, "9.9")]


@pytest.mark.parametrize(
    ("keys", "changed", "refused"),
    [
        ({}, {"lora_alpha": 64.0}, ""),  # without effect: resolving refuses it
        ({}, {"lora_rank": 4}, "lora_rank=0, not 4: it decides which weights are trained: adapters of that rank, or"),
        ({"lora_rank": 2}, {"lora_alpha": 64.0}, "lora_alpha=16.0, not 64.0: it scales what the adapters have learned"),
        ({}, {"state_key": "observation"}, ""),
        ({"algo": "gigpo"}, {"state_scope": "task"}, ""),
        ({"algo": "chain-gae"}, {"state_key": "observation"}, "that run has state_key=anchor, not observation"),
    ],
)
def test_a_key_is_fixed_where_it_has_an_effect(keys: dict, changed: dict, refused: str) -> None:
    before, now = Settings.from_dict(keys), Settings.from_dict({**keys, **changed})
    with pytest.raises(InputError, match=refused) if refused else nullcontext():
        check_fixed("R", before, now)
