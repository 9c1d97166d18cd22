"""The one reader of users' data: forms, folders, the Hub's cache, column maps, and what is said of wrong ones."""

import datetime
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet as parquet
import pytest

from rl_agents.data.hub import hub_files
from rl_agents.data.row_cache import KEPT_DAYS, keep
from rl_agents.data.tables import open_table
from rl_agents.errors import InputError

ROWS = [
    {"id": "a", "prompt": "Who?", "extra_info": {"answer": "Bo", "tags": ["x", "y"]}},
    {"id": "b", "prompt": "What?", "extra_info": {"answer": "7", "tags": []}},
]
MAP = {"question": "prompt", "answer": "extra_info.answer", "first": "extra_info.tags.0"}
MAPPED = [
    {"question": "Who?", "answer": "Bo", "first": "x", "id": "a", "extra_info": ROWS[0]["extra_info"]},
    {"question": "What?", "answer": "7", "id": "b", "extra_info": ROWS[1]["extra_info"]},
]


def write(path: Path, rows: list[dict[str, Any]] = ROWS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text(
            "".join(json.dumps(row) + "\n" for row in rows) if path.suffix == ".jsonl" else json.dumps(rows)
        )
    return path


def read(name: str | Path, columns: Mapping[str, str] | None = None, fields: tuple[str, ...] = ()) -> list[Any]:
    return [row.record() for row in open_table(name, columns, fields)]


@pytest.mark.parametrize("end", ["jsonl", "json", "parquet"])
def test_every_form_has_the_same_rows_and_the_same_map(tmp_path: Path, end: str) -> None:
    path = write(tmp_path / f"q.{end}")
    assert read(path) == ROWS and read(path, MAP) == MAPPED
    assert [row.share for row in open_table(path)][-1] in (0.0, 1.0)
    assert read(path, {"question": "prompt"}, ("id", "question")) == [
        {"question": "Who?", "id": "a"}, {"question": "What?", "id": "b"},
    ]  # fmt: skip


def test_what_json_has_no_word_for(tmp_path: Path) -> None:
    table = pyarrow.Table.from_pylist(
        [{"day": datetime.date(2026, 1, 2), "picture": b"\x89PNG", "score": float("nan"), "said": {"a": None, "b": 1}}]
    )
    parquet.write_table(table, tmp_path / "x.data")
    assert read(tmp_path / "x.data") == [{"day": "2026-01-02", "said": {"b": 1}}], "the content decides, not the name"


def test_csv_is_text_and_empty_cells_are_absent(tmp_path: Path) -> None:
    path = tmp_path / "q.csv"
    path.write_text(
        '\ufeffid, prompt,gold \n1,"Who, then?",1984\n2,What?,\n\n3,"too\nmany",cells,x\n4,"two\nlines",x\n', "utf-8"
    )
    rows = list(open_table(path, {"question": "prompt", "answer": "gold"}))
    assert rows[0].record() == {"id": "1", "question": "Who, then?", "answer": "1984"}
    assert rows[1].record() == {"id": "2", "question": "What?"}
    with pytest.raises(ValueError, match="4 cells, where the header has 3"):
        rows[2].record()
    assert [row.line for row in rows] == [2, 3, 5, 7], "where they begin"
    assert rows[2].place == f"{path}, line 5" and rows[3].record()["question"] == "two\nlines"
    with pytest.raises(InputError, match=r"q\.csv: no column 'promt' for 'question': did you mean 'prompt'\? it has"):
        read(path, {"question": "promt"})


def test_columns_without_a_name_are_excluded_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "blank.csv"
    path.write_text("id,,prompt, \n1,x,Who?,y\n2,,What?,\n", "utf-8")
    for _ in range(2):
        assert read(path) == [{"id": "1", "prompt": "Who?"}, {"id": "2", "prompt": "What?"}]
    assert capsys.readouterr().err.splitlines() == [
        f"[rl_agents] {path}: columns without a name in the header are excluded: 2, 4"
    ]
    path.write_text("id,,id\n1,2,3\n", "utf-8")
    with pytest.raises(InputError, match="the column 'id' occurs twice"):
        read(path)


@pytest.mark.parametrize("end", ["jsonl", "json", "parquet"])
def test_a_column_that_is_not_there_is_named_with_the_nearest(tmp_path: Path, end: str) -> None:
    path = write(tmp_path / f"q.{end}")
    with pytest.raises(
        InputError, match=rf"{path}: no column 'promp' for 'question': did you mean 'prompt'\? it has: id"
    ):
        read(path, {"question": "promp"})
    with pytest.raises(InputError, match=r"no column 'extra_info\.anser' for 'answer'"):
        read(path, {"answer": "extra_info.anser"})
    with pytest.raises(InputError, match=r"env\.columns: nothing called 'qestion' is read here: did you mean"):
        open_table(path, {"qestion": "prompt"}, ("question", "answer"), "env.columns")


def test_a_line_that_cannot_be_read_is_a_row_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_bytes(b'{"a": 1}\n\n{"a": \n{"a": NaN}\n{"a": 2}')
    rows = list(open_table(path))
    assert [row.number for row in rows] == [1, 3, 4, 5]
    with pytest.raises(ValueError, match="not JSON"):
        rows[1].record()
    with pytest.raises(ValueError, match="NaN is not JSON"):
        rows[2].record()
    assert rows[1].place == f"{path}, line 3" and rows[3].record() == {"a": 2}
    listed = tmp_path / "q.json"
    listed.write_text('[\n{"a": 1},\n{"a": 1, "a": 2},\n{"a": 3}]')
    rows = list(open_table(listed))
    assert [row.line for row in rows] == [2, 3, 4] and rows[2].record() == {"a": 3}
    with pytest.raises(ValueError, match="the key 'a' occurs twice"):
        rows[1].record()
    listed.write_text('{"a": 1}\n{"a": 2}\n')
    assert read(listed) == [{"a": 1}, {"a": 2}], "JSON lines in a file called .json"


def test_folders_have_splits(tmp_path: Path) -> None:
    for split in ("train", "validation"):
        for shard in (0, 1):
            write(tmp_path / "data" / f"{split}-{shard:05d}-of-00002.parquet", ROWS[shard : shard + 1])
    (tmp_path / "data" / "state.json").write_text("{}")
    assert read(tmp_path / "train") == ROWS and read(tmp_path / "data" / "train") == ROWS
    with pytest.raises(InputError, match=rf"has the splits train, validation: name one, such as {tmp_path}/train"):
        open_table(tmp_path)
    with pytest.raises(InputError, match="no split 'tran': did you mean 'train'"):
        open_table(tmp_path / "tran")
    (tmp_path / "data" / "train-00001-of-00002.parquet").unlink()
    with pytest.raises(InputError, match="1 of 2 files of 'train': is the download complete"):
        open_table(tmp_path / "train")
    with pytest.raises(InputError, match=r"train-00000-of-0002\.parquet: no such .* mean 'train-00000-of"):
        open_table(tmp_path / "data" / "train-00000-of-0002.parquet")


def test_files_of_another_format_in_a_folder_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("may.jsonl", "may.json", "june.json"):
        write(tmp_path / name)
    assert read(tmp_path) == read(tmp_path) == ROWS
    assert capsys.readouterr().err == f"{tmp_path}: only its .jsonl files are read, not june.json\n"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The Hub's cache, as huggingface_hub lays it out, with no network: returns the snapshot of o/n."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    hub_files.cache_clear()
    home, commit = tmp_path / "datasets--o--n", "a" * 40
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text(commit)
    folder = home / "snapshots" / commit
    for split in ("train", "validation"):
        blob = write(home / "blobs" / f"{split}.parquet")
        link = folder / "distractor" / f"{split}-00000-of-00001.parquet"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    return folder


def test_data_sets_of_the_hub_come_from_its_cache(hub: Path) -> None:
    for name in ("hub:o/n:distractor/train", "hub:o/n/validation", f"hub:o/n@{'a' * 40}/train"):
        assert read(name, MAP) == MAPPED
    for name, message in {
        "hub:o/n": "has the splits train, validation: name one, such as hub:o/n/train",
        "hub:o/n/tran": r"no split 'tran': did you mean 'train'\? \(in the cache; .* `hf download o/n",
        "hub:o/n:fullwiki/train": "no configuration 'fullwiki': valid: distractor",
        "hub:o/n@v2/train": "not in the cache, .*`hf download o/n --repo-type dataset --revision v2` gets it",
        "hub:o/absent/train": "hub:o/absent: not in the cache, and HF_HUB_OFFLINE is set: `hf download o/absent",
        "hub:absent": r"written hub:OWNER/NAME\[@REVISION\]",
    }.items():
        with pytest.raises(InputError, match=message) as error:
            open_table(name)
        assert "\n" not in str(error.value)


def test_a_card_says_which_files_are_a_split(hub: Path) -> None:
    header = (
        "---\nconfigs:\n- config_name: main\n  data_files:\n  - split: dev\n    path: distractor/val*\n---\n# o/n\n"
    )
    (hub / "README.md").write_text(header)
    assert read("hub:o/n:main/dev") == ROWS
    with pytest.raises(InputError, match="no split 'train': valid: dev"):
        open_table("hub:o/n/train")


def test_scripts_are_not_run(hub: Path) -> None:
    for path in (hub / "distractor").iterdir():
        path.unlink()
    (hub / "n.py").write_text("raise SystemExit('run')")
    with pytest.raises(InputError, match="no data in it"):
        open_table("hub:o/n/train")


def test_a_gated_data_set_and_one_that_is_not_there(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Hub's own answers, as its client raises them; nobody is asked."""
    import httpx2
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    response = httpx2.Response(403, request=httpx2.Request("GET", "https://example.org"))
    for error, message in (
        (GatedRepoError("no", response=response), "hub:o/g is gated: accept its conditions on .*/datasets/o/g, then"),
        (RepositoryNotFoundError("no", response=response), "no such data set on the Hub, or a private one"),
        (httpx2.ConnectError("Name or service not known"), r"cannot be reached \(ConnectError: .*`hf download o/g"),
    ):
        monkeypatch.setattr(HfApi, "list_repo_files", lambda *_, error=error, **__: (_ for _ in ()).throw(error))
        with pytest.raises(InputError, match=message):
            open_table("hub:o/g/train")


def test_kept_rows_are_read_once_and_again_when_the_table_changes(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("RL_AGENTS_CACHE", str(tmp_path / "cache"))
    path, read_from = write(tmp_path / "q.parquet"), []

    def kept():
        table = open_table(path)

        def entries():
            read_from.append(table)
            return ((row.record()["id"], "", row.record()) for row in table)

        return keep("q", table.version(), entries)

    assert kept().ids() == ("a", "b") and kept().get("b") == ROWS[1] and len(read_from) == 1
    assert "c" not in kept() and len(kept()) == 2
    write(path, [*ROWS, {**ROWS[0], "id": "c"}])
    assert kept().ids() == ("a", "b", "c") and len(read_from) == 2
    write(path, [*ROWS, *ROWS, ROWS[0]])
    with pytest.raises(InputError, match="the task id 'a' occurs twice"):
        kept()


def test_what_nobody_has_opened_for_a_month_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RL_AGENTS_CACHE", str(tmp_path))

    def kept(name: str) -> Path:
        return keep(name, "1", lambda: [(name, "", name)]).path

    month_ago = time.time() - (KEPT_DAYS + 1) * 24 * 3600
    unused, in_use = kept("unused"), kept("in use")
    for path in (unused, in_use):
        os.utime(path, (month_ago, month_ago))
    assert kept("in use").stat().st_mtime > month_ago + 1, "opening it counts as use"
    assert unused.is_file()
    new = kept("new")
    assert not unused.exists() and in_use.is_file() and new.is_file()
    assert keep("unused", "1", lambda: [("again", "", 0)]).path == unused and unused.is_file()
