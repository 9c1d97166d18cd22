"""Public names of models: found in a cache without a network, written down by commit, and how to get what is absent."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from chat_models import save_chat_model
from huggingface_hub import constants

from rl_agents.algorithms import Settings
from rl_agents.cli import main
from rl_agents.errors import InputError
from rl_agents.inference.hub import find_folder, pinned, plain_name
from rl_agents.inference.model_shape import check_model_dir
from rl_agents.serving.source import Checkpoint, find_checkpoint
from rl_agents.trainer.measure import ready
from rl_agents.trainer.preflight import check_settings
from rl_agents.trainer.warm_start import ensure_model

COMMIT, OLDER = "0123456789abcdef0123456789abcdef01234567", "fedcba9876543210fedcba9876543210fedcba98"
KEYS = {"algo": "grpo", "env": "guess_numbers", "engine": "torch", "num_env_runners": 0, "num_learners": 0}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache as `hf download` leaves it: main, an older commit under a tag, files that are links into blobs."""
    hub = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(hub))
    repo = hub / "models--Owner--Tiny-Chat"
    made = save_chat_model(tmp_path / "made")
    for commit in (COMMIT, OLDER):
        snapshot = repo / "snapshots" / commit
        snapshot.mkdir(parents=True)
        (repo / "blobs").mkdir(exist_ok=True)
        for number, path in enumerate(sorted(made.iterdir())):
            blob = repo / "blobs" / f"{commit[:4]}{number}"
            blob.write_bytes(path.read_bytes())
            (snapshot / path.name).symlink_to(Path("../../blobs") / blob.name)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(COMMIT)
    (repo / "refs" / "v1").write_text(OLDER)
    return repo


@pytest.mark.parametrize(
    ("name", "commit"),
    [("Owner/Tiny-Chat", COMMIT), ("Owner/Tiny-Chat@main", COMMIT), ("Owner/Tiny-Chat@v1", OLDER),
     (f"Owner/Tiny-Chat@{OLDER}", OLDER)],
)  # fmt: skip
def test_a_name_is_found_and_pinned(cache: Path, name: str, commit: str) -> None:
    assert find_folder(name) == cache / "snapshots" / commit
    assert pinned(name) == f"Owner/Tiny-Chat@{commit}"
    assert plain_name(name) == "Tiny-Chat"


def test_a_run_resolves_the_name_and_writes_down_the_commit(cache: Path) -> None:
    settings = ready(Settings.from_dict({**KEYS, "model": "Owner/Tiny-Chat"}))
    assert settings.model == f"Owner/Tiny-Chat@{COMMIT}"
    (cache / "refs" / "main").write_text(OLDER)
    assert ready(settings).model == f"Owner/Tiny-Chat@{COMMIT}", "a run that goes on keeps its commit"
    assert ensure_model(settings, pytest.fail) == (cache / "snapshots" / COMMIT).resolve()


@pytest.mark.rllib
def test_it_is_served_and_evaluated_by_its_name(cache: Path) -> None:
    assert find_checkpoint("Owner/Tiny-Chat@v1") == Checkpoint(cache / "snapshots" / OLDER, None, "Tiny-Chat")
    argv = "eval --model Owner/Tiny-Chat --local --episodes 1 --seeds 1 --set max_turns=1 max_response_tokens=4"
    assert main(argv.split()) == 0
    assert main(["eval", "--model", "Owner/Other"]) == 2


ABSENT: list[tuple[str, str]] = [
    ("Owner/Other", "`hf download Owner/Other`"),
    ("Owner/Tiny-Chat@v2", "`hf download Owner/Tiny-Chat --revision v2`"),
]


@pytest.mark.parametrize(("name", "command"), ABSENT)
def test_one_line_says_how_to_get_it(cache: Path, capsys, monkeypatch, name: str, command: str) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    assert main(["--model", name, "--env", "guess_numbers"]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and f"model={name}: no such folder, and the Hugging Face cache" in error
    assert command in error and "hf auth login" in error and "unset" not in error and str(cache.parent) in error
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match=f"unset HF_HUB_OFFLINE, then {re.escape(command)}"):
        ready(Settings.from_dict({**KEYS, "model": name}))


@pytest.mark.parametrize("name", ["no/such/folder", "a b/c"])
def test_what_cannot_be_a_name_is_a_folder_that_is_absent(cache: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"no such folder$"):
        ready(Settings.from_dict({**KEYS, "model": name}))


@pytest.mark.parametrize(
    ("remove", "words"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), r"no \*.safetensors weights"),
        (lambda folder: (folder / "config.json").unlink(), "no config.json"),
    ],
)
def test_half_a_download_is_named(cache: Path, remove: Callable[[Path], None], words: str) -> None:
    remove(cache / "snapshots" / COMMIT)
    with pytest.raises(InputError, match=f"model=Owner/Tiny-Chat: {words}.*run `hf download Owner/Tiny-Chat` again"):
        ready(Settings.from_dict({**KEYS, "model": "Owner/Tiny-Chat"}))


def test_the_model_in_a_run_or_checkpoint_is_named(tmp_path: Path) -> None:
    newest = tmp_path / "checkpoints" / "000020" / "hf"
    for folder in (newest.parents[1] / "000010" / "hf", newest):
        folder.mkdir(parents=True)
        (folder / "config.json").touch()
    for given in (tmp_path, newest.parent):
        with pytest.raises(InputError, match=f"no config.json; take {newest}$"):
            check_model_dir(given)


def test_the_doctor_says_what_is_missing(cache: Path) -> None:
    keys = {**KEYS, "max_response_tokens": 64, "max_model_len": 4096}
    found = check_settings(Settings.from_dict({**keys, "model": "Owner/Other"}))
    assert [f.status for f in found if f.about == "model" and "`hf download Owner/Other`" in f.text] == ["note"]
    assert not [
        f for f in check_settings(Settings.from_dict({**keys, "model": "Owner/Tiny-Chat"})) if f.about == "model"
    ]
