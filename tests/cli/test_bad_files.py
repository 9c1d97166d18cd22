"""Unreadable files: the one-line error names the file, the line and the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rl_agents.cli import main
from rl_agents.envs.multihop_qa.questions import read_questions
from rl_agents.errors import InputError
from rl_agents.retrieval.passages import PassageStore
from rl_agents.tools.mcp_servers import read_servers
from rl_agents.traces.files import read_traces

PARQUET, GZIP = b"PAR1\x15\x04\x15\x10PAR1", b"\x1f\x8b\x08\x00rest"

PRESETS: list[tuple[bytes, str]] = [
    (b"lr: [1", ":1: broken YAML"),
    (b"lr: 1\nlr: 2\n", ":2: broken YAML: key 'lr' occurs twice"),
    (b"- lr\n- 3\n", "a mapping of keys to values is needed, found list"),
    (b"lr\n", "a mapping of keys to values is needed, found str"),
    (b"lr: !!python/object/apply:os.system ['true']\n", "broken YAML: could not determine a constructor"),
    (b"lr: *other\n", "broken YAML: found undefined alias"),
    (b"lr:\n", ":1: broken YAML: 'lr' has no value; write a space after the colon, or null"),
    (b"lr: fast\n", "lr='fast': must be a valid number"),
    (b"lr: .nan\n", "lr=.nan: must be a finite number"),
    (b"group_size: 2.5\n", "group_size=2.5: must be a valid integer"),
    (b"3: 4\n", "unknown key '3': `run.py list --keys` shows all"),
    (b"true: 4\n", "unknown key 'True'"),
    (b"? [a, b]\n: 4\n", "broken YAML: found unhashable key"),
    (b"actor:\n  lr: 1.0e-6\n", "'actor' is a section, but keys are flat: write `lr: ...` at the top level"),
    (b"env:\n  prompt: paper\n", "'env' is a section, but keys are flat: write `env.prompt: ...`"),
    (b"batch_size: 1\n", "unknown key 'batch_size': set tasks_per_iteration"),
    (b"lr: 1e-3\ngroup_size: [4\nseed: 1\n", "file.yaml:3: broken YAML"),
    (b"gruop_size: 4\n", "file.yaml: unknown key 'gruop_size': did you mean 'group_size'?"),
    (b"env.prompt: [paper]\n", "env.prompt=['paper']: valid: paper, compact"),
    (b"seed: 2024-01-01\n", "seed='2024-01-01': must be a valid integer"),
    (GZIP, "broken YAML"),
]

SWEEPS: list[tuple[bytes, str]] = [
    (b"", "no key varies"),
    (b"space: [lr]\n", "space: a mapping of keys is needed, found list"),
    (b"space: {lrr: [1, 2]}\n", "space: unknown key 'lrr': did you mean 'lr'?"),
    (b"space: {lr: []}\n", "lr"),
    (b"space: {lr: [1, 2]}\nname: a/b\n", "only letters, digits, dots and dashes"),
    (b"space: {lr: [1, 2]}\nrecipe: nowhere.yaml\n", "nowhere.yaml: no such file"),
    (b"space: {lr: [1, 2]}\nset: {group_size: x}\n", "group_size='x': must be a valid integer"),
]

QUESTIONS: list[tuple[str, bytes, str]] = [
    ("q.jsonl", b"{", "line 1: not JSON"),
    ("q.jsonl", b'{"question": "a", "answer": "b"}\n{"question": "a"', "line 2: not JSON"),
    ("q.jsonl", b"[1]\n", "line 1: a question is list, not an object"),
    ("q.jsonl", b"\xff\n", "line 1: not UTF-8"),
    ("q.jsonl", b'{"question": NaN}\n', "NaN is not JSON"),
    ("q.jsonl", b'{"a": 1, "a": 2}\n', "'a' occurs twice"),
    ("q.jsonl", b"{}\n", "'question' should be a text; there is none"),
    ("q.jsonl", b'{"Question": "", "answer": "x"}\n', "'Question' should be a text; it is empty"),
    ("q.jsonl", b'{"question": 3, "answer": "x"}\n', "'question' should be a text; it is int"),
    ("q.jsonl", b'{"question": "q", "answer": {"a": 1}}\n', "answer is dict, not a text or a list of texts"),
    ("q.jsonl", b'{"question": "q", "answer": "a", "answer_aliases": "b"}\n', "not a text or a list of texts"),
    ("q.jsonl", b'{"question": "q", "answer": "a", "supporting": 3}\n', "supporting is not a list of passage ids"),
    ("q.parquet", PARQUET, "not a readable Parquet file"),
    ("q.json", GZIP, "a gzip archive, not JSON or JSONL; unpack it first"),
    ("q.jsonl", b"PK\x03\x04rest", "a zip archive, not JSON or JSONL"),
    ("q.json", b"", "it ends in the middle, at character 0: is the download complete?"),
    ("q.json", b"hello", "neither a JSON list nor a JSON object"),
    ("q.json", b'{"question": {"a": "b"}}', "a JSON object, not a list; one object a line is JSONL"),
    ("q.json", b'[{"question": "a", "answer": "b', "it ends in the middle: is the download complete?"),
    ("q.json", b'[{"question": "a", "answer": "b"} {', "',' or ']' is missing after a value"),
    ("q.json", b'[{"question": "a" "answer": "b"}]', "a value cannot be read (Expecting ',' delimiter)"),
    ("q.json", b"[1, 2]", "a value of an unexpected type"),
]

PASSAGES: list[tuple[str, bytes, str]] = [
    ("p.jsonl", b"{}\n", "no 'text' in the passage; it has: nothing"),
    ("p.jsonl", b'{"text": 3}\n', "text is int, not a text"),
    ("p.jsonl", b'{"text": "a", "title": null}\n', "title is NoneType, not a text"),
    ("p.jsonl", b'{"id": [], "text": "a"}\n', "id is [], not a text or a number"),
    ("p.jsonl", b'{"id": true, "text": "a"}\n', "id is True, not a text or a number"),
    ("p.jsonl", b'{"id": "a", "text": "b"}\n{"id": "a", "text": "c"}\n', "a"),
    ("p.jsonl", b"null\n", "a passage is NoneType, not an object"),
    ("p.jsonl", b'{"contents": 7}\n', "contents is int, not a text"),
    ("p.json", PARQUET, "not a readable Parquet file"),
    ("p.jsonl", b'{"text": "\\ud800"}\n', "lone surrogate"),
]

SERVERS: list[tuple[bytes, str]] = [
    (b"", "not JSON"),
    (b"{}", '{"mcpServers": {NAME: {...}}}'),
    (b'{"mcpServers": {}}', "1 to"),
    (b'{"mcpServers": {"a": 3}}', "a"),
    (b'{"mcpServers": {"a": {}}}', "a"),
    (b'{"mcpServers": {"a": {"command": 3}}}', "command"),
    (b'{"mcpServers": {"a": {"comand": "x"}}}', "server 'a' needs either 'command' or 'url'"),
    (b'{"mcpServers": {"a": {"command": "x", "args": "y"}}}', "args"),
    (b"\xff", "not UTF-8"),
    (b'{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', "occurs twice"),
]

TRACES: list[tuple[bytes, str]] = [
    (b"", "no traces in it"),
    (b"{", ":1: not JSON"),
    (b"null\n", ":1: "),
    (b'{"messages": 3}\n', ":1: "),
    (b'{"messages": []}\n', ":1: "),
    (b'{"messages": [{"role": "robot", "content": "x"}]}\n', "robot"),
    (b'{"messages": [{"role": "user"}]}\n', ":1: "),
    (b"\xff\n", "not UTF-8"),
    (PARQUET, "not a readable Parquet file"),
    (GZIP, "a gzip archive, not JSON or JSONL"),
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


@pytest.mark.parametrize(("name", "content", "words"), PASSAGES, ids=named(PASSAGES))
def test_passages(name: str, content: bytes, words: str, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("RL_AGENTS_CACHE", str(tmp_path / "cache"))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        PassageStore.open(tmp_path / name)
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("content", "words"), SERVERS, ids=named(SERVERS))
def test_server_files(content: bytes, words: str, tmp_path) -> None:
    (tmp_path / "servers.json").write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_servers(tmp_path / "servers.json")
    one_line(caught.value, tmp_path / "servers.json", words)


@pytest.mark.parametrize(("content", "words"), TRACES, ids=named(TRACES))
def test_traces(content: bytes, words: str, tmp_path) -> None:
    (tmp_path / "t.jsonl").write_bytes(content)
    try:
        found = read_traces(tmp_path / "t.jsonl")
    except InputError as error:
        one_line(error, tmp_path / "t.jsonl", words)
    else:
        assert not found.traces and words in str(found.defects[0]) and "\n" not in str(found.defects[0])


CONFIGS: list[tuple[bytes | None, bool, str]] = [
    (None, False, "no config.yaml"),
    (b"algo: grpo\n", False, "no complete checkpoint"),
    (b"[", True, "broken YAML"),
    (b"3", True, "a mapping of keys to values is needed, found int"),
    (b"algo: gone\n", True, "unknown algorithm 'gone'"),
    (b"algo: grpo\nnokey: 3\n", True, "unknown key 'nokey'"),
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
