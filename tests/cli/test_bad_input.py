"""Bad input: exit code 2, one line on stderr, nothing written."""

import shlex

import pytest
import torch  # noqa: F401  (otherwise the first command to import it prints to standard output)
from bad_command_lines import ROWS

from rl_agents.cli import main


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a command line that is accepted by mistake fail, instead of training or playing."""

    def started(*_: object, **__: object) -> None:
        raise AssertionError("accepted")

    for name in (
        "rl_agents.cli.train._train",
        "rl_agents.cli.evaluate.evaluate",
        "rl_agents.trainer.warm_start.build_starter",
    ):
        monkeypatch.setattr(name, started)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.partition(" => ")[0])
def test_the_table_of_command_lines(row: str, nothing_starts, tmp_path, monkeypatch, capsys) -> None:
    arguments, _, words = row.partition(" => ")
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ") and len(captured.err.splitlines()) == 1
    assert words in captured.err and captured.out == "" and list(tmp_path.iterdir()) == []


def test_output_that_is_in_use_is_left_alone(tmp_path, capsys) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "precious.txt").write_text("mine")
    for argv in (["--output", str(out)], ["sft", "--output", str(out)]):
        assert main(argv) == 2
        assert "not empty" in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ["precious.txt"]


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("a_file/out", "a_file is a file"),
        ("gone", "it is a link to nowhere"),
        ("x" * 300, "File name too long"),
        (f"new/{'x' * 300}/out", "name too long"),
    ],
)
def test_sft_refuses_an_output_before_any_work(output, reason, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rl_agents.cli.sft.plan", lambda *_: pytest.fail("it resolved the keys"))
    (tmp_path / "a_file").write_text("")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    assert main(["sft", "--output", output]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: --output {output}: cannot be written: ") and error.endswith(f"{reason}\n")
    assert len(error.splitlines()) == 1 and {path.name for path in tmp_path.iterdir()} == {"a_file", "gone"}


def test_a_name_that_is_too_long_is_one_line(nothing_starts, capsys) -> None:
    for argv in (["--model", "long" * 100], ["--config", "long" * 100], ["eval", "--checkpoint", "long" * 100]):
        assert main(argv) == 2
        assert capsys.readouterr().err == f"error: {'long' * 20}...: the file name is too long\n"


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch, nothing_starts, capsys) -> None:
    (tmp_path / "a_file").write_text("")
    monkeypatch.setenv("RL_AGENTS_CACHE", str(tmp_path / "a_file"))
    assert main(["sft"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: the cache {tmp_path}/a_file/starters/guess_numbers-")
    assert error.endswith("a_file is a file\n") and len(error.splitlines()) == 1
    for name in ("RL_AGENTS_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # a container's user
    assert main(["sft"]) == 2
    assert "no home folder for the cache: set RL_AGENTS_CACHE" in capsys.readouterr().err
