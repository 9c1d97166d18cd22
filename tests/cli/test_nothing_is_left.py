"""Exit code 2 leaves no output folder that neither a new run nor --resume could use."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_agents.cli import main
from rl_agents.errors import InputError
from rl_agents.reporting.outputs import check_writable, nothing_left

#: Raises where its constructor argument says: at the second reset, a step, or the step number N of all.
FAULTY = """
import gymnasium
from gymnasium.spaces import Text
from rl_agents.errors import InputError

class Faulty(gymnasium.Env):
    observation_space = action_space = Text(max_length=100)
    max_turns = 2
    calls = {"reset": 0, "step": 0}

    def __init__(self, at="reset", after=1):
        self.at, self.after = at, after

    def count(self, call):
        self.calls[call] += 1
        if call == self.at and self.calls[call] > self.after:
            raise InputError(f"the {call} has no data")

    def reset(self, *, seed=None, options=None):
        self.count("reset")
        return "go", {}

    def step(self, action):
        self.count("step")
        return "on", 0.0, False, False, {}

    def demonstrate(self, observation, random):
        return "go on"
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return an empty working folder; the files that the commands read are in ``../given``."""
    given, here = tmp_path / "given", tmp_path / "here"
    given.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(str(given))
    monkeypatch.setenv("RL_AGENTS_CACHE", str(tmp_path / "cache"))
    (given / "faulty.py").write_text(FAULTY)
    (given / "a_file").write_text("")
    turn = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    (given / "traces.jsonl").write_text(json.dumps({"messages": turn}) + "\n")
    (given / "broken.jsonl").write_text("{\n")
    (given / "sweep.yaml").write_text("set: {env: guess_numbers, iterations: 1}\nspace: {lr: [1.0e-4]}\n")
    (given / "bad_sweep.yaml").write_text("set: {model: nowhere}\nspace: {lr: [1.0e-4]}\n")
    small_model(given / "model")
    (given / "no_weights").mkdir()
    (given / "no_weights" / "config.json").write_text("{}")
    yield here
    sys.modules.pop("faulty", None)


def small_model(folder: Path) -> None:
    from rl_agents.envs.starters import small_qwen3, word_tokenizer

    tokenizer = word_tokenizer(["go", "on", "hi", "hello"], [], 64)
    small_qwen3(tokenizer, 0, hidden_size=32, layers=1, heads=1).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


FEW = "tasks_per_iteration=2 group_size=2 minibatches=1 eval_episodes=2 max_model_len=64 max_response_tokens=4"
TRAIN = f"--local --env gymnasium:faulty:Faulty --iterations 2 --output new/out --set model=../given/model {FEW}"

INPUTS = {
    "model without weights": "--output new/out --set model=../given/no_weights",
    "judge without server": f"{TRAIN} reward=prs",
    "no snapshots": f"{TRAIN} algo=3spo group_size=4 branching=snapshot",
    "resets fail": f"{TRAIN} env.kwargs={{at: reset, after: 1}}",
    "steps fail": f"{TRAIN} env.kwargs={{at: step, after: 0}}",
    "no evaluation, and steps fail": f"{TRAIN} env.kwargs={{at: step, after: 5}}",
    "output under a file": "--local --output ../given/a_file/new/out",
    "sft under a file": "sft --env guess_numbers --output ../given/a_file/out",
    "sweep of a missing model": "tune ../given/bad_sweep.yaml --output new/out",
    "sweep under a file": "tune ../given/sweep.yaml --output ../given/a_file/out",
    "eval of a broken environment": f"eval --local --env gymnasium:faulty:Faulty --model ../given/model "
    f"--episodes 2 --seeds 1 --set env.kwargs={{at: step, after: 0}} {FEW.split('minibatches=1 ')[1]}",
    "broken traces": "pivot extract --traces ../given/broken.jsonl --output new/out",
    "turns under a file": "pivot extract --traces ../given/traces.jsonl --output ../given/a_file/out",
    "profile that does not fit": "pivot profile --local --traces ../given/traces.jsonl --model ../given/model "
    "--output new/out --set max_model_len=4 max_response_tokens=3 env.verifier=exact",
}


def argv(command: str) -> list[str]:
    """Split at spaces outside of braces."""
    parts: list[str] = []
    for word in command.split(" "):
        if parts and parts[-1].count("{") > parts[-1].count("}"):
            parts[-1] += f" {word}"
        else:
            parts.append(word)
    return parts


@pytest.mark.rllib
@pytest.mark.parametrize("name", INPUTS)
def test_exit_code_2_leaves_nothing(name: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(path.relative_to(place.parent) for path in (place.parent / "given").rglob("*"))
    code = main(argv(INPUTS[name]))
    said = capsys.readouterr().err
    assert code == 2, said
    assert said.splitlines()[-1].startswith("error: ")
    assert list(place.iterdir()) == []
    after = sorted(path.relative_to(place.parent) for path in (place.parent / "given").rglob("*"))
    assert [path for path in after if path not in before and "__pycache__" not in path.parts] == []


@pytest.mark.rllib
def test_an_input_error_after_an_iteration_keeps_the_run(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The failure comes after two evaluations and one iteration, so there is a checkpoint to resume."""
    late = "eval_interval=0 checkpoint_interval=1 env.kwargs={at: step, after: 12}"
    assert main(argv(f"{TRAIN} {late}")) == 1
    assert "the step has no data" in (said := capsys.readouterr().err) and "--resume new/out" in said
    assert (place / "new/out/checkpoints/000001").is_dir()


@pytest.mark.rllib
def test_bad_input_leaves_a_resumed_run_its_keys(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv(f"{TRAIN} env.kwargs={{at: never}}")) == 0
    keys = (place / "new/out/config.yaml").read_text()
    for changed, words in (
        ("lora_rank=2", "that run has lora_rank=0, not 2"),
        ("lora_alpha=2", "key 'lora_alpha' has no effect without lora_rank"),
        ("env.kwargs={at: step, after: 0}", "the step has no data"),
    ):
        assert main(argv(f"--resume new/out --iterations 3 --set {changed}")) == 2
        assert words in capsys.readouterr().err
        assert (place / "new/out/config.yaml").read_text() == keys


def test_an_empty_folder_and_what_stands_beside_stay(tmp_path: Path) -> None:
    out = tmp_path / "a" / "out"
    out.mkdir(parents=True)
    other = tmp_path / "b" / "c" / "out"
    with pytest.raises(InputError), nothing_left(out, other):
        (out / "part").mkdir()
        (out / "part" / "x").write_text("")
        other.mkdir(parents=True)
        (tmp_path / "b" / "mine").write_text("of somebody else")
        raise InputError("no")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b", "mine", "out"]


def test_a_file_is_restored_atomically(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("lr: 1\n")
    with pytest.raises(InputError), nothing_left(config):
        config.write_text("lr: 2\n")
        reader = config.open()
        raise InputError("bad")
    with reader:
        assert (config.read_text(), reader.read()) == ("lr: 1\n", "lr: 2\n"), "the old file is whole"


def test_a_failed_start_does_not_block_its_folder(tmp_path: Path) -> None:
    from rl_agents.config import Settings
    from rl_agents.reporting.run_folder import RunFolder

    (tmp_path / "error.log").write_text("Traceback")
    RunFolder.create(tmp_path, Settings())
    assert not (tmp_path / "error.log").exists()
    with pytest.raises(InputError, match="not empty"):
        RunFolder.check_free(tmp_path)


def test_a_check_leaves_no_trace(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b" / "c")
    assert list(tmp_path.iterdir()) == []
