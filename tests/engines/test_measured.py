"""What is remembered of engines' costs: which file holds for what, and what becomes of broken ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rl_agents.cache import cache_dir
from rl_agents.engines.measured import Measured, Subject, keep, read, subject
from rl_agents.engines.model_shape import ModelShape
from rl_agents.errors import InputError

SUBJECT = Subject(100_000, 2, 64, 200, "float32", 256, "a processor", 2, "2.9", "0.32", "0.1")
MEASURED = Measured(60.0, 180.0, 2.5, 3.5, 4, "guess_numbers", "2026-11-23")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RL_AGENTS_CACHE", str(tmp_path / "cache"))


def test_what_was_kept_is_read_again() -> None:
    assert read(SUBJECT) is None
    file = keep(SUBJECT, MEASURED)
    assert read(SUBJECT) == MEASURED and MEASURED.cheaper == "torch"
    assert str(MEASURED) == "measured here on 2026-11-23 (guess_numbers): vLLM takes 3.0 times the CPU of a token"
    keep(SUBJECT, replace(MEASURED, torch_us=720.0))
    again = read(SUBJECT)
    assert again is not None and again.cheaper == "vllm" and "the torch engine takes 4.0 times" in str(again)
    assert [path.name for path in file.parent.iterdir()] == [file.name], "no draft stays"


@pytest.mark.parametrize("name", [field for field in Subject.__dataclass_fields__])
def test_anything_else_has_another_file(name: str) -> None:
    keep(SUBJECT, MEASURED)
    value = getattr(SUBJECT, name)
    assert read(replace(SUBJECT, **{name: value + 1 if isinstance(value, int) else f"{value}x"})) is None


def test_a_subject_is_this_machine_and_these_versions() -> None:
    shape = ModelShape(2, 64, 128, 2, 2, 32, 200, 256, True)
    found = subject(shape, "bfloat16", 300)
    assert (found.parameters, found.layers, found.hidden, found.vocabulary) == (shape.parameters, 2, 64, 200)
    assert found.dtype == "bfloat16" and found.context == 512 == subject(shape, "bfloat16", 512).context
    assert found.cpu and found.cores > 0 and found.torch and found.rl_agents
    assert found == subject(shape, "bfloat16", 300)


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", '"text"', "null", "{}", '{"subject": {}, "measured": {}}', "SUBJECT", "\udcff",
        'MEASURED "torch_us": NaN', 'MEASURED "torch_us": 0', 'MEASURED "vllm_us": "fast"', 'MEASURED "rounds": "four"',
    ],
)  # fmt: skip
def test_a_broken_file_is_ignored_with_a_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = keep(SUBJECT, MEASURED)
    data = json.loads(file.read_text())
    if text == "SUBJECT":
        data["subject"]["layers"] = 3
        text = json.dumps(data)
    if text.startswith("MEASURED "):
        data["measured"] |= json.loads("{" + text.removeprefix("MEASURED ") + "}")
        text = json.dumps(data)
    file.write_text(text, encoding="utf-8", errors="surrogateescape")
    assert read(SUBJECT) is None
    out, err = capsys.readouterr()
    assert not out and err.startswith(f"[rl_agents] {file} is ignored (") and err.count("\n") == 1
    keep(SUBJECT, MEASURED)
    assert read(SUBJECT) == MEASURED


def test_a_failed_write_leaves_the_old_file(monkeypatch: pytest.MonkeyPatch) -> None:
    file = keep(SUBJECT, MEASURED)

    def fail(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rl_agents.durable.os.replace", fail)
    with pytest.raises(InputError, match="No space left on device; RL_AGENTS_CACHE=DIR"):
        keep(SUBJECT, replace(MEASURED, rounds=9))
    assert read(SUBJECT) == MEASURED and [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_cache_folder_that_is_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RL_AGENTS_CACHE", str(tmp_path / "file"))
    assert read(SUBJECT) is None
    with pytest.raises(InputError, match="RL_AGENTS_CACHE"):
        keep(SUBJECT, MEASURED)


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert SUBJECT.file.parent == tmp_path / "cache" / "engines"
    monkeypatch.delenv("RL_AGENTS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "rl_agents"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == Path.home() / ".cache" / "rl_agents"
