"""A checkpoint is whole or absent."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import forked

from rl_agents.config import Settings
from rl_agents.errors import InputError
from rl_agents.reporting.manifest import write_manifest
from rl_agents.trainer.checkpoint import keeps_in_flight, load_state, save_state, write_atomically

Keys = dict[str, Any]


@pytest.mark.parametrize("name", ["000002", "000001"])
def test_a_kill_in_the_middle_of_a_write_leaves_the_last_checkpoint(tmp_path: Path, name: str) -> None:
    def write_and_die() -> None:
        def fill(folder: Path) -> None:
            (folder / "state.json").write_text("{")
            os.kill(os.getpid(), signal.SIGKILL)

        write_atomically(tmp_path / "000001", lambda folder: (folder / "state.json").write_text("old") and None)
        write_atomically(tmp_path / name, fill)

    assert forked(write_and_die) == -signal.SIGKILL
    visible = [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")]
    assert visible == ["000001"]
    assert (tmp_path / "000001" / "state.json").read_text() == "old"


def test_a_kill_between_the_renames_leaves_the_old_checkpoint_beside_the_new_one(tmp_path, monkeypatch) -> None:
    def write(text: str) -> None:
        write_atomically(tmp_path / "last", lambda folder: (folder / "state.json").write_text(text) and None)

    def rename(path: Path, target: Path) -> Path:
        if path.name.startswith(".tmp"):
            raise KeyboardInterrupt
        return whole(path, target)

    write("old")
    whole = Path.rename
    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(KeyboardInterrupt):
        write("new")
    assert sorted(path.read_text() for path in tmp_path.rglob("state.json")) == ["new", "old"]
    monkeypatch.undo()
    write("newer")
    assert [path.read_text() for path in tmp_path.rglob("state.json")] == ["newer"]


def test_state_comes_back_as_it_was(tmp_path: Path) -> None:
    state = {
        "optimizer": {"steps": 3, "moments": {"a/b/exp_avg": torch.randn(2, 3)}},
        "rl_module": {"p": {"w": torch.ones(2, dtype=torch.bfloat16)}},
    }
    save_state(tmp_path, state, {"iteration": 7}, {"algo": "grpo"})
    write_manifest(tmp_path)
    loaded, counters = load_state(tmp_path)
    assert counters == {"iteration": 7}
    assert loaded["optimizer"]["steps"] == 3
    assert torch.equal(loaded["optimizer"]["moments"]["a/b/exp_avg"], state["optimizer"]["moments"]["a/b/exp_avg"])
    assert loaded["rl_module"]["p"]["w"].dtype == torch.bfloat16


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no checkpoint, state\.json is missing"):
        load_state(tmp_path)
    save_state(tmp_path, {"a": torch.ones(1)}, {}, {})
    (tmp_path / "training_state.safetensors").write_bytes(os.urandom(64))
    with pytest.raises(InputError, match="damaged checkpoint"):
        load_state(tmp_path)
    save_state(tmp_path, {"a": torch.ones(1)}, {}, {})
    for text, problem in (
        ("[]", "an object is needed"),
        ('{"format"', "broken JSON"),
        ('{"format": 1}', "lacks counters"),
    ):
        (tmp_path / "state.json").write_text(text)
        with pytest.raises(InputError, match=f"damaged checkpoint: .*{problem}"):
            load_state(tmp_path)


def test_names_reach_the_disk_as_contents_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power failure, a folder that was not flushed may lack files that were."""

    def fill(folder: Path) -> None:
        (folder / "hf").mkdir()
        (folder / "hf" / "config.json").write_text("{}")

    flushed: list[Path] = []
    monkeypatch.setattr("rl_agents.trainer.checkpoint.flush", flushed.append)
    write_atomically(tmp_path / "000001", fill)
    assert [path.name for path in flushed] == ["hf", "config.json", ".tmp-000001", tmp_path.name]


def test_a_failing_write_leaves_nothing(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "state.json").write_text("{")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(tmp_path / "000001", fill)
    assert not list(tmp_path.iterdir()), "what is half written would keep the disk full"


@pytest.mark.parametrize(
    ("saved", "now", "kept"),
    [
        ({"async_level": 3}, {"async_level": 2}, True),
        ({"async_level": 3}, {"stream": True}, False),
        ({"stream": True}, {"async_level": 3}, False),
        ({"stream": True}, {"stream": True, "max_staleness": 4}, True),
        ({"stream": True, "max_staleness": 4}, {"stream": True}, False),
        ({"stream": True}, {"stream": True, "tasks_per_iteration": 5}, False),
    ],
)
def test_what_was_in_flight_counts_where_it_means_the_same(saved: Keys, now: Keys, kept: bool) -> None:
    assert keeps_in_flight(Settings.from_dict(saved), Settings.from_dict(now)) == kept
