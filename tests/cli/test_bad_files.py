"""Unreadable files: the one-line error names the file, the line and the reason."""

from pathlib import Path
from typing import Any

import pytest

from rl_agents.cli import main
from rl_agents.envs.questions import read_questions
from rl_agents.errors import InputError

PARQUET, GZIP = b"PAR1\x15\x04\x15\x10PAR1", b"\x1f\x8b\x08\x00rest"

PRESETS: list[tuple[bytes, str]] = [
    (b"lr: 1\nlr: 2\n", ":2: broken YAML: key 'lr' occurs twice"),
    (b"- lr\n- 3\n", "a mapping of keys to values is needed, found list"),
    (b"lr: !!python/object/apply:os.system ['true']\n", "broken YAML: could not determine a constructor"),
    (b"lr:\n", ":1: broken YAML: 'lr' has no value; write a space after the colon, or null"),
    (b"lr: fast\n", "lr='fast': must be a valid number"),
    (b"actor:\n  lr: 1.0e-6\n", "'actor' is a section, but keys are flat: write `lr: ...` at the top level"),
    (b"lr: 1e-3\ngroup_size: [4\nseed: 1\n", "file.yaml:3: broken YAML"),
    (b"gruop_size: 4\n", "file.yaml: unknown key 'gruop_size': did you mean 'group_size'?"),
    (b"env.prompt: [paper]\n", "env.prompt=['paper']: valid: paper, compact"),
    (GZIP, "broken YAML"),
]

SWEEPS: list[tuple[bytes, str]] = [
    (b"", "no key varies"),
    (b"space: {lrr: [1, 2]}\n", "space: unknown key 'lrr': did you mean 'lr'?"),
    (b"space: {lr: [1, 2]}\nname: a/b\n", "only letters, digits, dots and dashes"),
    (b"space: {lr: [1, 2]}\nrecipe: nowhere.yaml\n", "nowhere.yaml: no such file"),
    (b"space: {lr: [1, 2]}\nset: {seed: x}\n", "file.yaml: seed='x': must be a valid integer"),
]

QUESTIONS: list[tuple[str, bytes, str]] = [
    ("q.jsonl", b'{"question": "a", "answer": "b"}\n{"question": "a"', "line 2: not JSON"),
    ("q.jsonl", b"\xff\n", "line 1: not UTF-8"),
    ("q.parquet", PARQUET, "not a readable Parquet file"),
    ("q.json", GZIP, "a gzip archive, not JSON or JSONL; unpack it first"),
    ("q.jsonl", b"PK\x03\x04rest", "a zip archive, not JSON or JSONL"),
    ("q.json", b"", "it ends in the middle, at character 0: is the download complete?"),
    ("q.json", b'[{"question": "a", "answer": "b', "it ends in the middle: is the download complete?"),
    ("q.json", b'[{"question": "a", "answer": "b"} {', "',' or ']' is missing after a value"),
    ("q.json", b'[{"question": "a" "answer": "b"}]', "a value cannot be read (Expecting ',' delimiter)"),
]


def named(rows: list[Any]) -> list[str]:
    return [repr(row[-2])[:50] for row in rows]


def one_line(error: InputError, path: Path, words: str) -> None:
    assert words in str(error) and str(path) in str(error) and "\n" not in str(error)


def refused(command: list[str], content: bytes, words: str, folder: Path, capsys) -> None:
    """Check that a command reading ``content`` prints ``words`` on one line and writes nothing."""
    (folder / "file.yaml").write_bytes(content)
    assert main([*command, str(folder / "file.yaml"), "--output", str(folder / "out")]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1 and not (folder / "out").exists()


@pytest.mark.parametrize(("content", "words"), PRESETS, ids=named(PRESETS))
def test_presets(content: bytes, words: str, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("rl_agents.cli.train._train", lambda *_: pytest.fail("accepted"))
    refused(["--config"], content, words, tmp_path, capsys)


@pytest.mark.parametrize(("content", "words"), SWEEPS, ids=named(SWEEPS))
def test_sweeps(content: bytes, words: str, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("rl_agents.cli.tune._tune", lambda *_: pytest.fail("accepted"))
    refused(["tune"], content, words, tmp_path, capsys)


@pytest.mark.parametrize(("name", "content", "words"), QUESTIONS, ids=named(QUESTIONS))
def test_questions(name: str, content: bytes, words: str, tmp_path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        list(read_questions(tmp_path / name))
    one_line(caught.value, tmp_path / name, words)


CONFIGS: list[tuple[bytes | None, bool, str]] = [
    (None, False, "no config.yaml"),
    (b"algo: grpo\n", False, "no checkpoint: nothing was trained yet"),
    (b"[", True, "broken YAML"),
    (b"algo: gone\n", True, "unknown algorithm 'gone'"),
    (b"algo: grpo\nlr: fast\n", True, "lr='fast': must be a valid number"),
]


@pytest.mark.parametrize(("config", "checkpoint", "words"), CONFIGS, ids=[words for *_, words in CONFIGS])
def test_folders_that_are_no_run(config: bytes | None, checkpoint: bool, words: str, tmp_path, capsys) -> None:
    folders = [tmp_path, *([tmp_path / "checkpoints" / "000001"] if checkpoint else [])]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        if config is not None:
            (folder / "config.yaml").write_bytes(config)
    before = sorted(tmp_path.rglob("*"))
    for argv in (["--resume", str(tmp_path)], ["eval", "--checkpoint", str(tmp_path)]):
        assert main(argv) == 2
        said = capsys.readouterr().err
        assert words in said and said.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before
