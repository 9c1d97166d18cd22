"""Damage to a checkpoint: every file, cut, zeroed inside and missing."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from trained import running, train

from rl_agents.cli import main
from rl_agents.errors import InputError
from rl_agents.reporting.manifest import MANIFEST, damage, write_manifest
from rl_agents.trainer.algorithm import AgentAlgorithm
from rl_agents.trainer.checkpoint import load_state

#: Places in a file, as shares of its length, and the number of bytes that are lost there.
PLACES, LOST = (0.0, 0.5, 0.9), 50_000


def cut(place: float) -> Callable[[bytes], bytes]:
    return lambda data: data[: int(len(data) * place)]


def zeroed(place: float) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        start = int(len(data) * place)
        end = min(len(data), start + min(LOST, len(data) // 10 + 1))
        return data[:start] + bytes(end - start) + data[end:]

    return change


def faults(folder: Path) -> Iterator[tuple[str, Path]]:
    """Damage each file of a checkpoint in each way, and mend it again; yield (kind, file)."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        whole = path.read_bytes()
        kinds = {f"{kind.__name__} at {place}": kind(place)(whole) for kind in (cut, zeroed) for place in PLACES}
        for kind, data in [*kinds.items(), ("missing", None)]:
            path.unlink() if data is None else path.write_bytes(data)
            if data != whole:
                yield kind, path
            path.write_bytes(whole)


@pytest.fixture(scope="module")
def saved(beginner_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two checkpoints, with adapters, a critic, a memory of credit and a pool."""
    output = tmp_path_factory.mktemp("saved") / "run"
    keys = ["lora_rank=2", "tasks_per_iteration=2", "group_size=2", "eval_episodes=0", "save_trajectories=0"]
    argv = ["--local", "--algo", "chain-gae", "--model", str(beginner_model_dir), "--iterations", "2"]
    assert main([*argv, "--output", str(output), "--set", *keys]) == 0
    return output


def test_no_damage_is_resumed_from(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line names the file, the newest whole checkpoint and the command that resumes from it."""
    newest, older = saved / "checkpoints" / "000002", saved / "checkpoints" / "000001"
    assert damage(newest) == "" and damage(older) == ""
    names, cases = set(), 0
    for kind, path in faults(newest):
        names.add(path.relative_to(newest).as_posix())
        cases += 1
        assert main(["--resume", str(saved), "--iterations", "3"]) == 2, f"{path.name} {kind}"
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and path.name in said, f"{path.name} {kind}: {said}"
        assert f"{newest}: damaged checkpoint" in said and f"--resume {older}\n" in said, f"{path.name} {kind}: {said}"
    assert cases >= 50 and {
        "training_state.safetensors", "state.json", "memory.json", "config.yaml", MANIFEST, "hf/model.safetensors",
        "hf/config.json", "hf/tokenizer.json", "adapter/adapter_model.safetensors",
    } <= names  # fmt: skip
    assert damage(newest) == ""


def test_the_named_command_continues_exactly(saved: Path, tmp_path: Path, capsys) -> None:
    run = tmp_path / "run"
    shutil.copytree(saved, run)
    weights = run / "checkpoints" / "000002" / "training_state.safetensors"
    weights.write_bytes(zeroed(0.5)(weights.read_bytes()))
    assert main(["--resume", str(run)]) == 2
    older = capsys.readouterr().err.split("--resume ")[-1].strip()
    assert main(["--resume", older]) == 0
    for name in ("training_state.safetensors", "hf/model.safetensors", "memory.json"):
        ours, theirs = (folder / "checkpoints" / "000002" / name for folder in (run, saved))
        assert ours.read_bytes() == theirs.read_bytes(), name


def test_without_a_whole_one_the_run_can_start_again(saved: Path, tmp_path: Path, capsys) -> None:
    run = tmp_path / "run"
    shutil.copytree(saved, run)
    for path in run.glob("checkpoints/*/state.json"):
        path.unlink()
    assert main(["--resume", str(run)]) == 2
    assert f"no whole one; start it again with: python run.py --config {run}/config.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["hf/model.safetensors", "hf/tokenizer.json", "config.yaml"])
def test_damaged_weights_are_not_evaluated(saved: Path, tmp_path: Path, capsys, name: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(saved, run)
    path = run / "checkpoints" / "000002" / name
    path.write_bytes(zeroed(0.5)(path.read_bytes()))
    assert main(["eval", "--checkpoint", str(run), "--episodes", "2"]) == 2
    said = capsys.readouterr().err
    assert path.name in said and f"eval --checkpoint {run}/checkpoints/000001\n" in said


def test_the_api_refuses_damage_too(beginner_model_dir: Path, tmp_path: Path) -> None:
    folder, keys = tmp_path / "saved", {"tasks_per_iteration": 3, "group_size": 4, "minibatches": 1}
    with running(beginner_model_dir, eval_episodes=0, **keys) as algo:
        train(algo, 1)
        algo.save_run_checkpoint(folder)
    (folder / MANIFEST).unlink()
    with pytest.raises(InputError, match=r"saved: damaged checkpoint: manifest\.json is missing"):
        AgentAlgorithm.from_checkpoint(folder)
    write_manifest(folder)
    (folder / "hf" / "model.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match=r"hf/model\.safetensors is not as it was written \(0 bytes"):
        load_state(folder)
